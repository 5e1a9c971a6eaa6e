//! What each worker does now, so that one that makes no progress is found, and what it was doing is known.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use weir_model::Uuid;

/// What one worker does. It writes, others read; `is_stuck` is the other way round.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Activity {
    /// Counts the seconds in which the worker got on.
    beats: AtomicU64,
    /// Whether a hook runs.
    in_hook: AtomicBool,
    plugin: Id,
    route: Id,
    is_stuck: AtomicBool,
}

/// A hook that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningHook {
    /// The entity that configures its plugin.
    pub plugin: Uuid,
    /// The route of its request, if it has one.
    pub route: Option<Uuid>,
}

/// An id, in two words that are read one after the other: those of a worker that makes no progress do not change.
#[derive(Debug, Default)]
struct Id([AtomicU64; 2]);

impl Id {
    fn set(&self, id: Uuid) {
        let (high, low) = id.as_u64_pair();
        self.0[0].store(high, Relaxed);
        self.0[1].store(low, Relaxed);
    }

    fn get(&self) -> Uuid {
        Uuid::from_u64_pair(self.0[0].load(Relaxed), self.0[1].load(Relaxed))
    }
}

impl Activity {
    /// The worker gets on.
    pub(crate) fn beat(&self) {
        self.beats.store(self.beats.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// A hook of this plugin begins.
    #[inline]
    pub(crate) fn begin_hook(&self, plugin: Uuid, route: Option<Uuid>) {
        self.plugin.set(plugin);
        self.route.set(route.unwrap_or_default());
        self.in_hook.store(true, Relaxed);
    }

    /// It has ended.
    #[inline]
    pub(crate) fn end_hook(&self) {
        self.in_hook.store(false, Relaxed);
    }

    pub(crate) fn beats(&self) -> u64 {
        self.beats.load(Relaxed)
    }

    /// What runs now.
    pub(crate) fn running(&self) -> Option<RunningHook> {
        let route = Some(self.route.get()).filter(|route| !route.is_nil());
        self.in_hook.load(Relaxed).then(|| RunningHook { plugin: self.plugin.get(), route })
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Relaxed)
    }

    pub(crate) fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.store(is_stuck, Relaxed);
    }
}

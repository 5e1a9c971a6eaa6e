//! The costs that one worker has recorded for one plugin on one route.

use super::Phase;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};
use weir_model::Uuid;
use weir_plugin::Count;
use weir_plugin::engine::Durations;

/// The key of a cost: plugin and route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The plugin's entity; none for what is no plugin's.
    pub(crate) plugin: Option<Uuid>,
    /// None for requests that matched none, and for those of routes that there was no more room for.
    pub(crate) route: Option<Uuid>,
}

/// The costs recorded under one key.
#[derive(Debug)]
pub(crate) struct PluginCost {
    pub(super) key: Key,
    pub(super) since: SystemTime,
    /// The CPU time that all workers had used by then.
    pub(super) cpu_before: Duration,
    phases: [OnceLock<Box<Durations>>; Phase::ALL.len()],
    /// Runs of the access hook that waited, as estimated.
    pub(crate) waits: Count,
    /// Nanoseconds that they waited.
    pub(crate) waited: Count,
    pub(crate) answers: Count,
    pub(crate) errors: Count,
    /// Retired by the reader; the worker must open another.
    pub(super) retired: AtomicBool,
}

impl PluginCost {
    pub(super) fn new(key: Key, cpu_before: Duration) -> Self {
        Self {
            key,
            since: SystemTime::now(),
            cpu_before,
            phases: Default::default(),
            waits: Count::default(),
            waited: Count::default(),
            answers: Count::default(),
            errors: Count::default(),
            retired: AtomicBool::new(false),
        }
    }

    pub(crate) fn durations(&self, phase: Phase) -> &Durations {
        self.phases[phase as usize].get_or_init(Box::default)
    }

    /// What was measured of a phase that the plugin has a hook for.
    pub(super) fn measured(&self, phase: Phase) -> Option<&Durations> {
        self.phases[phase as usize].get().map(|durations| &**durations)
    }
}

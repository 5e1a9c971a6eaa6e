//! Limits of the requests in flight to an upstream: fixed ones, and one that follows its latency. Requests beyond them wait, if the
//! upstream has a waiting room, or are shed.
//!
//! An upstream without such a limit has no [`UpstreamLimit`], and counts nothing. The counts belong to the node, and survive reloads.

mod adaptive;
mod gradient;
mod latencies;

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use crate::sync::{Mutex, MutexGuard};
use adaptive::Adaptive;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;
use weir_model::tags::{self, Priority};

/// The limits of an upstream, as its tags say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitPolicy {
    adaptive: bool,
    max_requests: usize,
    /// The most requests in flight to each target.
    pub target_max_requests: Option<usize>,
    max_waiting: usize,
}

impl LimitPolicy {
    /// The limits that these tags set, if they set any.
    pub fn of(tags: &Option<Vec<String>>) -> Option<LimitPolicy> {
        let number = |name| tags::number_of(tags, name).map(|number| number as usize);
        let adaptive = tags::has(tags, tags::ADAPTIVE_CONCURRENCY);
        let (max_requests, target_max_requests) =
            (number(tags::MAX_REQUESTS), number(tags::TARGET_MAX_REQUESTS));
        let is_any = adaptive || max_requests.is_some() || target_max_requests.is_some();
        is_any.then(|| LimitPolicy {
            adaptive,
            max_requests: max_requests.unwrap_or(usize::MAX),
            target_max_requests,
            max_waiting: number(tags::MAX_WAITING).unwrap_or(0),
        })
    }

    /// The same of a service without targets: its host is the only one.
    #[must_use]
    pub fn of_one_target(self) -> LimitPolicy {
        let max_requests =
            self.target_max_requests.map_or(self.max_requests, |most| most.min(self.max_requests));
        LimitPolicy { max_requests, target_max_requests: None, ..self }
    }
}

/// Why a request was shed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShedReason {
    /// The upstream has as many requests as it may have.
    Upstream,
    /// Each available target has.
    Targets,
    /// It waited for one of these for too long.
    Waited,
}

impl ShedReason {
    const ALL: [ShedReason; 3] = [ShedReason::Upstream, ShedReason::Targets, ShedReason::Waited];

    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            ShedReason::Upstream => "upstream",
            ShedReason::Targets => "targets",
            ShedReason::Waited => "waited",
        }
    }
}

/// What is counted of one upstream.
pub struct LimitState {
    upstream: Box<str>,
    since: Instant,
    in_flight: AtomicUsize,
    waiting: AtomicUsize,
    /// How often there was no room.
    refused: AtomicUsize,
    freed: Notify,
    adaptive: OnceLock<Box<Adaptive>>,
    shed: [AtomicU64; ShedReason::ALL.len()],
}

impl LimitState {
    fn new(upstream: &str) -> LimitState {
        LimitState {
            upstream: upstream.into(),
            since: Instant::now(),
            in_flight: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            freed: Notify::new(),
            adaptive: OnceLock::new(),
            shed: Default::default(),
        }
    }

    /// Something that requests may wait for is free.
    pub(crate) fn free(&self) {
        if self.waiting.load(SeqCst) > 0 {
            self.freed.notify_one();
        }
    }
}

/// The limits of one upstream, as one configuration sets them.
pub struct UpstreamLimit {
    policy: LimitPolicy,
    state: Arc<LimitState>,
}

impl UpstreamLimit {
    /// The requests that may be in flight to the upstream.
    fn limit(&self) -> usize {
        let adaptive = self.adaptive().map_or(usize::MAX, Adaptive::limit);
        adaptive.min(self.policy.max_requests)
    }

    fn adaptive(&self) -> Option<&Adaptive> {
        self.policy.adaptive.then(|| &**self.state.adaptive.get_or_init(|| Box::new(Adaptive::new())))
    }

    /// Its limits.
    pub fn policy(&self) -> &LimitPolicy {
        &self.policy
    }

    /// Where requests wait.
    pub(crate) fn state(&self) -> &Arc<LimitState> {
        &self.state
    }

    /// Whether others wait, so that a request must not overtake them.
    pub fn has_queue(&self) -> bool {
        self.policy.max_waiting > 0 && self.state.waiting.load(Relaxed) > 0
    }

    /// Counts a request in flight; none if the upstream has as many as it may have of this priority.
    pub fn acquire(self: &Arc<Self>, priority: impl FnOnce() -> Priority) -> Option<UpstreamPermit> {
        let (limit, state) = (self.limit(), &self.state);
        // Before the permit is taken: who finds no room because of it counts later.
        let refused = state.refused.load(SeqCst);
        let more = |most: usize| move |count: usize| (count < most).then_some(count + 1);
        let take = |most| state.in_flight.fetch_update(SeqCst, SeqCst, more(most));
        let taken = take(Priority::least_share_of(limit)).or_else(|_| {
            let share = priority().share_of(limit);
            take(share).or_else(|_| {
                // Looks again once that is known, because a permit may have been given back in between.
                state.refused.fetch_add(1, SeqCst);
                take(share)
            })
        });
        if let Some(adaptive) = self.adaptive() {
            adaptive.saw(taken.map_or_else(|count| count, |before| before + 1));
        }
        let permit =
            |_| UpstreamPermit { limit: self.clone(), since: Instant::now(), refused, is_unused: false };
        taken.ok().map(permit)
    }

    /// A place in the waiting room; none if that is full, or there is none.
    pub fn queue(self: &Arc<Self>) -> Option<WaitingPlace> {
        let before = self.state.waiting.fetch_add(1, SeqCst);
        let place = WaitingPlace(self.state.clone());
        (before < self.policy.max_waiting).then_some(place)
    }

    /// Counts a request that is refused.
    pub fn shed(&self, reason: ShedReason) {
        self.state.shed[reason as usize].fetch_add(1, Relaxed);
    }
}

/// Counts a request in flight until it is dropped.
pub struct UpstreamPermit {
    limit: Arc<UpstreamLimit>,
    since: Instant,
    /// How often there had been no room when it was taken.
    refused: usize,
    /// It was given back.
    is_unused: bool,
}

impl UpstreamPermit {
    /// The upstream has responded, or failed to in time: what that took says how busy it is, apart from the time that the client
    /// took to send its body.
    pub fn answered(&self, client_took: Duration) {
        if let Some(adaptive) = self.limit.adaptive() {
            let (state, now) = (&self.limit.state, Instant::now());
            adaptive.saw(state.in_flight.load(Relaxed));
            let since_start = |at: Instant| at.saturating_duration_since(state.since);
            let took = now.saturating_duration_since(self.since).saturating_sub(client_took);
            adaptive.record(took, since_start(now));
        }
    }

    /// Ends it for a request that was not sent. It wakes no request that waits, because that may need what this one did not
    /// get either; unless one found no room because of this permit.
    pub fn give_back(mut self) {
        self.is_unused = true;
    }
}

impl Drop for UpstreamPermit {
    fn drop(&mut self) {
        let state = &self.limit.state;
        state.in_flight.fetch_sub(1, SeqCst);
        if !self.is_unused || state.refused.load(SeqCst) != self.refused {
            state.free();
        }
    }
}

/// A place in the waiting room, until it is dropped.
pub struct WaitingPlace(Arc<LimitState>);

impl WaitingPlace {
    /// Ready when something was freed since it was called; enable it before looking for room.
    pub fn freed(&self) -> Notified<'_> {
        self.0.freed.notified()
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
    }
}

/// What a limit did since the start, and what it counts now.
pub struct LimitCounts {
    /// The upstream's name, or the host and port of a service.
    pub upstream: Box<str>,
    /// The requests that may be in flight; none if each target alone is limited.
    pub limit: Option<usize>,
    /// Those that are.
    pub in_flight: usize,
    /// Those that wait.
    pub waiting: usize,
    /// Those that were shed, by why.
    pub shed: [(&'static str, u64); ShedReason::ALL.len()],
}

impl LimitCounts {
    fn of(limit: &UpstreamLimit) -> LimitCounts {
        let (state, most) = (&limit.state, limit.limit());
        LimitCounts {
            upstream: state.upstream.clone(),
            limit: (most != usize::MAX).then_some(most),
            in_flight: state.in_flight.load(Relaxed),
            waiting: state.waiting.load(Relaxed),
            shed: ShedReason::ALL.map(|reason| (reason.as_str(), state.shed[reason as usize].load(Relaxed))),
        }
    }
}

/// The limits of all upstreams that are in use, by name. Retained, so that they outlive reloads.
#[derive(Default)]
pub struct UpstreamLimits(Mutex<ByUpstream>);

/// The limits of each upstream, as several configurations set them, the newest last: that one may yet be refused.
type ByUpstream = HashMap<Box<str>, Vec<Weak<UpstreamLimit>>>;

impl UpstreamLimits {
    fn lock(&self) -> MutexGuard<'_, ByUpstream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limits of an upstream, with what was counted and learnt under others before.
    pub fn of(&self, upstream: &str, policy: LimitPolicy) -> Arc<UpstreamLimit> {
        let mut limits = self.lock();
        let limits = limits.entry(upstream.into()).or_default();
        let in_use: Vec<_> = limits.iter().filter_map(Weak::upgrade).collect();
        let known = in_use.iter().find(|limit| limit.policy == policy).cloned();
        let limit = known.unwrap_or_else(|| {
            let state = in_use.first().map(|limit| limit.state.clone());
            let state = state.unwrap_or_else(|| Arc::new(LimitState::new(upstream)));
            Arc::new(UpstreamLimit { policy, state })
        });
        let newest = Arc::downgrade(&limit);
        limits.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&newest));
        limits.push(newest);
        limit
    }

    /// Drops those that no configuration uses.
    pub fn forget_unused(&self) {
        self.lock().retain(|_, limits| limits.iter().any(|limit| limit.strong_count() > 0));
    }

    /// What they count, by upstream.
    pub fn counts(&self) -> Vec<LimitCounts> {
        let newest = |limits: &Vec<Weak<UpstreamLimit>>| limits.iter().rev().find_map(Weak::upgrade);
        let in_use: Vec<_> = self.lock().values().filter_map(newest).collect();
        let mut counts: Vec<_> = in_use.iter().map(|limit| LimitCounts::of(limit)).collect();
        counts.sort_by(|a, b| a.upstream.cmp(&b.upstream));
        counts
    }
}

#[cfg(test)]
mod tests;

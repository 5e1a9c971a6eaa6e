//! Retry budgets: limit the retries of an upstream, because retries help while few requests fail but multiply the load
//! when many do.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use tokio::time::Instant;
use weir_model::tags;

/// The length of the sliding window, in seconds.
const WINDOW: u64 = 10;
/// How many per-second counts are kept; more than the window, so that none is read and replaced at the same time.
const SLOTS: usize = 16;
/// The percentage of requests that may be retries, unless a tag says otherwise.
const PERCENTAGE: u32 = 20;
/// This many retries are always allowed, however few requests there are.
const MIN_RETRIES: u64 = 10;

/// The reason for a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryReason {
    /// No connection could be made.
    Connect,
    /// The upstream closed or reset the connection or the stream.
    Reset,
    /// The upstream timed out.
    Timeout,
    /// The upstream reported that it did not process the request.
    Refused,
    /// A reused connection had ended, which says nothing about the upstream. These do not count as `retries`.
    IdleClosed,
}

impl RetryReason {
    const ALL: [RetryReason; 5] = [
        RetryReason::Connect,
        RetryReason::Reset,
        RetryReason::Timeout,
        RetryReason::Refused,
        RetryReason::IdleClosed,
    ];

    fn as_str(self) -> &'static str {
        match self {
            RetryReason::Connect => "connect",
            RetryReason::Reset => "reset",
            RetryReason::Timeout => "timeout",
            RetryReason::Refused => "refused",
            RetryReason::IdleClosed => "kept",
        }
    }

    /// Whether the upstream has had work with the attempt that failed. A connection that cannot be made costs it none.
    fn counts_against_budget(self) -> bool {
        matches!(self, RetryReason::Reset | RetryReason::Timeout | RetryReason::Refused)
    }
}

/// Counts by the second: each word holds a second and its count, 32 bits each.
#[derive(Default)]
struct Seconds([AtomicU64; SLOTS]);

impl Seconds {
    fn slot(&self, second: u64) -> &AtomicU64 {
        &self.0[second as usize % SLOTS]
    }

    /// Counts where there is one writer: not a read-modify-write, which would lock the cache line.
    fn add_alone(&self, second: u64) {
        let slot = self.slot(second);
        slot.store(next(slot.load(Relaxed), second), Relaxed);
    }

    fn add(&self, second: u64) {
        let _ = self.slot(second).fetch_update(Relaxed, Relaxed, |word| Some(next(word, second)));
    }

    fn reset(&self, second: u64) {
        let is_counted = |word: u64| word >> 32 == second && word as u32 > 0;
        let _ = self.slot(second).fetch_update(Relaxed, Relaxed, |word| is_counted(word).then(|| word - 1));
    }

    /// The sum over the window that ends with this second.
    fn sum(&self, second: u64) -> u64 {
        let words = self.0.iter().map(|slot| slot.load(Relaxed));
        words.filter(|word| second.wrapping_sub(word >> 32) < WINDOW).map(|word| word & 0xffff_ffff).sum()
    }
}

/// The word of a second with one more. A request that began long ago, before a later second took the slot, replaces
/// nothing: a few slow requests could otherwise erase the counts of all others.
fn next(word: u64, second: u64) -> u64 {
    match (word >> 32).cmp(&second) {
        Ordering::Less => (second << 32) | 1,
        Ordering::Equal => word + 1,
        Ordering::Greater => word,
    }
}

/// What one worker counts.
#[repr(align(128))]
#[derive(Default)]
struct WorkerCounts(Seconds);

/// What is counted once there are requests.
struct Counts {
    requests: Box<[WorkerCounts]>,
    retries: Seconds,
    by_reason: [AtomicU64; RetryReason::ALL.len()],
    exhausted: AtomicU64,
    /// The second of the last warning, and 1.
    warned: AtomicU64,
}

/// The budget of a service, from what was counted of its upstream.
pub struct RetryBudget {
    percentage: u32,
    upstream: Arc<UpstreamRetries>,
}

/// What is counted of one upstream, or of one host that services name themselves.
struct UpstreamRetries {
    name: Box<str>,
    workers: usize,
    since: Instant,
    counts: OnceLock<Box<Counts>>,
}

impl UpstreamRetries {
    fn new(name: &str, workers: usize) -> Self {
        Self { name: name.into(), workers, since: Instant::now(), counts: OnceLock::new() }
    }

    fn counts(&self) -> &Counts {
        self.counts.get_or_init(|| {
            Box::new(Counts {
                requests: (0..self.workers.max(1)).map(|_| WorkerCounts::default()).collect(),
                retries: Seconds::default(),
                by_reason: Default::default(),
                exhausted: AtomicU64::new(0),
                warned: AtomicU64::new(0),
            })
        })
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.since).as_secs()
    }
}

impl RetryBudget {
    /// How many retries there may be for so many requests.
    fn allowed(&self, requests: u64) -> u64 {
        match self.percentage {
            0 => 0,
            percentage => (requests * u64::from(percentage) / 100).max(MIN_RETRIES),
        }
    }

    /// Counts a request. Only this worker writes its own count.
    pub fn count_request(&self, worker: usize, now: Instant) {
        let lanes = &self.upstream.counts().requests;
        lanes[worker % lanes.len()].0.add_alone(self.upstream.second(now));
    }

    /// Takes a retry from the budget and counts it; false if none is left.
    pub fn spend(&self, reason: RetryReason, now: Instant) -> bool {
        let counts = self.upstream.counts();
        if reason.counts_against_budget() {
            let second = self.upstream.second(now);
            // Taken before it is compared, so that workers together never take too many.
            counts.retries.add(second);
            let requests: u64 = counts.requests.iter().map(|lane| lane.0.sum(second)).sum();
            if counts.retries.sum(second) > self.allowed(requests) {
                counts.retries.reset(second);
                self.exhausted(counts, second, requests);
                return false;
            }
        }
        counts.by_reason[reason as usize].fetch_add(1, Relaxed);
        true
    }

    /// Counts a retry that the budget does not allow, and warns once in each window.
    fn exhausted(&self, counts: &Counts, second: u64, requests: u64) {
        counts.exhausted.fetch_add(1, Relaxed);
        let warned = counts.warned.load(Relaxed);
        let is_due = warned == 0 || second + 1 >= warned + WINDOW;
        if is_due && counts.warned.compare_exchange(warned, second + 1, Relaxed, Relaxed).is_ok() {
            tracing::warn!(
                upstream = &*self.upstream.name,
                requests,
                percentage = self.percentage,
                "the retry budget is used up: too many requests failed, and clients get the errors. In 10 s, retries may be \
                 that percentage of the requests, or 10, because more would overload the upstream. Repair its targets; passive \
                 health checks of an upstream entity take those that fail out of use"
            );
        }
    }
}

/// The retry statistics of an upstream since the start.
pub struct RetryCounts {
    /// Its name, or the host and port of a service.
    pub upstream: Box<str>,
    /// By why they were made.
    pub retries: Vec<(&'static str, u64)>,
    /// Those that the budget did not allow.
    pub exhausted: u64,
}

impl RetryCounts {
    /// Of an upstream, if there was any retry.
    fn of(retries: &UpstreamRetries) -> Option<Self> {
        let counts = retries.counts.get()?;
        let count = |reason: RetryReason| (reason.as_str(), counts.by_reason[reason as usize].load(Relaxed));
        let (by_reason, exhausted) = (RetryReason::ALL.map(count), counts.exhausted.load(Relaxed));
        let is_any = exhausted > 0 || by_reason.iter().any(|(_, count)| *count > 0);
        is_any.then(|| Self { upstream: retries.name.clone(), retries: by_reason.into(), exhausted })
    }
}

/// What is counted of all upstreams that are in use, by name. Retained, so that it outlives reloads.
#[derive(Default)]
pub struct RetryBudgets(Mutex<HashMap<Box<str>, Weak<UpstreamRetries>>>);

impl RetryBudgets {
    /// A budget from what is counted of an upstream, for so many workers, as tags set it.
    pub fn of(&self, upstream: &str, workers: usize, tags: &Option<Vec<String>>) -> Arc<RetryBudget> {
        let percentage = tags::number_of(tags, tags::RETRY_BUDGET).unwrap_or(PERCENTAGE);
        Arc::new(RetryBudget { percentage, upstream: self.known_or_new(upstream, workers) })
    }

    fn known_or_new(&self, upstream: &str, workers: usize) -> Arc<UpstreamRetries> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(retries) = known.get(upstream).and_then(Weak::upgrade) {
            return retries;
        }
        let retries = Arc::new(UpstreamRetries::new(upstream, workers));
        known.insert(upstream.into(), Arc::downgrade(&retries));
        retries
    }

    /// Drops what no configuration uses.
    pub fn forget_unused(&self) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, retries| retries.strong_count() > 0);
    }

    /// The retry statistics, by upstream.
    pub fn counts(&self) -> Vec<RetryCounts> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let in_use: Vec<_> = known.values().filter_map(Weak::upgrade).collect();
        drop(known);
        let mut counts: Vec<_> = in_use.iter().filter_map(|retries| RetryCounts::of(retries)).collect();
        counts.sort_by(|a, b| a.upstream.cmp(&b.upstream));
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn budget() -> Arc<RetryBudget> {
        RetryBudgets::default().of("some", 2, &None)
    }

    /// How many retries are allowed at a moment.
    fn allowed(budget: &RetryBudget, reason: RetryReason, after: u64) -> usize {
        let now = budget.upstream.since + Duration::from_secs(after);
        (0..1_000).take_while(|_| budget.spend(reason, now)).count()
    }

    fn requests(budget: &RetryBudget, count: usize, after: u64) {
        let now = budget.upstream.since + Duration::from_secs(after);
        (0..count).for_each(|at| budget.count_request(at, now));
    }

    #[test]
    fn one_in_five_requests_and_ten_at_least_are_retried() {
        for (count, expected) in [(0, 10), (50, 10), (55, 11), (1_000, 200)] {
            let budget = budget();
            requests(&budget, count, 3);
            assert_eq!(allowed(&budget, RetryReason::Reset, 3), expected, "of {count}");
            assert_eq!(allowed(&budget, RetryReason::Timeout, 12), 0, "the same ten seconds");
            assert_eq!(allowed(&budget, RetryReason::Refused, 13), 10, "ten seconds later");
        }
    }

    #[test]
    fn what_was_counted_long_ago_does_not_come_back() {
        let budget = budget();
        requests(&budget, 1_000, 1);
        requests(&budget, 10, 17);
        assert_eq!(allowed(&budget, RetryReason::Reset, 17), 10);
    }

    #[test]
    fn requests_that_began_long_ago_erase_no_later_counts() {
        let budget = budget();
        requests(&budget, 1_000, 20);
        requests(&budget, 10, 4);
        assert_eq!(allowed(&budget, RetryReason::Reset, 20), 200);
    }

    #[test]
    fn connections_that_fail_and_kept_ones_are_no_part_of_it() {
        let budget = budget();
        assert_eq!(allowed(&budget, RetryReason::Connect, 1), 1_000);
        assert_eq!(allowed(&budget, RetryReason::IdleClosed, 1), 1_000);
        assert_eq!(allowed(&budget, RetryReason::Reset, 1), 10);
        let counts = RetryCounts::of(&budget.upstream).unwrap();
        let expected = [("connect", 1_000), ("reset", 10), ("timeout", 0), ("refused", 0), ("kept", 1_000)];
        assert_eq!((counts.retries.as_slice(), counts.exhausted), (expected.as_slice(), 1));
    }

    #[test]
    fn workers_together_take_no_more_than_there_is() {
        let budget = budget();
        requests(&budget, 1_000, 1);
        let now = budget.upstream.since + Duration::from_secs(1);
        let taken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let got = (0..200).filter(|_| budget.spend(RetryReason::Reset, now)).count();
                    taken.fetch_add(got as u64, Relaxed);
                });
            }
        });
        assert!((190..=200).contains(&taken.load(Relaxed)), "{taken:?}");
    }

    #[test]
    fn a_budget_lives_as_long_as_a_configuration_that_uses_it() {
        let budgets = RetryBudgets::default();
        let kept = budgets.of("a", 1, &None);
        assert!(Arc::ptr_eq(&kept.upstream, &budgets.of("a", 1, &None).upstream));
        drop(budgets.of("b", 1, &None));
        budgets.forget_unused();
        assert_eq!(budgets.0.lock().unwrap().len(), 1);
        assert!(budgets.counts().is_empty());
        kept.spend(RetryReason::Connect, kept.upstream.since);
        assert_eq!(budgets.counts().len(), 1);
    }

    #[test]
    fn services_of_one_upstream_have_shares_of_their_own() {
        let budgets = RetryBudgets::default();
        let [none, half] = ["weir-retry-budget:0", "weir-retry-budget:50"]
            .map(|tag| budgets.of("a:80", 2, &Some(vec![tag.to_owned()])));
        requests(&none, 1_000, 3);
        assert_eq!(allowed(&none, RetryReason::Reset, 3), 0);
        assert_eq!(allowed(&half, RetryReason::Reset, 3), 500);
        assert_eq!(budgets.counts().len(), 1);
    }

    #[test]
    fn a_tag_sets_the_percentage() {
        let budgets = RetryBudgets::default();
        for (tag, expected) in
            [("weir-retry-budget:50", 500), ("weir-retry-budget:1", 10), ("weir-retry-budget:0", 0)]
        {
            let budget = budgets.of(tag, 2, &Some(vec![tag.to_owned()]));
            requests(&budget, 1_000, 3);
            assert_eq!(allowed(&budget, RetryReason::Reset, 3), expected, "{tag}");
        }
    }
}

//! Which requests a worker samples, decided without looking at other workers, and the way of samples to the aggregator.
use super::sample::{Reason, Sample};
use crate::aggregate::Outcome;
use crate::bucket::Bucket;
use crate::record::Record;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

/// A worker samples at most so many errors, and as many slow requests, in 100 ms, so that a flood of them does not cost
/// more than requests do.
const MAX_IN_WINDOW: u32 = 50;
/// While somebody watches, it samples so many other requests in 100 ms.
const WATCHED_IN_WINDOW: u32 = 200;
/// If others are sampled always, so many in 100 ms.
const OTHERS_IN_WINDOW: u32 = 2;
/// Routes with a threshold of their own. Routes whose numbers are this far apart share one.
const ROUTES: usize = 4_096;
/// How many may watch at the same time.
const MAX_WATCHES: u32 = 8;

/// Which requests are sampled without a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// Errors, and the slowest of each route.
    Errors,
    /// Some of the others, too.
    All,
}

/// What the aggregator decides for all workers.
#[derive(Debug)]
pub(super) struct Rates {
    /// How many other requests are sampled in a window.
    others: AtomicU32,
    watches: AtomicU32,
    /// By route: requests above this bucket are slow.
    slow: Box<[AtomicU16]>,
    /// Requests that would have been sampled but for a limit.
    skipped: AtomicU64,
}

impl Rates {
    pub(super) fn new() -> Rates {
        let slow = std::iter::repeat_with(AtomicU16::default).take(ROUTES).collect();
        Rates { others: AtomicU32::new(0), watches: AtomicU32::new(0), slow, skipped: AtomicU64::new(0) }
    }

    pub(super) fn set_sampling(&self, sampling: Sampling) {
        let others = if sampling == Sampling::All { OTHERS_IN_WINDOW } else { 0 };
        self.others.store(others, Ordering::Relaxed);
    }

    /// From now on, requests of a route are slow if they take longer than this.
    pub(super) fn set_slow(&self, route: u32, total: Bucket) {
        self.slow_of(route).store(total.0, Ordering::Relaxed);
    }

    /// Another minute begins, in which every request may be among the slowest.
    pub(super) fn forget_slow(&self) {
        self.slow.iter().for_each(|total| total.store(0, Ordering::Relaxed));
    }

    /// A request is not sampled because of a limit.
    #[cold]
    fn skip(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// Samples as many requests as possible until the result is dropped; none if too many watch already.
    pub(super) fn watch(rates: &Arc<Rates>) -> Option<WatchGuard> {
        let watches = &rates.watches;
        let more = |watches| (watches < MAX_WATCHES).then_some(watches + 1);
        watches.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(WatchGuard(Arc::clone(rates)))
    }

    #[inline]
    fn is_watched(&self) -> bool {
        self.watches.load(Ordering::Relaxed) > 0
    }

    #[inline]
    fn others(&self) -> u32 {
        if self.is_watched() { WATCHED_IN_WINDOW } else { self.others.load(Ordering::Relaxed) }
    }

    #[inline]
    fn slow_of(&self, route: u32) -> &AtomicU16 {
        &self.slow[route as usize % ROUTES]
    }
}

/// Somebody watches requests as they end.
#[derive(Debug)]
pub struct WatchGuard(Arc<Rates>);

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The way of samples from workers to the aggregator. Each worker needs a clone.
#[derive(Debug, Clone)]
pub struct SampleSender {
    pub(super) rates: Arc<Rates>,
    pub(super) queue: SyncSender<Sample>,
}

/// The decision of one worker.
#[derive(Debug)]
pub struct Gate {
    sender: SampleSender,
    /// The 100 ms that are counted, and what was sampled in them by the limit that allowed it.
    window: Cell<u16>,
    sampled: [Cell<u32>; 3],
}

impl Gate {
    /// The gate of a worker.
    pub fn new(sender: SampleSender) -> Gate {
        Gate { sender, window: Cell::new(0), sampled: Default::default() }
    }

    /// Whether somebody watches requests.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.sender.rates.is_watched()
    }

    /// Why to sample a request that has ended, if so.
    #[inline]
    pub fn admit(&self, record: &Record) -> Option<Reason> {
        let rates = &*self.sender.rates;
        let reason = if (Outcome { status: record.status, cause: record.cause }).is_error() {
            Reason::Error
        } else if record.total.0 > rates.slow_of(record.route).load(Ordering::Relaxed) {
            Reason::Slow
        } else if rates.others() > 0 {
            Reason::Chance
        } else {
            return None;
        };
        self.within_limit(reason, record.time.window())
    }

    /// The reason, unless this worker has sampled enough. Errors and slow requests beyond their own limit may still be
    /// among the others.
    #[cold]
    fn within_limit(&self, reason: Reason, window: u16) -> Option<Reason> {
        if self.window.replace(window) != window {
            self.sampled.iter().for_each(|sampled| sampled.set(0));
        }
        let rates = &*self.sender.rates;
        let is_within = (reason != Reason::Chance && self.has_room(reason, MAX_IN_WINDOW))
            || self.has_room(Reason::Chance, rates.others());
        if !is_within {
            rates.skip();
        }
        is_within.then_some(reason)
    }

    /// Whether a limit allows one more, which is counted then.
    fn has_room(&self, reason: Reason, limit: u32) -> bool {
        let sampled = &self.sampled[reason as usize];
        let has_room = sampled.get() < limit;
        sampled.set(sampled.get() + u32::from(has_room));
        has_room
    }

    /// Hands a sample to the aggregator. If that is late, the sample is skipped.
    pub fn send(&self, sample: Sample) {
        if self.sender.queue.try_send(sample).is_err() {
            self.sender.rates.skip();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Tick;
    use crate::testing::record;
    use std::sync::mpsc::{Receiver, sync_channel};

    fn gate(sampling: Sampling) -> (Gate, Arc<Rates>, Receiver<Sample>) {
        let (rates, (queue, arrivals)) = (Arc::new(Rates::new()), sync_channel(10));
        rates.set_sampling(sampling);
        (Gate::new(SampleSender { rates: Arc::clone(&rates), queue }), rates, arrivals)
    }

    /// How many of a thousand requests in 100 ms are sampled.
    fn admitted(gate: &Gate, record: &Record) -> usize {
        (0..1_000).filter(|_| gate.admit(record).is_some()).count()
    }

    #[test]
    fn errors_and_slow_requests_are_sampled() {
        let (gate, rates, _arrivals) = gate(Sampling::Errors);
        let fine = record(1);
        assert_eq!(gate.admit(&fine), Some(Reason::Slow), "the first of a minute is the slowest");
        rates.set_slow(1, fine.total);
        assert_eq!(gate.admit(&fine), None);
        assert_eq!(gate.admit(&Record { status: 502, ..fine }), Some(Reason::Error));
        assert_eq!(gate.admit(&Record { total: Bucket(fine.total.0 + 1), ..fine }), Some(Reason::Slow));
        rates.forget_slow();
        assert_eq!(gate.admit(&fine), Some(Reason::Slow));
    }

    #[test]
    fn everything_within_a_limit_is_sampled_while_somebody_watches() {
        let (gate, rates, _arrivals) = gate(Sampling::Errors);
        let fine = record(1);
        rates.set_slow(1, fine.total);
        let watches: Vec<_> = (0..MAX_WATCHES).map(|_| Rates::watch(&rates).unwrap()).collect();
        assert!(Rates::watch(&rates).is_none() && gate.is_watched());
        assert_eq!(admitted(&gate, &fine), 200);
        assert_eq!(rates.skipped(), 800, "they are counted at once");
        let error = Record { time: Tick::at(300), status: 500, ..fine };
        assert_eq!(admitted(&gate, &error), 250, "errors are among the others, too");
        drop(watches);
        assert_eq!(admitted(&gate, &Record { time: Tick::at(100), ..fine }), 0);
        assert_eq!(rates.skipped(), 1_550);
    }

    #[test]
    fn a_flood_of_errors_is_bounded() {
        let (gate, rates, _arrivals) = gate(Sampling::All);
        let error = Record { status: 500, ..record(1) };
        assert_eq!(admitted(&gate, &error), 52);
        assert_eq!(gate.admit(&Record { time: Tick::at(100), ..error }), Some(Reason::Error));
        rates.set_slow(1, error.total);
        assert_eq!(admitted(&gate, &Record { time: Tick::at(100), ..record(1) }), 2);
    }
}

//! The counts of one identifier in the current window of each period.

use super::window::Period;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A limit of requests per window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limit {
    pub(crate) period: Period,
    /// As configured, and as clients see it.
    pub(crate) value: f64,
    /// The number of requests that it admits: as in Kong, one more while the count is below the limit.
    pub(crate) admits: u64,
}

impl Limit {
    pub(crate) fn new(period: Period, value: f64) -> Self {
        Self { period, value, admits: (value.ceil() as u64).min(COUNT_MASK) }
    }
}

/// Formats a limit or a remaining number. They may have fractions; hardly any do.
pub(crate) fn written(value: f64, with: impl FnOnce(&str)) {
    let whole = value as u64;
    if whole as f64 == value {
        with(itoa::Buffer::new().format(whole));
    } else {
        with(&value.to_string());
    }
}

/// The outcome of a reservation, and the usage of each limit after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) admitted: bool,
    /// When it was decided, in seconds since 1970.
    pub(crate) now: u64,
    /// Seconds until a request would be admitted, if that is not when the window ends; else 0.
    pub(crate) wait: u32,
    pub(crate) used: [u64; Period::ALL.len()],
}

#[cfg(test)]
impl Usage {
    fn used(&self, period: Period) -> u64 {
        self.used[period as usize]
    }
}

/// A counter per period for each of the windows that are kept. Each holds the number of its window in the upper bits
/// and the count in the lower ones, so that both change at once.
///
/// Window numbers are kept modulo 2^24: for the shortest period they repeat after 194 days, and until then a counter
/// has either been used or been swept.
#[derive(Debug)]
pub(crate) struct Counters<const KEPT: usize = 1>([[AtomicU64; KEPT]; Period::ALL.len()]);

impl<const KEPT: usize> Default for Counters<KEPT> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::default())))
    }
}

const COUNT_BITS: u32 = 40;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const WINDOW_MASK: u64 = u64::MAX >> COUNT_BITS;

fn pack(window: u64, count: u64) -> u64 {
    window << COUNT_BITS | count
}

fn same_window(packed: u64, window: u64) -> bool {
    packed >> COUNT_BITS == window & WINDOW_MASK
}

/// Whether the counter is already in a later window than this one.
fn is_later(packed: u64, window: u64) -> bool {
    let ahead = (packed >> COUNT_BITS).wrapping_sub(window) & WINDOW_MASK;
    packed & COUNT_MASK > 0 && (1..=WINDOW_MASK / 2).contains(&ahead)
}

impl<const KEPT: usize> Counters<KEPT> {
    fn of(&self, period: Period, window: u64) -> &AtomicU64 {
        &self.0[period as usize][window as usize % KEPT]
    }

    /// Takes one of every limit, or of none. `besides` returns what counts in a window besides this counter.
    ///
    /// Limits are taken in order. A reservation that is given back was refused by a later limit, so a request that it
    /// kept out meanwhile would have been refused by that limit, too: k concurrent reservations against a smallest
    /// remainder of n admit exactly min(k, n).
    pub(crate) fn reserve(
        &self,
        limits: &[Limit],
        clock: impl Fn() -> u64,
        besides: impl Fn(Period, u64) -> u64,
    ) -> Usage {
        let mut now = clock();
        let mut used = [0; Period::ALL.len()];
        let mut windows = [0; Period::ALL.len()];
        for (index, limit) in limits.iter().enumerate() {
            let slot = limit.period as usize;
            match self.take(limit, &mut now, &clock, &besides) {
                Some((window, count)) => (windows[slot], used[slot]) = (window, count),
                None => {
                    let taken = &limits[..index];
                    taken
                        .iter()
                        .for_each(|limit| self.give_back(limit.period, windows[limit.period as usize]));
                    let mut usage = self.usage(limits, now, besides);
                    usage.used[slot] = usage.used[slot].max(limit.admits);
                    return Usage { admitted: false, ..usage };
                }
            }
        }
        Usage { admitted: true, now, used, wait: 0 }
    }

    /// Takes one of a limit; returns the window it was taken in, and the count after it.
    fn take(
        &self,
        limit: &Limit,
        now: &mut u64,
        clock: impl Fn() -> u64,
        besides: impl Fn(Period, u64) -> u64,
    ) -> Option<(u64, u64)> {
        loop {
            let window = limit.period.window(*now);
            let counter = self.of(limit.period, window);
            let packed = counter.load(Relaxed);
            let count = if same_window(packed, window) {
                packed & COUNT_MASK
            } else if is_later(packed, window) && moved_on(now, &clock) {
                // Another worker entered the next window after this one had read the time.
                continue;
            } else {
                0
            };
            let others = besides(limit.period, window);
            if count.saturating_add(others) >= limit.admits {
                return None;
            }
            let more = pack(window, count + 1);
            if counter.compare_exchange_weak(packed, more, Relaxed, Relaxed).is_ok() {
                return Some((window, others + count + 1));
            }
        }
    }

    fn give_back(&self, period: Period, window: u64) {
        let one_less =
            |packed: u64| (same_window(packed, window) && packed & COUNT_MASK > 0).then(|| packed - 1);
        // An error means that the window is over, and the count with it.
        let _ = self.of(period, window).fetch_update(Relaxed, Relaxed, one_less);
    }

    /// The usage of each limit at a time.
    pub(crate) fn usage(&self, limits: &[Limit], now: u64, besides: impl Fn(Period, u64) -> u64) -> Usage {
        let mut usage = Usage { admitted: true, now, ..Usage::default() };
        for limit in limits {
            let window = limit.period.window(now);
            let used = self.counted(limit.period, window).saturating_add(besides(limit.period, window));
            usage.used[limit.period as usize] = used;
            usage.admitted &= used < limit.admits;
        }
        usage
    }

    /// Adds an amount, whatever the limit.
    pub(crate) fn add(&self, period: Period, amount: u64, now: u64) {
        let window = period.window(now);
        self.change(period, window, |count| count.saturating_add(amount));
    }

    /// Changes the count of a window, unless a later one has replaced it.
    pub(crate) fn change(&self, period: Period, window: u64, change: impl Fn(u64) -> u64) {
        let changed = |packed: u64| {
            let count = if same_window(packed, window) { packed & COUNT_MASK } else { 0 };
            (!is_later(packed, window)).then(|| pack(window, change(count).min(COUNT_MASK)))
        };
        let _ = self.of(period, window).fetch_update(Relaxed, Relaxed, changed);
    }

    /// The count of a window, if it is still kept.
    pub(crate) fn counted(&self, period: Period, window: u64) -> u64 {
        let packed = self.of(period, window).load(Relaxed);
        if same_window(packed, window) { packed & COUNT_MASK } else { 0 }
    }

    /// The counters as they are, for a process that replaces this one.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.0.iter().flatten().map(|counter| counter.load(Relaxed)).collect()
    }

    /// Takes over the counters of another process.
    pub(crate) fn restore(&self, numbers: &[u64]) {
        self.0.iter().flatten().zip(numbers).for_each(|(counter, number)| counter.store(*number, Relaxed));
    }

    /// Whether all counts are too old to matter for any limit.
    pub(crate) fn is_over(&self, windows: &Windows) -> bool {
        self.0.iter().zip(windows).all(|(counters, window)| {
            let oldest = window.saturating_sub(KEPT as u64 - 1);
            counters.iter().all(|counter| {
                let packed = counter.load(Relaxed);
                packed & COUNT_MASK == 0 || !(same_window(packed, oldest) || is_later(packed, oldest))
            })
        })
    }
}

/// The numbers of the current windows, by period.
pub(crate) type Windows = [u64; Period::ALL.len()];

/// The windows at a time.
pub(crate) fn windows(now: u64) -> Windows {
    Period::ALL.map(|period| period.window(now))
}

/// For counters with nothing beside them.
pub(crate) fn nothing(_: Period, _: u64) -> u64 {
    0
}

/// Reads the clock again: whether time has moved on. If not, the clock was set back, and counting starts again.
fn moved_on(now: &mut u64, clock: impl Fn() -> u64) -> bool {
    let before = std::mem::replace(now, clock());
    *now != before
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    const NOON: u64 = 1_706_702_400;

    fn limits(values: &[(Period, f64)]) -> Vec<Limit> {
        values.iter().map(|(period, value)| Limit::new(*period, *value)).collect()
    }

    /// How many of `threads` × `each` concurrent reservations are admitted.
    fn admitted(limits: &[Limit], threads: usize, each: usize) -> usize {
        let (counters, barrier, admitted) =
            (Counters::<1>::default(), Barrier::new(threads), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    barrier.wait();
                    let mine =
                        (0..each).filter(|_| counters.reserve(limits, || NOON, nothing).admitted).count();
                    admitted.fetch_add(mine, Relaxed);
                });
            }
        });
        admitted.into_inner()
    }

    #[test]
    fn concurrent_requests_are_admitted_exactly_up_to_the_limit() {
        for n in [1.0, 7.0, 1_000.0, 15_000.0] {
            assert_eq!(admitted(&limits(&[(Period::Minute, n)]), 8, 2_000), n as usize);
        }
        assert_eq!(admitted(&limits(&[(Period::Minute, 1e9)]), 8, 2_000), 16_000);
    }

    #[test]
    fn several_windows_admit_what_the_smallest_remainder_allows() {
        for _ in 0..20 {
            let nested = limits(&[(Period::Second, 90.0), (Period::Minute, 60.0), (Period::Year, 50.0)]);
            assert_eq!(admitted(&nested, 8, 100), 50);
        }
        let equal = limits(&[(Period::Second, 50.0), (Period::Hour, 50.0), (Period::Month, 50.0)]);
        assert_eq!(admitted(&equal, 8, 500), 50);
    }

    #[test]
    fn refused_reservations_leave_nothing_behind() {
        let (counters, limits) =
            (Counters::<1>::default(), limits(&[(Period::Second, 9.0), (Period::Minute, 2.0)]));
        for _ in 0..5 {
            counters.reserve(&limits, || NOON, nothing);
        }
        let usage = counters.reserve(&limits, || NOON, nothing);
        assert_eq!((usage.admitted, usage.used(Period::Second), usage.used(Period::Minute)), (false, 2, 2));
    }

    #[test]
    fn a_new_window_starts_at_zero_and_the_longer_one_goes_on() {
        let (counters, limits) =
            (Counters::<1>::default(), limits(&[(Period::Second, 2.0), (Period::Minute, 3.0)]));
        let admitted = |now| counters.reserve(&limits, || now, nothing).admitted;
        assert_eq!([NOON, NOON, NOON, NOON + 1, NOON + 2].map(admitted), [true, true, false, true, false]);
        assert!(admitted(NOON + 60));
    }

    #[test]
    fn a_worker_that_was_late_counts_in_the_window_that_has_begun() {
        let (counters, limits) = (Counters::<1>::default(), limits(&[(Period::Second, 1.0)]));
        assert!(counters.reserve(&limits, || NOON + 1, nothing).admitted);
        let reads = std::cell::Cell::new(NOON);
        let late = counters.reserve(&limits, || reads.replace(NOON + 1), nothing);
        assert_eq!((late.admitted, late.now), (false, NOON + 1));
    }

    #[test]
    fn a_clock_set_back_does_not_lock_clients_out() {
        let (counters, limits) = (Counters::<1>::default(), limits(&[(Period::Minute, 1.0)]));
        assert!(counters.reserve(&limits, || NOON, nothing).admitted);
        assert!(counters.reserve(&limits, || NOON - 3_600, nothing).admitted);
        assert!(!counters.reserve(&limits, || NOON - 3_600, nothing).admitted);
    }

    #[test]
    fn fractional_limits_admit_while_the_count_is_below_them() {
        let (counters, limits) = (Counters::<1>::default(), limits(&[(Period::Day, 1.5)]));
        let admitted = (0..4).filter(|_| counters.reserve(&limits, || NOON, nothing).admitted).count();
        assert_eq!(admitted, 2);
    }

    #[test]
    fn counters_are_over_when_every_window_is() {
        let counters = Counters::<1>::default();
        counters.reserve(&limits(&[(Period::Second, 2.0), (Period::Hour, 2.0)]), || NOON, nothing);
        let over = |now| counters.is_over(&Period::ALL.map(|period| period.window(now)));
        assert_eq!(
            [NOON, NOON + 1, NOON + 3_599, NOON + 3_600, NOON - 1].map(over),
            [false, false, false, true, false]
        );
    }
}

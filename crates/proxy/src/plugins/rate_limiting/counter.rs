//! What one identifier has used in the current window of each period.

use super::super::counters::{Counter, Recent};
use super::window::Period;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::LocalKey;

/// At most so many requests per window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limit {
    pub(crate) period: Period,
    /// As configured, and as clients are told.
    pub(crate) value: f64,
    /// How many requests that lets through: as Kong, one more while the used count is below the limit.
    pub(crate) admits: u64,
}

impl Limit {
    pub(crate) fn new(period: Period, value: f64) -> Self {
        Self { period, value, admits: (value.ceil() as u64).min(COUNT_MASK) }
    }
}

/// The outcome of a reservation, and what of each limit is used after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) admitted: bool,
    /// The moment it was decided, in seconds since 1970.
    pub(crate) now: u64,
    used: [u64; Period::ALL.len()],
}

impl Usage {
    /// How many requests are used of a period's limit.
    pub(crate) fn used(&self, period: Period) -> u64 {
        self.used[period as usize]
    }
}

/// One counter per period, each the number of its window above and the count below, so that both change at once.
///
/// Window numbers are kept modulo 2^24: for the shortest period those repeat after 194 days, by when a counter has
/// either been used or been swept.
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; Period::ALL.len()]);

const COUNT_BITS: u32 = 40;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const WINDOW_MASK: u64 = u64::MAX >> COUNT_BITS;

fn pack(window: u64, count: u64) -> u64 {
    window << COUNT_BITS | count
}

fn same_window(packed: u64, window: u64) -> bool {
    packed >> COUNT_BITS == window & WINDOW_MASK
}

/// Whether the counter stands in a later window than this one.
fn is_later(packed: u64, window: u64) -> bool {
    let ahead = (packed >> COUNT_BITS).wrapping_sub(window) & WINDOW_MASK;
    packed & COUNT_MASK > 0 && (1..=WINDOW_MASK / 2).contains(&ahead)
}

impl Counters {
    /// Takes one of every limit, or of none.
    ///
    /// Limits are taken in their order. A reservation that is given back was refused by a later limit, so whoever it
    /// kept out meanwhile would have been refused by that one: k reservations at once against a smallest remainder
    /// of n admit exactly min(k, n).
    pub(crate) fn reserve(&self, limits: &[Limit], clock: impl Fn() -> u64) -> Usage {
        let mut now = clock();
        let mut used = [0; Period::ALL.len()];
        let mut windows = [0; Period::ALL.len()];
        for (index, limit) in limits.iter().enumerate() {
            let slot = limit.period as usize;
            match self.take(limit, &mut now, &clock) {
                Some((window, count)) => (windows[slot], used[slot]) = (window, count),
                None => {
                    let taken = &limits[..index];
                    taken
                        .iter()
                        .for_each(|limit| self.give_back(limit.period, windows[limit.period as usize]));
                    return self.refused(limits, limit, now);
                }
            }
        }
        Usage { admitted: true, now, used }
    }

    /// Takes one of a limit: the window it was taken in, and the count after it.
    fn take(&self, limit: &Limit, now: &mut u64, clock: impl Fn() -> u64) -> Option<(u64, u64)> {
        let counter = &self.0[limit.period as usize];
        let mut packed = counter.load(Relaxed);
        loop {
            let window = limit.period.window(*now);
            let count = if same_window(packed, window) {
                packed & COUNT_MASK
            } else if is_later(packed, window) && moved_on(now, &clock) {
                // Another worker was first into the next window while this one had read the time before it.
                continue;
            } else {
                0
            };
            if count >= limit.admits {
                return None;
            }
            match counter.compare_exchange_weak(packed, pack(window, count + 1), Relaxed, Relaxed) {
                Ok(_) => return Some((window, count + 1)),
                Err(newer) => packed = newer,
            }
        }
    }

    fn give_back(&self, period: Period, window: u64) {
        let one_less =
            |packed: u64| (same_window(packed, window) && packed & COUNT_MASK > 0).then(|| packed - 1);
        // An error means that the window is over, and the count with it.
        let _ = self.0[period as usize].fetch_update(Relaxed, Relaxed, one_less);
    }

    fn refused(&self, limits: &[Limit], by: &Limit, now: u64) -> Usage {
        let mut used = [0; Period::ALL.len()];
        for limit in limits {
            used[limit.period as usize] = self.used(limit.period, now);
        }
        used[by.period as usize] = by.admits;
        Usage { admitted: false, now, used }
    }

    /// Counts so many, whatever the limit.
    pub(crate) fn add(&self, period: Period, amount: u64, now: u64) {
        let window = period.window(now);
        let more = |packed: u64| {
            let count = if same_window(packed, window) { packed & COUNT_MASK } else { 0 };
            // One that has moved on to the next window meanwhile is left alone.
            (!is_later(packed, window)).then(|| pack(window, count.saturating_add(amount).min(COUNT_MASK)))
        };
        let _ = self.0[period as usize].fetch_update(Relaxed, Relaxed, more);
    }

    /// How many were counted in the window of a moment.
    pub(crate) fn used(&self, period: Period, now: u64) -> u64 {
        let packed = self.0[period as usize].load(Relaxed);
        if same_window(packed, period.window(now)) { packed & COUNT_MASK } else { 0 }
    }
}

thread_local! {
    static OWN: RefCell<Recent<Counters>> = const { RefCell::new(Recent::new()) };
}

impl Counter for Counters {
    /// The windows, by period, that are current.
    type Moment = [u64; Period::ALL.len()];

    fn moment(seconds: u64) -> Self::Moment {
        Period::ALL.map(|period| period.window(seconds))
    }

    fn is_over(&self, windows: &Self::Moment) -> bool {
        self.0.iter().zip(windows).all(|(counter, window)| {
            let packed = counter.load(Relaxed);
            packed & COUNT_MASK == 0 || !(same_window(packed, *window) || is_later(packed, *window))
        })
    }

    fn recent() -> &'static LocalKey<RefCell<Recent<Self>>> {
        &OWN
    }
}

/// Reads the clock again: whether time has moved on. If not, the clock was set back, and counting starts anew.
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

    /// How many of `threads` × `each` reservations at once are admitted.
    fn admitted(limits: &[Limit], threads: usize, each: usize) -> usize {
        let (counters, barrier, admitted) = (Counters::default(), Barrier::new(threads), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    barrier.wait();
                    let mine = (0..each).filter(|_| counters.reserve(limits, || NOON).admitted).count();
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
            (Counters::default(), limits(&[(Period::Second, 9.0), (Period::Minute, 2.0)]));
        for _ in 0..5 {
            counters.reserve(&limits, || NOON);
        }
        let usage = counters.reserve(&limits, || NOON);
        assert_eq!((usage.admitted, usage.used(Period::Second), usage.used(Period::Minute)), (false, 2, 2));
    }

    #[test]
    fn a_new_window_starts_at_zero_and_the_longer_one_goes_on() {
        let (counters, limits) =
            (Counters::default(), limits(&[(Period::Second, 2.0), (Period::Minute, 3.0)]));
        let admitted = |now| counters.reserve(&limits, || now).admitted;
        assert_eq!([NOON, NOON, NOON, NOON + 1, NOON + 2].map(admitted), [true, true, false, true, false]);
        assert!(admitted(NOON + 60));
    }

    #[test]
    fn a_worker_that_was_late_counts_in_the_window_that_has_begun() {
        let (counters, limits) = (Counters::default(), limits(&[(Period::Second, 1.0)]));
        assert!(counters.reserve(&limits, || NOON + 1).admitted);
        let reads = std::cell::Cell::new(NOON);
        let late = counters.reserve(&limits, || reads.replace(NOON + 1));
        assert_eq!((late.admitted, late.now), (false, NOON + 1));
    }

    #[test]
    fn a_clock_set_back_does_not_lock_clients_out() {
        let (counters, limits) = (Counters::default(), limits(&[(Period::Minute, 1.0)]));
        assert!(counters.reserve(&limits, || NOON).admitted);
        assert!(counters.reserve(&limits, || NOON - 3_600).admitted);
        assert!(!counters.reserve(&limits, || NOON - 3_600).admitted);
    }

    #[test]
    fn fractional_limits_admit_while_the_count_is_below_them() {
        let (counters, limits) = (Counters::default(), limits(&[(Period::Day, 1.5)]));
        let admitted = (0..4).filter(|_| counters.reserve(&limits, || NOON).admitted).count();
        assert_eq!(admitted, 2);
    }

    #[test]
    fn counters_are_over_when_every_window_is() {
        let counters = Counters::default();
        counters.reserve(&limits(&[(Period::Second, 2.0), (Period::Hour, 2.0)]), || NOON);
        let over = |now| counters.is_over(&Period::ALL.map(|period| period.window(now)));
        assert_eq!(
            [NOON, NOON + 1, NOON + 3_599, NOON + 3_600, NOON - 1].map(over),
            [false, false, false, true, false]
        );
    }
}

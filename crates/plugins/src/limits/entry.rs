//! What a node knows of one identifier's counts, if they are shared with other nodes or if windows slide.

use super::counter::{Counters, Limit, Usage, Windows, windows};
use super::sliding::Slide;
use super::store::{Add, Bound, CounterKey, Take, Taken, Window};
use super::window::{Period, wall_clock, wall_clock_in_milliseconds};
use crate::shared::counters::{Counter, Recent};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::LocalKey;

/// For how long after its end a window's count is kept, for nodes whose clocks are behind.
const GRACE: u64 = 10;

/// The counts of this window and the last one. This node's requests change only `own`; the exchange with the store
/// changes the rest, so that neither waits for the other.
#[derive(Default)]
pub(crate) struct Entry {
    key: OnceLock<Arc<CounterKey>>,
    /// What this node has counted.
    own: Counters<2>,
    /// How much of that was reported to the store.
    reported: Counters<2>,
    /// What the store has from other nodes.
    others: Counters<2>,
    /// Whether there is something to report.
    pub(super) changed: AtomicBool,
}

impl Entry {
    /// Its key in the store, which is made if it has none.
    pub(super) fn key_or_insert(&self, make: impl FnOnce() -> CounterKey) -> &Arc<CounterKey> {
        self.key.get_or_init(|| Arc::new(make()))
    }

    /// Its key in the store, if it has one already.
    pub(super) fn key(&self) -> Option<Arc<CounterKey>> {
        self.key.get().cloned()
    }

    /// Takes one of every limit, or of none, by what this node knows.
    pub(super) fn reserve(&self, limits: &[Limit], slides: bool) -> Usage {
        let usage =
            self.own.reserve(limits, wall_clock, |period, window| self.besides(period, window, slides));
        if usage.admitted || !slides { usage } else { Usage { wait: self.wait(limits, &usage), ..usage } }
    }

    /// The usage that this node knows of.
    pub(super) fn usage(&self, limits: &[Limit], slides: bool) -> Usage {
        self.own.usage(limits, wall_clock(), |period, window| self.besides(period, window, slides))
    }

    /// Adds an amount, whatever the limit.
    pub(super) fn add(&self, period: Period, amount: u64) {
        self.own.add(period, amount, wall_clock());
    }

    /// What counts in a window besides what this node has counted in it.
    fn besides(&self, period: Period, window: u64, slides: bool) -> u64 {
        let others = self.others.counted(period, window);
        if !slides {
            return others;
        }
        let slide = Slide::of(period, window, wall_clock_in_milliseconds());
        others + slide.carried(self.counted(period, window.saturating_sub(1)))
    }

    fn counted(&self, period: Period, window: u64) -> u64 {
        self.own.counted(period, window) + self.others.counted(period, window)
    }

    fn wait(&self, limits: &[Limit], usage: &Usage) -> u32 {
        let now = wall_clock_in_milliseconds();
        let wait = |limit: &Limit| {
            let window = limit.period.window(usage.now);
            let previous = self.counted(limit.period, window.saturating_sub(1));
            Slide::of(limit.period, window, now).wait(limit, self.counted(limit.period, window), previous)
        };
        let spent = limits.iter().filter(|limit| usage.used[limit.period as usize] >= limit.admits);
        spent.map(wait).max().unwrap_or(0)
    }

    /// What is still to be reported to the store, for windows that matter. With sliding windows, the last ones are
    /// queried as well.
    pub(super) fn unreported(&self, now: u64, slides: bool) -> Vec<Add> {
        let Some(key) = self.key.get() else { return Vec::new() };
        let mut found = Vec::new();
        for period in Period::ALL {
            let current = period.window(now);
            for window in [current, current.saturating_sub(1)] {
                let own = self.own.counted(period, window);
                let amount = own.saturating_sub(self.reported.counted(period, window));
                let is_queried = slides && window != current && self.own.counted(period, current) > 0;
                if amount > 0 || is_queried {
                    let window = self::window(period, window, now, slides);
                    found.push(Add { key: key.clone(), window, amount });
                }
            }
        }
        found
    }

    /// The store has added this, and its count is now `count`.
    pub(super) fn record_report(&self, add: &Add, count: u64) {
        let (period, window) = (add.window.period, add.window.period.window(add.window.starts));
        self.reported.change(period, window, |reported| reported + add.amount);
        let reported = self.reported.counted(period, window);
        self.others.change(period, window, |_| count.saturating_sub(reported));
    }

    /// Records the store's reply to a query.
    pub(super) fn learn(&self, take: &Take, taken: &Taken) {
        for (bound, (count, _)) in take.bounds.iter().zip(&taken.counts) {
            let (period, window) = (bound.window.period, bound.window.period.window(bound.window.starts));
            let reported = self.reported.counted(period, window);
            // Replies may overtake each other; counts only grow.
            self.others.change(period, window, |others| others.max(count.saturating_sub(reported)));
        }
    }
}

/// The bounds of limits at a time, in milliseconds.
pub(super) fn bounds(limits: &[Limit], now: u64, slides: bool) -> Vec<Bound> {
    let bound = |limit: &Limit| {
        let number = limit.period.window(now / 1_000);
        let before = slides
            .then(|| (limit.period.starts(number.saturating_sub(1)), Slide::of(limit.period, number, now)));
        let window = window(limit.period, number, now / 1_000, slides);
        Bound { window, admits: limit.admits, before }
    };
    limits.iter().map(bound).collect()
}

fn window(period: Period, number: u64, now: u64, slides: bool) -> Window {
    // With sliding windows, the next window needs the count of this one.
    let ends = period.starts(number + if slides { 2 } else { 1 });
    Window { period, starts: period.starts(number), kept: ends.saturating_sub(now) + GRACE }
}

thread_local! {
    static OWN: RefCell<Recent<Entry>> = const { RefCell::new(Recent::new()) };
}

impl Counter for Entry {
    type Time = Windows;

    fn time(seconds: u64) -> Windows {
        windows(seconds)
    }

    fn is_over(&self, windows: &Windows) -> bool {
        !self.changed.load(Relaxed) && self.own.is_over(windows) && self.others.is_over(windows)
    }

    const NUMBERS: usize = 2 * Period::ALL.len();

    fn numbers(&self) -> Vec<u64> {
        self.own.numbers()
    }

    fn restore(&self, numbers: &[u64]) {
        self.own.restore(numbers);
    }

    fn recent() -> &'static LocalKey<RefCell<Recent<Self>>> {
        &OWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let entry = Entry::default();
        let identifier = "somebody".into();
        entry.key_or_insert(|| CounterKey {
            route: Default::default(),
            service: Default::default(),
            identifier,
            of_responses: None,
        });
        entry
    }

    /// How many of these reservations are admitted.
    fn admitted(entry: &Entry, count: usize) -> usize {
        let limits = [Limit::new(Period::Year, 10.0)];
        (0..count).filter(|_| entry.reserve(&limits, false).admitted).count()
    }

    #[test]
    fn counts_of_other_nodes_leave_less_and_are_not_reported_back() {
        let entry = entry();
        assert_eq!(admitted(&entry, 3), 3);
        let [add] = &*entry.unreported(wall_clock(), false) else { panic!() };
        assert_eq!((add.amount, add.window.period), (3, Period::Year));
        // One more is counted while the report is in flight.
        assert_eq!(admitted(&entry, 1), 1);
        entry.record_report(add, 8);
        assert_eq!(entry.usage(&[Limit::new(Period::Year, 10.0)], false).used[Period::Year as usize], 9);
        assert_eq!(admitted(&entry, 5), 1);
        let [add] = &*entry.unreported(wall_clock(), false) else { panic!() };
        assert_eq!(add.amount, 2);
        entry.record_report(add, 10);
        assert!(entry.unreported(wall_clock(), false).is_empty());
        assert_eq!(admitted(&entry, 5), 0);
    }

    #[test]
    fn answers_that_overtake_each_other_leave_the_last_count() {
        let entry = entry();
        let now = wall_clock_in_milliseconds();
        let take = Take {
            key: entry.key().unwrap(),
            wanted: 1,
            bounds: bounds(&[Limit::new(Period::Year, 10.0)], now, false),
        };
        for count in [7, 9, 8] {
            entry.learn(&take, &Taken { taken: 1, counts: vec![(count, 0)] });
        }
        assert_eq!(admitted(&entry, 5), 1);
    }

    #[test]
    fn windows_that_slide_are_kept_until_the_next_one_is_over() {
        let kept = |slides| {
            let bounds = bounds(&[Limit::new(Period::Hour, 1.0)], 7_200_000 + 600_000, slides);
            (bounds[0].window.starts, bounds[0].window.kept, bounds[0].before.map(|(starts, _)| starts))
        };
        assert_eq!(kept(false), (7_200, 3_000 + GRACE, None));
        assert_eq!(kept(true), (7_200, 6_600 + GRACE, Some(3_600)));
    }
}

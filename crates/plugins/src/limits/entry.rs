//! What a node knows of one identifier's counts that it shares with others, or that slide.

use super::super::counters::{Counter, Recent};
use super::counter::{Counters, Limit, Usage, Windows, windows};
use super::sliding::Slide;
use super::store::{Add, Bound, Take, Taken, Whose, Window};
use super::window::{Period, wall_clock, wall_clock_in_milliseconds};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::LocalKey;

/// How long after its end a window's count is kept, for nodes whose clocks are behind.
const GRACE: u64 = 10;

/// The counts of this window and the last one. This node's requests change `own` alone; what is exchanged with the
/// store changes the rest, so that neither waits for the other.
#[derive(Default)]
pub(crate) struct Entry {
    whose: OnceLock<Arc<Whose>>,
    /// What this node has counted by itself.
    own: Counters<2>,
    /// How much of that the store was told.
    told: Counters<2>,
    /// What the store knows beside that.
    others: Counters<2>,
    /// Whether the store is to be told.
    pub(super) changed: AtomicBool,
}

impl Entry {
    /// What the store calls it.
    pub(super) fn whose(&self, name: impl FnOnce() -> Whose) -> &Arc<Whose> {
        self.whose.get_or_init(|| Arc::new(name()))
    }

    /// The same, where it has a name already.
    pub(super) fn named(&self) -> Option<Arc<Whose>> {
        self.whose.get().cloned()
    }

    /// Takes one of every limit, or of none, by what this node knows.
    pub(super) fn reserve(&self, limits: &[Limit], slides: bool) -> Usage {
        let usage =
            self.own.reserve(limits, wall_clock, |period, window| self.besides(period, window, slides));
        if usage.admitted || !slides { usage } else { Usage { wait: self.wait(limits, &usage), ..usage } }
    }

    /// What this node knows of what is used.
    pub(super) fn usage(&self, limits: &[Limit], slides: bool) -> Usage {
        self.own.usage(limits, wall_clock(), |period, window| self.besides(period, window, slides))
    }

    /// Counts so many, whatever the limit.
    pub(super) fn add(&self, period: Period, amount: u64) {
        self.own.add(period, amount, wall_clock());
    }

    /// What counts in a window beside what this node has counted in it.
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

    /// What the store has still to be told, of windows that matter. Where windows slide, the last ones are asked for as
    /// well.
    pub(super) fn untold(&self, now: u64, slides: bool) -> Vec<Add> {
        let Some(whose) = self.whose.get() else { return Vec::new() };
        let mut found = Vec::new();
        for period in Period::ALL {
            let current = period.window(now);
            for window in [current, current.saturating_sub(1)] {
                let own = self.own.counted(period, window);
                let amount = own.saturating_sub(self.told.counted(period, window));
                let is_asked_for = slides && window != current && self.own.counted(period, current) > 0;
                if amount > 0 || is_asked_for {
                    let window = self::window(period, window, now, slides);
                    found.push(Add { whose: whose.clone(), window, amount });
                }
            }
        }
        found
    }

    /// The store was told so much of a window, and knows so much now.
    pub(super) fn tell(&self, add: &Add, count: u64) {
        let (period, window) = (add.window.period, add.window.period.window(add.window.starts));
        self.told.change(period, window, |told| told + add.amount);
        let told = self.told.counted(period, window);
        self.others.change(period, window, |_| count.saturating_sub(told));
    }

    /// What the store said when it was asked.
    pub(super) fn learn(&self, take: &Take, taken: &Taken) {
        for (bound, (count, _)) in take.bounds.iter().zip(&taken.counts) {
            let (period, window) = (bound.window.period, bound.window.period.window(bound.window.starts));
            let told = self.told.counted(period, window);
            // Answers may overtake each other; counts only grow.
            self.others.change(period, window, |others| others.max(count.saturating_sub(told)));
        }
    }
}

/// The bounds that limits are at a moment, in milliseconds.
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
    // The next window asks for the count of this one, where they slide.
    let ends = period.starts(number + if slides { 2 } else { 1 });
    Window { period, starts: period.starts(number), kept: ends.saturating_sub(now) + GRACE }
}

thread_local! {
    static OWN: RefCell<Recent<Entry>> = const { RefCell::new(Recent::new()) };
}

impl Counter for Entry {
    type Moment = Windows;

    fn moment(seconds: u64) -> Windows {
        windows(seconds)
    }

    fn is_over(&self, windows: &Windows) -> bool {
        !self.changed.load(Relaxed) && self.own.is_over(windows) && self.others.is_over(windows)
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
        entry.whose(|| Whose {
            route: Default::default(),
            service: Default::default(),
            identifier,
            of_responses: None,
        });
        entry
    }

    /// How many of so many reservations are admitted.
    fn admitted(entry: &Entry, count: usize) -> usize {
        let limits = [Limit::new(Period::Year, 10.0)];
        (0..count).filter(|_| entry.reserve(&limits, false).admitted).count()
    }

    #[test]
    fn what_others_have_counted_leaves_less_and_is_not_told_back() {
        let entry = entry();
        assert_eq!(admitted(&entry, 3), 3);
        let [add] = &*entry.untold(wall_clock(), false) else { panic!() };
        assert_eq!((add.amount, add.window.period), (3, Period::Year));
        // One more is counted while the store is told.
        assert_eq!(admitted(&entry, 1), 1);
        entry.tell(add, 8);
        assert_eq!(entry.usage(&[Limit::new(Period::Year, 10.0)], false).used[Period::Year as usize], 9);
        assert_eq!(admitted(&entry, 5), 1);
        let [add] = &*entry.untold(wall_clock(), false) else { panic!() };
        assert_eq!(add.amount, 2);
        entry.tell(add, 10);
        assert!(entry.untold(wall_clock(), false).is_empty());
        assert_eq!(admitted(&entry, 5), 0);
    }

    #[test]
    fn answers_that_overtake_each_other_leave_the_last_count() {
        let entry = entry();
        let now = wall_clock_in_milliseconds();
        let take = Take {
            whose: entry.named().unwrap(),
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

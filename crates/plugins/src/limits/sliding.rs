//! Sliding windows: the last window's count has the weight of the part that still lies within one length from now.

use super::counter::Limit;
use super::window::Period;

/// The position of a time in a window, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slide {
    /// How much of the window is left.
    pub left: u64,
    /// How long it is.
    pub length: u64,
}

impl Slide {
    /// The position of a time, in milliseconds since 1970, in a window.
    pub(crate) fn of(period: Period, window: u64, now: u64) -> Self {
        let (begins, ends) = (period.starts(window) * 1_000, period.starts(window + 1) * 1_000);
        Self { left: ends.saturating_sub(now).min(ends - begins), length: ends - begins }
    }

    /// The part of the previous window's count that still counts.
    pub fn carried(self, previous: u64) -> u64 {
        let carried = u128::from(previous) * u128::from(self.left) / u128::from(self.length.max(1));
        u64::try_from(carried).unwrap_or(u64::MAX)
    }

    /// Seconds, rounded up, until a limit admits one more if nothing else is counted.
    pub(crate) fn wait(self, limit: &Limit, current: u64, previous: u64) -> u32 {
        // The earliest time in a window with these counts at which one is admitted.
        let admits_from = |count: u64, before: u64| {
            let room = limit.admits.saturating_sub(count).min(before);
            let stays = u128::from(self.length) * u128::from(room) / u128::from(before.max(1));
            self.length - u64::try_from(stays).unwrap_or(self.length) + 1
        };
        let gone = self.length - self.left;
        let milliseconds = if current < limit.admits {
            admits_from(current, previous).saturating_sub(gone)
        } else {
            self.left + admits_from(0, current)
        };
        u32::try_from(milliseconds.div_ceil(1_000).max(1)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2024-01-31T12:00:00Z
    const NOON: u64 = 1_706_702_400_000;

    #[test]
    fn the_previous_window_weighs_less_and_less() {
        let carried = |later: u64| {
            let window = Period::Minute.window(NOON / 1_000);
            Slide::of(Period::Minute, window, NOON + later).carried(10)
        };
        assert_eq!([0, 1, 6_000, 6_001, 30_000, 54_001, 59_999].map(carried), [10, 9, 9, 8, 5, 0, 0]);
        // The clock was read again, in the next window or in the previous one.
        assert_eq!([60_000, 61_000].map(carried), [0, 0]);
        assert_eq!(Slide::of(Period::Minute, Period::Minute.window(NOON / 1_000), NOON - 5).carried(10), 10);
    }

    #[test]
    fn months_are_as_long_as_they_are() {
        let february =
            Slide::of(Period::Month, Period::Month.window(NOON / 1_000 + 86_400), NOON + 86_400_000);
        assert_eq!(february.length, 29 * 86_400_000);
    }

    #[test]
    fn a_client_that_waits_for_retry_after_is_admitted_and_not_much_earlier() {
        let limit = Limit::new(Period::Minute, 10.0);
        for (current, previous, into) in
            [(0, 10, 0), (4, 10, 20_000), (9, 10, 5_500), (10, 0, 59_000), (10, 10, 100), (3, 1_000, 30_000)]
        {
            let slide = Slide { left: 60_000 - into, length: 60_000 };
            let wait = u64::from(slide.wait(&limit, current, previous)) * 1_000;
            let used = |at: u64| match at.checked_sub(60_000) {
                None => current + Slide { left: 60_000 - at, length: 60_000 }.carried(previous),
                Some(at) => Slide { left: 60_000 - at, length: 60_000 }.carried(current),
            };
            assert!(used(into + wait) < 10, "{current} {previous} {into}: {wait}");
            assert!(wait == 1_000 || used(into + wait - 1_000) >= 10, "{current} {previous} {into}: {wait}");
        }
    }
}

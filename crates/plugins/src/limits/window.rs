//! Periods and their windows: which second, minute, hour, day, month or year of UTC contains a time.

use std::time::{SystemTime, UNIX_EPOCH};

/// The periods of limits, shortest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Period {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
    /// A calendar month.
    Month,
    /// A calendar year.
    Year,
}

impl Period {
    pub(crate) const ALL: [Period; 6] =
        [Period::Second, Period::Minute, Period::Hour, Period::Day, Period::Month, Period::Year];

    /// The name in configurations.
    pub fn name(self) -> &'static str {
        ["second", "minute", "hour", "day", "month", "year"][self as usize]
    }

    /// The name of the header with the limit.
    pub(crate) fn limit_header(self) -> &'static str {
        [
            "X-RateLimit-Limit-Second",
            "X-RateLimit-Limit-Minute",
            "X-RateLimit-Limit-Hour",
            "X-RateLimit-Limit-Day",
            "X-RateLimit-Limit-Month",
            "X-RateLimit-Limit-Year",
        ][self as usize]
    }

    /// The name of the header with the remaining number.
    pub(crate) fn remaining_header(self) -> &'static str {
        [
            "X-RateLimit-Remaining-Second",
            "X-RateLimit-Remaining-Minute",
            "X-RateLimit-Remaining-Hour",
            "X-RateLimit-Remaining-Day",
            "X-RateLimit-Remaining-Month",
            "X-RateLimit-Remaining-Year",
        ][self as usize]
    }

    /// The nominal length in seconds, which clients see; Kong counts 30 days to a month and 365 to a year.
    pub(crate) fn nominal_seconds(self) -> u64 {
        [1, 60, 3_600, DAY, 30 * DAY, 365 * DAY][self as usize]
    }

    /// The number of the window that contains a Unix time in seconds. Consecutive windows have consecutive numbers.
    pub(crate) fn window(self, now: u64) -> u64 {
        match self {
            Period::Second => now,
            Period::Minute => now / 60,
            Period::Hour => now / 3_600,
            Period::Day => now / DAY,
            Period::Month => {
                let (year, month, _) = civil(now / DAY);
                year * 12 + (month - 1)
            }
            Period::Year => civil(now / DAY).0,
        }
    }

    /// How many seconds of its window have passed at a Unix time.
    fn elapsed(self, now: u64) -> u64 {
        let today = now % DAY;
        match self {
            Period::Second => 0,
            Period::Minute => now % 60,
            Period::Hour => now % 3_600,
            Period::Day => today,
            Period::Month => (civil(now / DAY).2 - 1) * DAY + today,
            Period::Year => {
                let day = now / DAY;
                (day - first_day(civil(day).0)) * DAY + today
            }
        }
    }

    /// When a window begins, in seconds since 1970: the inverse of [`window`](Self::window).
    pub(crate) fn starts(self, window: u64) -> u64 {
        match self {
            Period::Second => window,
            Period::Minute => window * 60,
            Period::Hour => window * 3_600,
            Period::Day => window * DAY,
            Period::Month => first_of_month(window / 12, window % 12 + 1) * DAY,
            Period::Year => first_day(window) * DAY,
        }
    }

    /// The seconds until the window ends, as clients see them: at least 1, by the nominal length.
    pub(crate) fn reset(self, now: u64) -> u64 {
        self.nominal_seconds().saturating_sub(self.elapsed(now)).max(1)
    }
}

const DAY: u64 = 86_400;

/// Seconds since 1970, by the wall clock.
pub(crate) fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The year, month (1 to 12) and day (1 to 31) of a number of days since 1970-01-01.
///
/// Years are counted from March, so that leap days fall on their ends, in eras of 400 years.
fn civil(days: u64) -> (u64, u64, u64) {
    let from_era = days + 719_468;
    let era = from_era / 146_097;
    let day_of_era = from_era % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Milliseconds since 1970, by the wall clock.
pub(crate) fn wall_clock_in_milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Days from 1970-01-01 to the first of a month (1 to 12).
fn first_of_month(year: u64, month: u64) -> u64 {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    first_day(year) + BEFORE[(month as usize - 1) % 12] + u64::from(is_leap && month > 2)
}

/// Days from 1970-01-01 to the first of January of a year from 1970 on.
fn first_day(year: u64) -> u64 {
    let before = year - 1;
    before * 365 + before / 4 - before / 100 + before / 400 - 719_162
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn leap(year: u64) -> bool {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    }

    /// The calendar by counting: (year, month, day, days since the first of January).
    fn counted(mut days: u64) -> (u64, u64, u64, u64) {
        let mut year = 1970;
        while days >= 365 + u64::from(leap(year)) {
            days -= 365 + u64::from(leap(year));
            year += 1;
        }
        let day_of_year = days;
        let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let mut month = 0;
        while days >= lengths[month] {
            days -= lengths[month];
            month += 1;
        }
        (year, month as u64 + 1, days + 1, day_of_year)
    }

    proptest! {
        #[test]
        fn the_calendar_is_that_of_counting(now in 0u64..16_725_225_600) {
            let (year, month, day, day_of_year) = counted(now / DAY);
            prop_assert_eq!(civil(now / DAY), (year, month, day));
            prop_assert_eq!(Period::Year.window(now), year);
            prop_assert_eq!(Period::Month.window(now), year * 12 + month - 1);
            prop_assert_eq!(Period::Month.elapsed(now), (day - 1) * DAY + now % DAY);
            prop_assert_eq!(Period::Year.elapsed(now), day_of_year * DAY + now % DAY);
        }

        #[test]
        fn a_window_began_when_its_elapsed_seconds_ago(now in 1u64..16_725_225_600) {
            for period in Period::ALL {
                let began = now - period.elapsed(now);
                prop_assert_eq!(period.window(began), period.window(now));
                prop_assert_eq!(period.elapsed(began), 0);
                prop_assert_eq!(period.starts(period.window(now)), began);
                if began > 0 {
                    prop_assert_eq!(period.window(began - 1) + 1, period.window(now));
                }
            }
        }
    }

    #[test]
    fn leap_days_and_ends_of_years() {
        // 2024-02-29T23:59:59Z, a second later, 2023-12-31T23:59:59Z, a second later
        let months =
            [1_709_251_199, 1_709_251_200, 1_704_067_199, 1_704_067_200].map(|t| Period::Month.window(t));
        assert_eq!(months, [2024 * 12 + 1, 2024 * 12 + 2, 2023 * 12 + 11, 2024 * 12]);
        assert_eq!([1_704_067_199, 1_704_067_200].map(|t| Period::Year.window(t)), [2023, 2024]);
    }

    #[test]
    fn resets_are_by_nominal_lengths() {
        // 2024-01-31T12:00:30Z
        let now = 1_706_702_430;
        let resets = Period::ALL.map(|period| period.reset(now));
        assert_eq!(resets, [1, 30, 3_570, 43_170, 1, 31_536_000 - 30 * DAY - 43_230]);
    }
}

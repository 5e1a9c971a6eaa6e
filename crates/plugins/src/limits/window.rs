//! Periods and their windows: which second, minute, hour, day, month or year of UTC contains a time.
use std::time::{SystemTime, UNIX_EPOCH};
use time::{Date, Month, OffsetDateTime};

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
                let date = date(now);
                year(date) * 12 + u64::from(u8::from(date.month())) - 1
            }
            Period::Year => year(date(now)),
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
            Period::Month => (u64::from(date(now).day()) - 1) * DAY + today,
            Period::Year => (u64::from(date(now).ordinal()) - 1) * DAY + today,
        }
    }

    /// When a window begins, in seconds since 1970: the inverse of [`window`](Self::window).
    pub(crate) fn starts(self, window: u64) -> u64 {
        match self {
            Period::Second => window,
            Period::Minute => window * 60,
            Period::Hour => window * 3_600,
            Period::Day => window * DAY,
            Period::Month => first_of_month(window / 12, Month::January.nth_next((window % 12) as u8)),
            Period::Year => first_of_month(window, Month::January),
        }
    }

    /// The seconds until the window ends, as clients see them: at least 1, by the nominal length.
    pub(crate) fn reset(self, now: u64) -> u64 {
        self.nominal_seconds().saturating_sub(self.elapsed(now)).max(1)
    }
}

const DAY: u64 = 86_400;

/// The Julian day of 1970-01-01.
const FIRST_DAY: i32 = OffsetDateTime::UNIX_EPOCH.to_julian_day();

/// Seconds since 1970, by the wall clock.
pub(crate) fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The day of UTC that contains a Unix time. The last day of the year 9999 has no end.
fn date(now: u64) -> Date {
    let day = i32::try_from(now / DAY).unwrap_or(i32::MAX);
    Date::from_julian_day(day.saturating_add(FIRST_DAY)).unwrap_or(Date::MAX)
}

/// The year, which is 1970 or later.
fn year(date: Date) -> u64 {
    date.year().unsigned_abs().into()
}

/// Milliseconds since 1970, by the wall clock.
pub(crate) fn wall_clock_in_milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// When a month of a year from 1970 on begins, in seconds since 1970.
fn first_of_month(year: u64, month: Month) -> u64 {
    let year = i32::try_from(year).unwrap_or(i32::MAX);
    let first = Date::from_calendar_date(year, month, 1).unwrap_or(Date::MAX);
    u64::from(first.to_julian_day().saturating_sub(FIRST_DAY).unsigned_abs()) * DAY
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

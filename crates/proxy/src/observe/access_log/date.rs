//! Times as text.

use std::time::{Duration, SystemTime};

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Times as nginx's `$time_local` in UTC, made once per second.
#[derive(Default)]
pub(super) struct Dates {
    second: u64,
    text: String,
}

impl Dates {
    pub(super) fn text(&mut self, time: SystemTime) -> &str {
        let second = since_epoch(time).as_secs();
        if second != self.second || self.text.is_empty() {
            self.second = second;
            self.text = time_local(second);
        }
        &self.text
    }
}

/// The time since 1970; earlier times count as that.
pub(super) fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn time_local(second: u64) -> String {
    let (days, rest) = (second / 86_400, second % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let month = MONTHS[month - 1];
    format!("{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000")
}

/// Year, month (1 to 12) and day of a number of days since 1970-01-01, in the Gregorian calendar.
///
/// Counts in eras of 400 years and in years that begin with March, so that the leap day comes last.
pub(super) fn civil(days: u64) -> (u64, usize, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day + 2) / 153;
    let day = day - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    (year, month as usize, day)
}

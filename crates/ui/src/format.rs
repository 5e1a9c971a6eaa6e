//! Figures and times as text.
use time::OffsetDateTime;

/// What is shown where there is no value.
pub(crate) const NONE: &str = "–";

/// A number with a thin space between thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Microseconds, in the unit that fits.
pub(crate) fn micros(micros: f64) -> String {
    match micros {
        _ if micros < 10.0 => format!("{micros:.1} µs"),
        _ if micros < 1_000.0 => format!("{micros:.0} µs"),
        _ if micros < 10_000.0 => format!("{:.1} ms", micros / 1e3),
        _ if micros < 1e6 => format!("{:.0} ms", micros / 1e3),
        _ => format!("{:.1} s", micros / 1e6),
    }
}

/// Seconds since 1970, in UTC; nothing for years of five digits.
pub(crate) fn time(seconds: i64) -> String {
    let Ok(time) = OffsetDateTime::from_unix_timestamp(seconds) else { return NONE.to_owned() };
    let (hour, minute, second) = time.to_hms();
    format!("{} {hour:02}:{minute:02}:{second:02} UTC", time.date())
}

/// The same to the minute.
pub(crate) fn minute(seconds: i64) -> String {
    time(seconds).get(..16).map_or(NONE.to_owned(), |minute| format!("{minute} UTC"))
}

/// A duration in the two largest units.
pub(crate) fn duration(seconds: i64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let first = units.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(units.len() - 1);
    let mut rest = seconds.max(0);
    let mut parts = Vec::new();
    for (unit, name) in units.iter().skip(first).take(2) {
        let number = rest / unit;
        rest %= unit;
        if number > 0 || parts.is_empty() {
            parts.push(format!("{number} {name}"));
        }
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_at_a_glance() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        for (value, text) in [(0.25, "0.2 µs"), (999.0, "999 µs"), (1_500.0, "1.5 ms"), (2.5e6, "2.5 s")] {
            assert_eq!(micros(value), text);
        }
    }

    #[test]
    fn times_and_durations() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_795_457_084, "2026-11-23 18:04:44 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
            (i64::MAX, NONE),
        ] {
            assert_eq!(time(seconds), text);
        }
        assert_eq!([minute(1_795_457_084), minute(i64::MAX)], ["2026-11-23 18:04 UTC", NONE]);
        for (seconds, text) in [(0, "0 s"), (59, "59 s"), (3_600, "1 h"), (90_061, "1 d 1 h"), (-5, "0 s")] {
            assert_eq!(duration(seconds), text);
        }
    }
}

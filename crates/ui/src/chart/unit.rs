//! What the numbers of a chart mean, and how they are written.
use crate::format::{count, micros};
use crate::texts;

/// The unit of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Requests in a second.
    PerSecond,
    /// A latency in seconds.
    Seconds,
    /// Bytes in a second.
    BytesPerSecond,
}

impl Unit {
    /// A value with its unit.
    pub(crate) fn text(self, value: f64) -> String {
        match self {
            Self::PerSecond => format!("{}/s", number(value)),
            Self::Seconds if value == 0.0 => "0".to_owned(),
            Self::Seconds => micros(value * 1e6),
            Self::BytesPerSecond => format!("{}/s", bytes(value)),
        }
    }

    /// What the axis shows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PerSecond => texts::of("chart.requests_per_second"),
            Self::Seconds => texts::of("chart.time_per_request"),
            Self::BytesPerSecond => texts::of("chart.bytes_per_second"),
        }
    }
}

/// A number with about three digits.
pub(crate) fn number(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0".to_owned(),
        _ if value < 0.01 => "<0.01".to_owned(),
        _ if value < 10.0 => trimmed(&format!("{value:.2}")),
        _ if value < 100.0 => trimmed(&format!("{value:.1}")),
        _ => count(value.round() as u64),
    }
}

/// A number of bytes in the unit that fits.
pub(crate) fn bytes(value: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let power = (1..units.len()).take_while(|power| value >= 1_000_f64.powi(*power as i32)).count();
    format!("{} {}", number(value / 1_000_f64.powi(power as i32)), units[power])
}

/// A share of one as a percentage.
pub(crate) fn share(part: f64, whole: f64) -> String {
    match part / whole {
        share if share.is_nan() => crate::format::NONE.to_owned(),
        0.0 => "0 %".to_owned(),
        share if share < 0.0001 => "<0.01 %".to_owned(),
        share if share < 0.1 => format!("{} %", trimmed(&format!("{:.2}", share * 100.0))),
        share => format!("{} %", trimmed(&format!("{:.1}", share * 100.0))),
    }
}

/// Without zeros at the end of its fraction.
fn trimmed(text: &str) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_a_unit_and_few_digits() {
        for (value, text) in
            [(0.0, "0"), (0.001, "<0.01"), (1.0, "1"), (2.345, "2.35"), (45.04, "45"), (612.4, "612")]
        {
            assert_eq!(number(value), text);
        }
        for (value, text) in
            [(999.0, "999 B"), (1_000.0, "1 kB"), (2.5e6, "2.5 MB"), (9e18, "9\u{202f}000\u{202f}000 TB")]
        {
            assert_eq!(bytes(value), text);
        }
        assert_eq!(
            (Unit::Seconds.text(0.0025), Unit::PerSecond.text(12.5)),
            ("2.5 ms".to_owned(), "12.5/s".to_owned())
        );
    }

    #[test]
    fn shares_tell_nothing_from_a_little() {
        for (part, text) in [(0.0, "0 %"), (1.0, "<0.01 %"), (1_000.0, "0.1 %"), (1_000_000.0, "100 %")] {
            assert_eq!(share(part, 1e6), text);
        }
        assert_eq!(share(0.0, 0.0), "–");
    }
}

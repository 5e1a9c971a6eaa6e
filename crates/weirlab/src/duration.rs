//! Durations as people write them.
use std::time::Duration;

/// Reads a number and its unit: `300us`, `5ms`, `1.5s`, `2m`, `1h`.
///
/// # Errors
/// When it is not a duration, with examples.
pub fn parse(text: &str) -> Result<Duration, String> {
    let units = [("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let read = || {
        let (number, seconds) =
            units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))?;
        Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
    };
    read().ok_or_else(|| {
        format!("`{text}` is no duration; write a number and its unit, such as 300us, 5ms, 1.5s or 2m")
    })
}

/// The same, but no time at all is refused.
///
/// # Errors
/// When it is not a duration, or nothing.
pub fn some(text: &str) -> Result<Duration, String> {
    let duration = parse(text)?;
    (!duration.is_zero())
        .then_some(duration)
        .ok_or_else(|| format!("`{text}` is no time; write more, such as 2s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_its_unit() {
        for (text, wanted) in [
            ("300us", Duration::from_micros(300)),
            ("250ms", Duration::from_millis(250)),
            ("1.5s", Duration::from_millis(1_500)),
            ("2m", Duration::from_secs(120)),
            ("1h", Duration::from_secs(3_600)),
            ("0s", Duration::ZERO),
        ] {
            assert_eq!(parse(text), Ok(wanted), "{text}");
        }
        for text in ["", "5", "5 ms", "-5ms", "ms", "1e400s", "5d"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn where_something_is_measured_no_time_is_refused() {
        assert_eq!(some("2s"), Ok(Duration::from_secs(2)));
        assert!(some("0s").unwrap_err().contains("no time"));
    }
}

//! Figures as text.

/// A number with at most `digits` significant digits: 14.4, 0.931, 12,300.
pub fn significant(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    // The magnitude of the rounded value: 9.996 has that of 10.0.
    let rounded = format!("{value:.*e}", digits.saturating_sub(1));
    let magnitude = rounded.rsplit_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0_i32);
    let decimals = usize::try_from(digits as i32 - 1 - magnitude).unwrap_or(0);
    if decimals == 0 { thousands(value) } else { format!("{value:.decimals$}").replace('-', "−") }
}

/// A figure without the zeros that end it: 50.0 ms becomes 50 ms.
pub(super) fn trimmed(text: &str) -> String {
    let (figure, unit) = text.split_once(' ').map_or((text, None), |(figure, unit)| (figure, Some(unit)));
    let figure =
        if figure.contains('.') { figure.trim_end_matches('0').trim_end_matches('.') } else { figure };
    unit.map_or(figure.to_owned(), |unit| format!("{figure} {unit}"))
}

/// A whole number with its thousands apart.
pub fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value <= -0.5 { format!("−{text}") } else { text }
}

/// A duration in milliseconds, in the unit that suits it.
pub fn latency(ms: f64) -> String {
    match ms {
        _ if !ms.is_finite() => "–".to_owned(),
        _ if ms < 0.9995 => format!("{} µs", significant(ms * 1e3, 3)),
        _ if ms < 999.5 => format!("{} ms", significant(ms, 3)),
        _ => format!("{} s", significant(ms / 1e3, 3)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_asked_for() {
        assert_eq!(significant(14.43, 3), "14.4");
        assert_eq!(significant(0.9312, 3), "0.931");
        assert_eq!(significant(12_345.6, 3), "12,346");
        assert_eq!(significant(999.96, 3), "1,000");
        assert_eq!(significant(9.996, 3), "10.0");
        assert_eq!(significant(-0.25, 2), "−0.25");
        assert_eq!(significant(0.0, 3), "0");
        assert_eq!(significant(f64::NAN, 3), "–");
        assert_eq!(thousands(-1_234_567.0), "−1,234,567");
    }

    #[test]
    fn zeros_that_say_nothing_are_left_out_of_ticks() {
        assert_eq!(trimmed("50.0 ms"), "50 ms");
        assert_eq!(trimmed("500 µs"), "500 µs");
        assert_eq!(trimmed("1,000"), "1,000");
        assert_eq!(trimmed("0.50"), "0.5");
    }

    #[test]
    fn a_latency_chooses_its_unit() {
        assert_eq!(latency(0.1234), "123 µs");
        assert_eq!(latency(1.0), "1.00 ms");
        assert_eq!(latency(0.9996), "1.00 ms");
        assert_eq!(latency(2_500.0), "2.50 s");
    }
}

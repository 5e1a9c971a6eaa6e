//! How the report writes figures and names, and which colour is whose.
use crate::chart::{self, significant};
use crate::result::Run;
use crate::stats;

/// The colours of targets, in turn; the floor alone is grey.
const IN_TURN: [usize; 7] = [0, 1, 2, 3, 4, 5, 7];
const FLOOR: usize = 6;

/// One colour per target throughout.
pub(super) struct Colours(Vec<String>);

impl Colours {
    pub(super) fn of(run: &Run) -> Colours {
        let mut labels: Vec<String> = Vec::new();
        for cell in &run.cells {
            if !cell.control && cell.target != "floor" && !labels.contains(&cell.target) {
                labels.push(cell.target.clone());
            }
        }
        Colours(labels)
    }

    /// The control has its baseline's.
    pub(super) fn of_target(&self, target: &str) -> usize {
        let name = target.strip_suffix(" (again)").unwrap_or(target);
        let place = self.0.iter().position(|label| label == name);
        place.map_or(FLOOR, |place| IN_TURN[place % IN_TURN.len()])
    }
}

/// For a chart: an interval with infinite ends is left out.
pub(super) fn drawn(estimate: stats::Estimate) -> chart::Estimate {
    let known = estimate.low.is_finite() && estimate.high.is_finite();
    chart::Estimate { value: estimate.value, interval: known.then_some((estimate.low, estimate.high)) }
}

/// An interval by itself.
pub(super) fn interval(estimate: stats::Estimate, write: impl Fn(f64) -> String) -> String {
    match drawn(estimate).interval {
        Some((low, high)) => format!("{}…{}", write(low), write(high)),
        None => "one sample".to_owned(),
    }
}

pub(super) fn micros(value: f64) -> String {
    format!("{} µs", significant(value, 3))
}

/// Two digits are all that a small increment deserves.
pub(super) fn added(value: f64) -> String {
    format!("{} µs", significant(value, if value.abs() < 10.0 { 2 } else { 3 }))
}

pub(super) fn ratio(value: f64) -> String {
    if value < 9.995 { format!("{value:.2}") } else { significant(value, 3) }
}

/// A share as a percentage, such as `1.2 %`; the space does not break.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1}\u{a0}%", share * 100.0)
}

/// Text as a part of a file's name.
pub(super) fn slug(text: &str) -> String {
    let letters = text
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' });
    let slug: String = letters.collect();
    let parts: Vec<&str> = slug.split('-').filter(|part| !part.is_empty()).collect();
    parts.join("-")
}

/// Names joined as in a sentence.
pub(super) fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_is_safe_in_a_file_name() {
        assert_eq!(slug("weir/response-size[bytes=1024] http"), "weir-response-size-bytes-1024-http");
        assert_eq!(slug("../<script>"), "script");
    }

    #[test]
    fn lists_read_as_sentences_do() {
        let list = |parts: &[&str]| list(&parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>());
        assert_eq!(list(&["a"]), "a");
        assert_eq!(list(&["a", "b", "c"]), "a, b and c");
    }

    #[test]
    fn one_sample_has_no_interval() {
        let estimate = stats::Estimate { value: 14.4, low: 0.0, high: f64::INFINITY, samples: 1 };
        assert_eq!(interval(estimate, ratio), "one sample");
        assert_eq!(drawn(estimate).interval, None);
    }
}

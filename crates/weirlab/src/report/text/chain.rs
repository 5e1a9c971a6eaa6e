//! The waterfall in a terminal.
use crate::result::{ChainCost, ChainPart};
use std::fmt::Write;

/// The width of all CPU time of a request.
const WIDTH: f64 = 32.0;

/// A line for each part, with a bar that begins where the one before it ends.
pub fn text(chain: &ChainCost) -> String {
    let mut text = String::new();
    // A String takes whatever is written to it.
    let _ = writeln!(
        text,
        "{}, {}, route {}: {} requests, {:.1} µs of CPU time each",
        chain.target, chain.case, chain.route, chain.requests, chain.cpu_us
    );
    let name = chain.parts.iter().map(|part| part.name.chars().count()).max().unwrap_or(0).max(6);
    let _ = writeln!(
        text,
        "{:<14}{:<name$}{:>11}{:>10}{:>10}{:>8}",
        "phase", "plugin", "mean µs", "p50", "p99", "CPU"
    );
    let mut before = 0.0;
    for part in &chain.parts {
        let _ = writeln!(text, "{}", line(part, name, before).trim_end());
        before += part.cpu_share.unwrap_or(0.0);
    }
    if let Some(why) = chain.crowded() {
        let _ = writeln!(text, "{why}");
    }
    text
}

fn line(part: &ChainPart, name: usize, before: f64) -> String {
    let micros = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
    let share = part.cpu_share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0));
    let bar = part.cpu_share.map(|share| bar(before, share)).unwrap_or_default();
    format!(
        "{:<14}{:<name$}{:>11}{:>10}{:>10}{share:>8}  {bar}",
        part.phase,
        part.name,
        micros(Some(part.mean_us)),
        micros(part.p50_us),
        micros(part.p99_us),
    )
}

fn bar(before: f64, share: f64) -> String {
    let column = |share: f64| (share.clamp(0.0, 1.0) * WIDTH).round() as usize;
    let (from, to) = (column(before), column(before + share));
    let drawn = if from == to { "▏".to_owned() } else { "█".repeat(to - from) };
    format!("{}{drawn}", " ".repeat(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_follow_each_other_and_none_vanishes() {
        assert_eq!(bar(0.0, 0.5), "█".repeat(16));
        assert_eq!(bar(0.5, 0.5), format!("{}{}", " ".repeat(16), "█".repeat(16)));
        assert_eq!(bar(0.5, 0.001), format!("{}▏", " ".repeat(16)));
    }
}

//! A series in the height of a line of text.
use super::number;
use crate::texts;
use maud::{Markup, html};
use serde_json::Value;
use std::fmt::Write;

const WIDTH: f64 = 90.0;
const HEIGHT: f64 = 22.0;

/// Counts of equal parts of a frame.
pub(crate) fn sparkline(counts: &Value, of: &str) -> Markup {
    let counts: Vec<f64> = counts.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    let most = counts.iter().copied().fold(0.0, f64::max);
    let last = counts.last().copied().unwrap_or(0.0);
    let parts = counts.len();
    let [most_text, last] = [most, last].map(number);
    let words = texts::filled(
        "chart.sparkline",
        &[("of", &of), ("parts", &parts), ("most", &most_text), ("last", &last)],
    );
    html! {
        svg.spark viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(words) {
            path.base d={ "M0 " (HEIGHT - 0.5) "H" (WIDTH) } {}
            path.bars d=(bars(&counts, most)) {}
        }
    }
}

/// A bar for each part that has any; even the lowest can be seen.
fn bars(counts: &[f64], most: f64) -> String {
    let width = WIDTH / counts.len().max(1) as f64;
    let mut path = String::new();
    for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
        let height = (count / most * (HEIGHT - 2.0)).max(1.5);
        let _ = write!(
            path,
            "M{:.1} {}v-{height:.1}h{:.1}V{}z",
            index as f64 * width,
            HEIGHT,
            width - 0.5,
            HEIGHT
        );
    }
    path
}

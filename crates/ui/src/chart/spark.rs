//! A series in the height of a line of text.
use super::number;
use crate::texts;
use maud::{Markup, html};
use serde_json::Value;
use std::fmt::{Display, Write};

const WIDTH: f64 = 90.0;
const HEIGHT: f64 = 22.0;

/// Counts of equal parts of a frame; what is no count is not known.
pub(crate) fn sparkline(counts: &Value, of: &str) -> Markup {
    let counts: Vec<Option<f64>> = counts.as_array().into_iter().flatten().map(Value::as_f64).collect();
    let most = counts.iter().copied().flatten().fold(0.0, f64::max);
    html! {
        svg.spark viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(words(&counts, most, of)) {
            @let unknown = unknown(&counts);
            @if !unknown.is_empty() { path.unknown d=(unknown) {} }
            path.base d={ "M0 " (HEIGHT - 0.5) "H" (WIDTH) } {}
            path.bars d=(bars(&counts, most)) {}
        }
    }
}

fn words(counts: &[Option<f64>], most: f64, of: &str) -> String {
    let last = counts.iter().rev().copied().flatten().next().unwrap_or(0.0);
    let unknown = counts.iter().filter(|count| count.is_none()).count();
    let [most, last] = [most, last].map(number);
    let parts = counts.len();
    let values: [(&str, &dyn Display); 4] =
        [("of", &of), ("parts", &parts), ("most", &most), ("last", &last)];
    let mut words = texts::filled("chart.sparkline", &values);
    if unknown > 0 {
        words += &texts::filled("chart.sparkline_unknown", &[("count", &unknown)]);
    }
    words
}

/// A bar for each part that has any; even the lowest can be seen.
fn bars(counts: &[Option<f64>], most: f64) -> String {
    let width = WIDTH / counts.len().max(1) as f64;
    let mut path = String::new();
    for (index, count) in counts.iter().enumerate() {
        let Some(count) = count.filter(|count| *count > 0.0) else { continue };
        let height = (count / most * (HEIGHT - 2.0)).max(1.5);
        let left = index as f64 * width;
        let _ = write!(path, "M{left:.1} {HEIGHT}v-{height:.1}h{:.1}V{HEIGHT}z", width - 0.5);
    }
    path
}

/// A ground behind each row of parts that are not known.
fn unknown(counts: &[Option<f64>]) -> String {
    let width = WIDTH / counts.len().max(1) as f64;
    let mut path = String::new();
    let mut left = 0.0;
    for parts in counts.chunk_by(|a, b| a.is_none() == b.is_none()) {
        let right = left + parts.len() as f64 * width;
        if parts[0].is_none() {
            let _ = write!(path, "M{left:.1} 0H{right:.1}V{HEIGHT}H{left:.1}z");
        }
        left = right;
    }
    path
}

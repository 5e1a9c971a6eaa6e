//! Series as lines, or as areas upon each other.
use super::scale::Scale;
use super::{Chart, Shape, Unit};
use maud::{Markup, html};
use std::fmt::Write;

/// The highest value that the chart has to show.
pub(super) fn highest(chart: &Chart<'_>) -> f64 {
    let values =
        |index: usize| chart.lines.iter().filter_map(move |line| line.values.get(index).copied().flatten());
    let tops = (0..chart.times.len()).map(|index| match chart.shape {
        Shape::Lines => values(index).fold(0.0, f64::max),
        Shape::Stacked => values(index).sum(),
    });
    tops.fold(0.0, f64::max)
}

/// Where an interval begins and ends, within the frame.
fn ends(chart: &Chart<'_>, time: &Scale, index: usize) -> (f64, f64) {
    let start = chart.times[index];
    (time.place(start as f64), time.place((start + chart.step) as f64))
}

/// The intervals between known ones of which no count is known. A latency without a value is one without requests.
pub(super) fn gaps(chart: &Chart<'_>) -> Vec<(u64, u64)> {
    let is_known =
        |index: &usize| chart.lines.iter().any(|line| line.values.get(*index).is_some_and(Option::is_some));
    let known: Vec<_> = (0..chart.times.len()).filter(is_known).collect();
    let apart = known.windows(2).filter(|pair| pair[1] - pair[0] > 1 && chart.unit != Unit::Seconds);
    apart.map(|pair| (chart.times[pair[0]] + chart.step, chart.times[pair[1]])).collect()
}

pub(super) fn drawn(chart: &Chart<'_>, time: &Scale, value: &Scale) -> Markup {
    html! {
        @for line in &chart.lines {
            path.line.(line.class) d=(line_path(chart, &line.values, time, value)) {}
        }
    }
}

/// A line through the middles of intervals, broken where nothing is known. A point between gaps is a dash.
fn line_path(chart: &Chart<'_>, values: &[Option<f64>], time: &Scale, value: &Scale) -> String {
    let (mut path, mut is_open) = (String::new(), false);
    for (index, point) in values.iter().enumerate().take(chart.times.len()) {
        let Some(point) = point else {
            is_open = false;
            continue;
        };
        let (start, end) = ends(chart, time, index);
        let y = value.place(*point);
        let is_alone = !is_open && values.get(index + 1).is_none_or(Option::is_none);
        let _ = match (is_open, is_alone) {
            (true, _) => write!(path, "L{:.1} {y}", (start + end) / 2.0),
            (false, true) => write!(path, "M{start:.1} {y}H{:.1}", end.max(start + 2.0)),
            (false, false) => write!(path, "M{:.1} {y}", (start + end) / 2.0),
        };
        is_open = true;
    }
    path
}

pub(super) fn stacked(chart: &Chart<'_>, time: &Scale, value: &Scale) -> Markup {
    let mut below = vec![0.0; chart.times.len()];
    html! {
        @for line in &chart.lines {
            @let path = area_path(chart, &line.values, &mut below, time, value);
            @if !path.is_empty() { path.area.(line.class) d=(path) {} }
        }
    }
}

/// An area of steps upon what is below, to which it is added.
fn area_path(
    chart: &Chart<'_>,
    values: &[Option<f64>],
    below: &mut [f64],
    time: &Scale,
    value: &Scale,
) -> String {
    let mut path = String::new();
    let mut run = Vec::new();
    for (index, below) in below.iter_mut().enumerate() {
        match values.get(index).copied().flatten().filter(|value| *value > 0.0) {
            Some(height) => {
                let bottom = *below;
                *below += height;
                run.push((ends(chart, time, index), value.place(bottom), value.place(*below)));
            }
            None => close(&mut path, &mut run),
        }
    }
    close(&mut path, &mut run);
    path
}

/// Its ends, its bottom and its top.
type Step = ((f64, f64), f64, f64);

/// Draws steps without a gap between them as one area.
fn close(path: &mut String, run: &mut Vec<Step>) {
    let Some(((start, _), bottom, _)) = run.first().copied() else { return };
    let _ = write!(path, "M{start} {bottom}");
    for ((_, end), _, top) in run.iter() {
        let _ = write!(path, "V{top}H{end}");
    }
    for ((start, _), bottom, _) in run.iter().rev() {
        let _ = write!(path, "V{bottom}H{start}");
    }
    path.push('Z');
    run.clear();
}

//! The trend of a case on a machine.
use super::{Entry, date, machine, minute};
use crate::analysis::Summary;
use crate::chart::{self, Axis, Line, Lines, Point, significant, thousands};
use crate::stats::Estimate;
use serde::Serialize;

/// A case on a machine, over all runs that have it.
#[derive(Serialize)]
pub(super) struct Trend {
    pub(super) case: String,
    pub(super) machine: String,
    pub(super) charts: Vec<Picture>,
}

/// A chart of a trend.
#[derive(Serialize)]
pub(super) struct Picture {
    pub(super) name: String,
    title: String,
    inline: String,
    pub(super) standalone: String,
}

/// What is drawn of each case.
struct Quantity {
    /// The stem of the files' names.
    name: &'static str,
    unit: &'static str,
    of: fn(&Summary) -> Option<Estimate>,
    write: fn(f64) -> String,
}

const QUANTITIES: [Quantity; 2] = [
    Quantity {
        name: "cpu",
        unit: "CPU µs per request",
        of: |summary| summary.cpu_us,
        write: |value| significant(value, 3),
    },
    Quantity { name: "rps", unit: "requests per second", of: |summary| summary.rps, write: thousands },
];

/// A trend for each case and machine, in the order of their first run.
pub(super) fn all(entries: &[Entry]) -> Vec<Trend> {
    let mut kinds: Vec<(String, String)> = Vec::new();
    for entry in entries {
        for case in &entry.analysis.cases {
            let kind = (case.case.name.clone(), machine(&entry.run));
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    let trends = kinds.into_iter().enumerate().map(|(index, (case, machine))| {
        let series = series(entries, &case, &machine);
        let draw = |quantity| draw(&series, &case, quantity, index);
        let charts = QUANTITIES.iter().filter_map(draw).collect();
        Trend { case, machine, charts }
    });
    trends.filter(|trend| !trend.charts.is_empty()).collect()
}

/// The runs on one machine that measured a case.
fn series<'a>(entries: &'a [Entry], case: &str, on: &str) -> Vec<&'a Entry> {
    let measured = |entry: &&Entry| {
        let case = entry.analysis.case(case);
        case.is_some_and(|case| case.cells.iter().any(|cell| cell.summary.is_some()))
    };
    entries.iter().filter(|entry| machine(&entry.run) == on).filter(measured).collect()
}

/// One quantity of a case over its runs; none where no run measured it.
fn draw(series: &[&Entry], case: &str, quantity: &Quantity, index: usize) -> Option<Picture> {
    let lines = targets(series, case).into_iter().enumerate();
    let lines: Vec<Line> = lines
        .map(|(colour, target)| Line {
            label: target.to_owned(),
            colour,
            points: points(series, case, target, quantity.of),
        })
        .filter(|line| !line.points.is_empty())
        .collect();
    if lines.is_empty() {
        return None;
    }
    let values = lines.iter().flat_map(|line| &line.points).map(|point| point.y);
    let highest = values.map(|y| y.interval.map_or(y.value, |(_, high)| high));
    let chart = Lines {
        name: format!("trend-{index}-{}", quantity.name),
        title: format!("{}: {case}", quantity.unit),
        across: Axis::categories("run; ◆ a new version", labels(series)),
        up: Axis::from_zero(quantity.unit, highest),
        lines: lines.clone(),
        level: None,
        write: quantity.write,
    }
    .draw();
    let (inline, standalone) = (chart.inline(), chart.standalone());
    Some(Picture { name: chart.name, title: chart.title, inline, standalone })
}

/// The targets of a case in the order in which runs have them, without controls.
fn targets<'a>(series: &[&'a Entry], case: &str) -> Vec<&'a str> {
    let mut targets: Vec<&str> = Vec::new();
    let cases = series.iter().filter_map(|entry| entry.analysis.case(case));
    for cell in cases.flat_map(|case| &case.cells).filter(|cell| !cell.control) {
        if !targets.contains(&cell.target.as_str()) {
            targets.push(&cell.target);
        }
    }
    targets
}

fn points(series: &[&Entry], case: &str, target: &str, of: fn(&Summary) -> Option<Estimate>) -> Vec<Point> {
    let point = |(place, entry): (usize, &&Entry)| {
        let figure = of(entry.analysis.case(case)?.cell(target)?.summary.as_ref()?)?;
        let bounded = figure.low.is_finite() && figure.high.is_finite();
        let interval = bounded.then_some((figure.low, figure.high));
        let y = chart::Estimate { value: figure.value, interval };
        Some(Point { x: place as f64, at: entry.run.id.clone(), y })
    };
    series.iter().enumerate().filter_map(point).collect()
}

/// When the runs of a series were, each with the version if it is not that of the run before: `2026-11-22 ◆ weir 0.1.0`.
fn labels(series: &[&Entry]) -> Vec<String> {
    let mut last = "";
    let mut labels = Vec::new();
    for (place, entry) in series.iter().enumerate() {
        let (when, version) = (when(series, place), entry.version.as_str());
        let changed = !version.is_empty() && version != last;
        labels.push(if changed { format!("{when} ◆ {version}") } else { when });
        last = version;
    }
    labels
}

/// The day of a run, with the time where it has several runs; the time alone for those after its first.
fn when(series: &[&Entry], place: usize) -> String {
    let day = date(&series[place].run);
    let is_same = |entry: &&Entry| date(&entry.run) == day;
    let time = minute(&series[place].run);
    match series[..place].last().is_some_and(is_same) {
        true => time[day.len()..].trim().to_owned(),
        false if series[place + 1..].first().is_some_and(is_same) => time,
        false => day,
    }
}

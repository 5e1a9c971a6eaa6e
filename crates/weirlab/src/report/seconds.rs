//! Each second of the last round, as the gateway's own analytics saw it: all scenarios on one line of time.
use super::words::slug;
use crate::chart::{Axis, Chart, Estimate, Kind, Line, Lines, Point, latency, thousands};
use crate::result::{Block, Case, Run, Second};

/// What is drawn of a second.
struct Quantity {
    name: &'static str,
    unit: &'static str,
    write: fn(f64) -> String,
    of: fn(&Second) -> Option<f64>,
}

const QUANTITIES: [Quantity; 2] = [
    Quantity {
        name: "rps",
        unit: "requests per second",
        write: thousands,
        of: |second| Some(second.requests_per_second),
    },
    Quantity { name: "p99", unit: "p99 in ms", write: latency, of: |second| second.p99_ms },
];

/// Two charts for each target that has analytics.
pub(super) fn charts(run: &Run) -> Vec<Chart> {
    let mut targets: Vec<&str> = Vec::new();
    for cell in run.cells.iter().filter(|cell| !cell.control) {
        if !targets.contains(&cell.target.as_str()) {
            targets.push(&cell.target);
        }
    }
    let of = |target: &str| {
        QUANTITIES.iter().filter_map(|quantity| chart(run, target, quantity)).collect::<Vec<_>>()
    };
    targets.into_iter().flat_map(of).collect()
}

fn chart(run: &Run, target: &str, quantity: &Quantity) -> Option<Chart> {
    let blocks = last_round(run, target);
    let start =
        blocks.iter().flat_map(|(_, block)| &block.seconds).map(|second| second.at_s).reduce(f64::min)?;
    let mut lines: Vec<Line> = Vec::new();
    let mut scenarios: Vec<&str> = Vec::new();
    for (case, block) in blocks {
        let known = scenarios.iter().position(|scenario| *scenario == case.scenario);
        let colour = known.unwrap_or(scenarios.len());
        if known.is_none() {
            scenarios.push(&case.scenario);
        }
        let point = |second: &Second| {
            let y = Estimate { value: (quantity.of)(second)?, interval: None };
            Some(Point { x: second.at_s - start, at: case.name.clone(), y })
        };
        // The scenario is in the legend once.
        let label = known.map_or_else(|| case.scenario.clone(), |_| String::new());
        lines.push(Line { label, colour, points: block.seconds.iter().filter_map(point).collect() });
    }
    let points = || lines.iter().flat_map(|line| &line.points);
    let last = points().map(|point| point.x).reduce(f64::max).filter(|last| *last > 0.0)?;
    let chart = Lines {
        name: slug(&format!("seconds {} {target}", quantity.name)),
        title: format!("{} each second, as {target} counted: the last round", quantity.unit),
        across: across(last),
        up: Axis::from_zero(quantity.unit, points().map(|point| point.y.value)),
        lines: lines.clone(),
        level: None,
        write: quantity.write,
    };
    Some(chart.draw())
}

/// The blocks of a target in the last round that has some with seconds, in the order of time.
fn last_round<'a>(run: &'a Run, target: &str) -> Vec<(&'a Case, &'a Block)> {
    let cells = run.cells.iter().filter(|cell| cell.target == target);
    let all = cells.flat_map(|cell| {
        let case = run.cases.iter().find(|case| case.name == cell.case);
        cell.blocks.iter().filter_map(move |block| Some((case?, block)))
    });
    let seen: Vec<_> = all.filter(|(_, block)| !block.seconds.is_empty()).collect();
    let last = seen.iter().map(|(_, block)| block.round).max();
    let mut blocks: Vec<_> = seen.into_iter().filter(|(_, block)| Some(block.round) == last).collect();
    blocks.sort_by(|(_, a), (_, b)| a.at_s.total_cmp(&b.at_s));
    blocks
}

fn across(last: f64) -> Axis {
    let ticks = (0..=4).map(|quarter| (last * f64::from(quarter) / 4.0).round());
    let mut ticks: Vec<f64> = ticks.collect();
    ticks.dedup();
    let named = ticks.into_iter().map(|value| (value, thousands(value))).collect();
    Axis::named("seconds", Kind::Linear, named).reaching(last)
}

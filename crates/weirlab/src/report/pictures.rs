//! Charts of single cases, and the ratios of a family of cases.
use super::answer::Family;
use super::words::{Colours, drawn, micros, percent, slug};
use crate::analysis::{Analysis, CaseAnalysis, CellAnalysis, Summary};
use crate::chart::{Axis, Bar, Bars, Chart, Estimate, Forest, Group, Kind, Line, Lines, Part, Point, Row};
use crate::chart::{latency, thousands};
use serde::Serialize;

/// A chart on the page.
#[derive(Serialize)]
pub(super) struct Picture {
    title: String,
    file: String,
    svg: String,
}

/// Charts by the names of their files.
#[derive(Default)]
pub(super) struct Album(pub(super) Vec<(String, String)>);

impl Album {
    /// Keeps the chart as a file of its own, and gives it for the page.
    pub(super) fn add(&mut self, chart: &Chart) -> Picture {
        self.0.push((chart.name.clone(), chart.standalone()));
        let file = format!("{}/{}.svg", super::CHARTS, chart.name);
        Picture { title: chart.title.clone(), file, svg: chart.inline() }
    }
}

/// The quantiles of a latency curve.
const QUANTILES: [f64; 8] = [0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999];

/// Ratios of CPU per request to the baseline, with the A/A control's noise.
pub(super) fn forest(family: &Family<'_>, analysis: &Analysis, colours: &Colours) -> Option<Chart> {
    let baseline = &analysis.baseline;
    let groups: Vec<Group> = family.cases.iter().map(|case| group(case, baseline, colours)).collect();
    let groups: Vec<Group> = groups.into_iter().filter(|group| !group.rows.is_empty()).collect();
    if groups.is_empty() {
        return None;
    }
    let chart = Forest {
        name: slug(&format!("ratios {}", family.name)),
        title: format!("CPU per request as a ratio to {baseline}: {}", family.name),
        sides: ("less CPU".to_owned(), format!("more CPU than {baseline}")),
        groups,
    };
    Some(chart.draw())
}

fn group(case: &CaseAnalysis, baseline: &str, colours: &Colours) -> Group {
    let rows = case.cells.iter().filter_map(|cell| {
        let ratio = drawn(cell.ratio_to(baseline)?.cpu?.ratio);
        Some(Row { label: cell.target.clone(), colour: colours.of_target(&cell.target), ratio })
    });
    let floor = 1.0 + case.noise.floor;
    let judged = case.noise.is_judged();
    let heading = match judged {
        true => format!("{}   ±{}", case.case.name, percent(case.noise.floor)),
        false => case.case.name.clone(),
    };
    Group {
        heading,
        noise: case.noise.control.filter(|_| judged).map(|_| (1.0 / floor, floor)),
        rows: rows.collect(),
    }
}

/// Cost, rate and latency of a case.
pub(super) fn of_case(case: &CaseAnalysis, colours: &Colours) -> Vec<Chart> {
    let cells: Vec<(&CellAnalysis, &Summary)> =
        case.cells.iter().filter_map(|cell| Some((cell, cell.summary.as_ref()?))).collect();
    [cpu(case, &cells, colours), rate(case, &cells, colours), quantiles(case, &cells, colours)]
        .into_iter()
        .flatten()
        .collect()
}

fn cpu(case: &CaseAnalysis, cells: &[(&CellAnalysis, &Summary)], colours: &Colours) -> Option<Chart> {
    let floor = case.cell("floor").and_then(|cell| cell.summary.as_ref()?.cpu_us);
    let bars = cells.iter().filter_map(|(cell, summary)| {
        let parts = [("user", summary.user_us), ("system", summary.system_us)];
        Some(Bar {
            label: cell.target.clone(),
            colour: colours.of_target(&cell.target),
            estimate: drawn(summary.cpu_us?),
            parts: parts.map(|(label, value)| Part { label, value }).to_vec(),
        })
    });
    let chart = Bars {
        name: slug(&format!("cpu {}", case.case.name)),
        title: format!("CPU per request: {}", case.case.name),
        axis: "CPU µs per request".to_owned(),
        bars: bars.collect(),
        level: floor.map(|floor| (floor.value, format!("floor {}", micros(floor.value)))),
        write: micros,
    };
    (!chart.bars.is_empty()).then(|| chart.draw())
}

fn rate(case: &CaseAnalysis, cells: &[(&CellAnalysis, &Summary)], colours: &Colours) -> Option<Chart> {
    let bars = cells.iter().filter_map(|(cell, summary)| {
        let (label, colour) = (cell.target.clone(), colours.of_target(&cell.target));
        Some(Bar { label, colour, estimate: drawn(summary.rps?), parts: Vec::new() })
    });
    let chart = Bars {
        name: slug(&format!("rps {}", case.case.name)),
        title: format!("Requests per second: {}", case.case.name),
        axis: "right answers per second".to_owned(),
        bars: bars.collect(),
        level: None,
        write: thousands,
    };
    (!chart.bars.is_empty()).then(|| chart.draw())
}

fn quantiles(case: &CaseAnalysis, cells: &[(&CellAnalysis, &Summary)], colours: &Colours) -> Option<Chart> {
    let lines: Vec<Line> = cells
        .iter()
        .filter(|(cell, _)| !cell.control)
        .map(|(cell, summary)| Line {
            label: cell.target.clone(),
            colour: colours.of_target(&cell.target),
            points: QUANTILES.iter().filter_map(|q| quantile(summary, *q)).collect(),
        })
        .collect();
    let lines: Vec<Line> = lines.into_iter().filter(|line| !line.points.is_empty()).collect();
    let known = |q: &&f64| lines.iter().flat_map(|line| &line.points).any(|point| point.x == depth(**q));
    let ticks: Vec<(f64, String)> = QUANTILES.iter().filter(known).map(|q| (depth(*q), named(*q))).collect();
    let all = lines.iter().flat_map(|line| &line.points).map(|point| point.y.value);
    let chart = Lines {
        name: slug(&format!("latency {}", case.case.name)),
        title: format!("Latency by quantile: {}", case.case.name),
        across: Axis::named("quantile, %", Kind::Linear, ticks),
        up: Axis::around("latency", Kind::Log, all).with_names(latency),
        lines,
        level: None,
        write: latency,
    };
    (!chart.lines.is_empty()).then(|| chart.draw())
}

/// Each nine takes the same room.
fn depth(q: f64) -> f64 {
    -(1.0 - q).log10()
}

fn named(q: f64) -> String {
    format!("{}", (q * 1e5).round() / 1e3)
}

fn quantile(summary: &Summary, q: f64) -> Option<Point> {
    let value = summary.latencies.shown().quantile(q)?.as_secs_f64() * 1e3;
    Some(Point { x: depth(q), at: format!("p{}", named(q)), y: Estimate { value, interval: None } })
}

//! Joined runs as one self-contained page.
use super::text::{NOTES, header, parts, row};
use super::{Join, JoinedCase, JoinedCell, Machine};
use crate::chart::{
    self, Axis, COLOUR_VARIABLES, Chart, Kind, Line, Lines, Point, STYLE, latency, significant, thousands,
};
use crate::report::ReportError;
use crate::result::store::RunFolder;
use crate::stats::Estimate;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde::Serialize;
use std::path::Path;

/// A case, as the page shows it.
#[derive(Serialize)]
struct CaseRows {
    name: String,
    rows: Vec<Vec<String>>,
    parts: Vec<[String; 2]>,
}

#[derive(Serialize)]
struct Picture {
    name: String,
    title: String,
    inline: String,
}

/// What is drawn of each cell.
struct Quantity {
    name: &'static str,
    unit: String,
    write: fn(f64) -> String,
    of: fn(&JoinedCell) -> Option<chart::Estimate>,
}

/// Writes `index.html`, `join.json` and the charts into a folder.
///
/// # Errors
/// When they cannot be written.
pub fn write(join: &Join, out: &Path) -> Result<(), ReportError> {
    let charts = charts(join);
    let folder = RunFolder::create(out, "")?;
    let place = RunFolder::create(out, "charts")?;
    for chart in &charts {
        place.write(&format!("{}.svg", chart.name), chart.standalone().as_bytes())?;
    }
    let json = serde_json::to_vec_pretty(join).unwrap_or_default();
    folder.write("join.json", &json)?;
    folder.write("index.html", page(join, &charts)?.as_bytes())?;
    Ok(())
}

fn page(join: &Join, charts: &[Chart]) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_template("index.html", include_str!("page.html"))?;
    let style = format!("{COLOUR_VARIABLES}{}{STYLE}", include_str!("../report/page.css"));
    let machines: Vec<&Machine> = join.machines.iter().collect();
    let picture = |chart: &Chart| Picture {
        name: chart.name.clone(),
        title: chart.title.clone(),
        inline: chart.inline(),
    };
    environment.get_template("index.html")?.render(context! {
        style,
        header => header(join),
        machines => Serde(machines),
        currency => join.currency.clone(),
        cases => Serde(join.cases.iter().map(|case| rows(join, case)).collect::<Vec<_>>()),
        charts => Serde(charts.iter().map(picture).collect::<Vec<_>>()),
        notes => NOTES.to_vec(),
    })
}

fn rows(join: &Join, case: &JoinedCase) -> CaseRows {
    let several = join.has_several_targets();
    CaseRows {
        name: case.name.clone(),
        rows: case.cells.iter().map(|cell| row(join, cell)).collect(),
        parts: case.cells.iter().map(|cell| [cell.label(several), parts(cell)]).collect(),
    }
}

/// Along the axis of each sweep; for cases without one, side by side.
fn charts(join: &Join) -> Vec<Chart> {
    let mut kinds: Vec<(&str, &str, Option<&str>)> = Vec::new();
    for case in &join.cases {
        let kind =
            (case.scenario.as_str(), case.scheme.as_str(), case.axis.as_ref().map(|axis| axis.name.as_str()));
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let quantities = quantities(join);
    let mut charts = Vec::new();
    for (index, kind) in kinds.into_iter().enumerate() {
        let is = |case: &&JoinedCase| {
            (case.scenario.as_str(), case.scheme.as_str(), case.axis.as_ref().map(|axis| axis.name.as_str()))
                == kind
        };
        let cases: Vec<&JoinedCase> = join.cases.iter().filter(is).collect();
        charts.extend(quantities.iter().filter_map(|quantity| draw(join, &cases, quantity, index)));
    }
    charts
}

fn quantities(join: &Join) -> Vec<Quantity> {
    let quantity = |name, unit: &str, write, of| Quantity { name, unit: unit.to_owned(), write, of };
    let mut all = vec![
        quantity("rps", "requests per second", thousands, |cell| cell.rps.map(drawn)),
        quantity("p99", "p99 in ms", latency, |cell| {
            cell.p99_ms.map(|value| chart::Estimate { value, interval: None })
        }),
        quantity("per-core", "requests per second and core", thousands, |cell| cell.rps_per_core.map(drawn)),
        quantity("scale-out", "efficiency of scale-out", two_digits, |cell| cell.efficiency.map(drawn)),
    ];
    let cost = join.currency.as_ref().map(|currency| format!("{currency} per million requests"));
    all.extend(cost.map(|unit| quantity("cost", &unit, three_digits, |cell| cell.cost.map(drawn))));
    all
}

fn two_digits(value: f64) -> String {
    format!("{value:.2}")
}

fn three_digits(value: f64) -> String {
    significant(value, 3)
}

fn drawn(estimate: Estimate) -> chart::Estimate {
    let known = estimate.low.is_finite() && estimate.high.is_finite();
    chart::Estimate { value: estimate.value, interval: known.then_some((estimate.low, estimate.high)) }
}

/// One quantity, a line for each machine; none where no cell has it.
fn draw(join: &Join, cases: &[&JoinedCase], quantity: &Quantity, index: usize) -> Option<Chart> {
    let several = join.has_several_targets();
    let mut lines: Vec<Line> = Vec::new();
    for (place, case) in cases.iter().enumerate() {
        for cell in &case.cells {
            let Some(y) = (quantity.of)(cell) else { continue };
            let x = case.axis.as_ref().map_or(place as f64, |axis| axis.value);
            line(&mut lines, cell.label(several)).points.push(Point { x, at: case.name.clone(), y });
        }
    }
    let first = cases.first().filter(|_| !lines.is_empty())?;
    for line in &mut lines {
        line.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    let highest = lines.iter().flat_map(|line| &line.points);
    let highest = highest.map(|point| point.y.interval.map_or(point.y.value, |(_, high)| high));
    let by = first.axis.as_ref().map_or(String::new(), |axis| format!(" by {}", axis.name));
    let chart = Lines {
        name: format!("{index}-{}", quantity.name),
        title: format!("{}{by}: {} {}", quantity.unit, first.scenario, first.scheme),
        across: across(cases),
        up: Axis::from_zero(&quantity.unit, highest),
        lines: lines.clone(),
        level: None,
        write: quantity.write,
    };
    Some(chart.draw())
}

fn line(lines: &mut Vec<Line>, label: String) -> &mut Line {
    let index = lines.iter().position(|line| line.label == label).unwrap_or_else(|| {
        lines.push(Line { label, colour: lines.len(), points: Vec::new() });
        lines.len() - 1
    });
    &mut lines[index]
}

fn across(cases: &[&JoinedCase]) -> Axis {
    let swept: Vec<(f64, String)> = cases
        .iter()
        .filter_map(|case| case.axis.as_ref())
        .map(|axis| (axis.value, thousands(axis.value)))
        .collect();
    match cases.first().and_then(|case| case.axis.as_ref()) {
        Some(axis) => Axis::named(&axis.name, Kind::Linear, swept),
        None => Axis::categories("case", cases.iter().map(|case| case.name.clone())),
    }
}

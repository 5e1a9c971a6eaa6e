//! Charts across cases: waterfalls, sweeps, capacities, versions.
use super::words::{Colours, added, drawn, micros, slug};
use crate::analysis::{Analysis, Knee, Scaling, ScalingLine, ScalingPoint, Waterfall};
use crate::chart::{self, Added, Axis, Chart, Estimate, Kind, Level, Line, Lines, Point, latency, thousands};
use serde::Serialize;

/// What each step adds, one chart a target.
pub(super) fn waterfalls(analysis: &Analysis, colours: &Colours) -> Vec<Chart> {
    analysis.waterfalls.iter().flat_map(|waterfall| waterfall_charts(waterfall, colours)).collect()
}

fn waterfall_charts(waterfall: &Waterfall, colours: &Colours) -> Vec<Chart> {
    let lines = waterfall.lines.iter().filter(|line| line.steps.len() > 1);
    let charts = lines.map(|line| {
        let steps = line.steps.iter().map(|step| Added {
            label: step.label.clone(),
            total: step.total.value,
            added: drawn(step.added.unwrap_or(step.total)),
        });
        chart::Waterfall {
            name: slug(&format!("waterfall {} {} {}", waterfall.name, waterfall.scheme, line.target)),
            title: format!(
                "What each step of {} adds: {}, {}",
                waterfall.name, line.target, waterfall.scheme
            ),
            axis: "CPU µs per request".to_owned(),
            colour: colours.of_target(&line.target),
            steps: steps.collect(),
            write: added,
        }
        .draw()
    });
    charts.collect()
}

/// What is drawn along the axis of a sweep.
struct Quantity {
    /// The stem of the files' names.
    name: &'static str,
    unit: &'static str,
    write: fn(f64) -> String,
    of: fn(&ScalingPoint) -> Option<Estimate>,
}

const SWEPT: [Quantity; 4] = [
    Quantity { name: "cpu", unit: "CPU µs per request", write: micros, of: |point| point.cpu_us.map(drawn) },
    Quantity { name: "rps", unit: "requests per second", write: thousands, of: |point| point.rps.map(drawn) },
    Quantity { name: "p50", unit: "p50 in ms", write: latency, of: |point| point.p50_ms.map(alone) },
    Quantity { name: "p99", unit: "p99 in ms", write: latency, of: |point| point.p99_ms.map(alone) },
];

/// A figure that has no confidence interval, such as a quantile of all blocks.
fn alone(value: f64) -> Estimate {
    Estimate { value, interval: None }
}

/// Cost, rate and latency along the axis of each sweep.
pub(super) fn sweeps(analysis: &Analysis, colours: &Colours) -> Vec<Chart> {
    let several = analysis.scalings.iter().filter(|scaling| scaling.has_several_points());
    several.flat_map(|scaling| SWEPT.iter().map(|quantity| sweep(scaling, quantity, colours))).collect()
}

fn sweep(scaling: &Scaling, quantity: &Quantity, colours: &Colours) -> Chart {
    let fixed: Vec<String> = scaling.fixed.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let what = format!("{} {} {}", scaling.scenario, scaling.scheme, fixed.join(" ")).trim().to_owned();
    let lines = scaling.lines.iter().map(|line| sweep_line(line, &scaling.axis, colours, quantity.of));
    let lines: Vec<Line> = lines.collect();
    let highest = lines.iter().flat_map(|line| &line.points).map(|point| high(point.y));
    Lines {
        name: slug(&format!("{} by {} {what}", quantity.name, scaling.axis)),
        title: format!("{} by {}: {what}", quantity.unit, scaling.axis),
        across: sweep_axis(scaling),
        up: Axis::from_zero(quantity.unit, highest),
        lines: lines.clone(),
        level: None,
        write: quantity.write,
    }
    .draw()
}

fn sweep_line(
    line: &ScalingLine,
    axis: &str,
    colours: &Colours,
    of: fn(&ScalingPoint) -> Option<Estimate>,
) -> Line {
    let points = line.points.iter().filter_map(|point| {
        let at = format!("{axis} {}", thousands(point.value));
        Some(Point { x: point.value, at, y: of(point)? })
    });
    let (label, colour) = (line.target.clone(), colours.of_target(&line.target));
    Line { label, colour, points: points.collect() }
}

/// Values that lie factors apart are drawn so; a zero among them stands where the next lower one would.
fn sweep_axis(scaling: &Scaling) -> Axis {
    let mut values: Vec<f64> =
        scaling.lines.iter().flat_map(|line| &line.points).map(|point| point.value).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let least = values.iter().copied().find(|value| *value > 0.0).unwrap_or(1.0);
    let most = values.last().copied().unwrap_or(1.0);
    let ticks = || values.iter().map(|value| (*value, thousands(*value)));
    if most / least < 20.0 {
        return Axis::named(&scaling.axis, Kind::Linear, ticks().collect());
    }
    let from_zero = ticks().map(|(value, name)| (if value > 0.0 { value } else { least / 4.0 }, name));
    Axis::named(&scaling.axis, Kind::Log, from_zero.collect())
}

/// A capacity in words.
#[derive(Serialize)]
pub(super) struct CapacityRow {
    case: String,
    target: String,
    colour: usize,
    workers: u32,
    slo: String,
    rate: String,
    reservations: String,
    half: String,
    near: String,
}

/// All capacities of a run.
pub(super) fn capacities(analysis: &Analysis, colours: &Colours) -> Vec<CapacityRow> {
    let at = |knee: &Knee, share: f64| {
        let point = knee.points.iter().find(|point| point.share == Some(share));
        point.and_then(|point| point.response.p99_ms).map_or("–".to_owned(), latency)
    };
    let row = |knee: &Knee| CapacityRow {
        case: knee.case.clone(),
        target: knee.target.clone(),
        colour: colours.of_target(&knee.target),
        workers: knee.workers,
        slo: knee.slo.clone(),
        rate: format!("{}{}", knee.bound(), thousands(knee.rate)),
        reservations: knee.reservations(),
        half: at(knee, 0.5),
        near: at(knee, 0.9),
    };
    analysis.knees.iter().map(row).collect()
}

/// Latency against the share of the capacity, one chart for a case, a service level and a number of workers.
pub(super) fn knees(analysis: &Analysis, colours: &Colours) -> Vec<Chart> {
    let mut kinds: Vec<(&str, &str, u32)> = Vec::new();
    for knee in analysis.knees.iter().filter(|knee| !curve(knee).is_empty()) {
        let kind = (knee.case.as_str(), knee.slo.as_str(), knee.workers);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.into_iter().map(|kind| knee_chart(analysis, colours, kind)).collect()
}

fn knee_chart(analysis: &Analysis, colours: &Colours, (case, slo, workers): (&str, &str, u32)) -> Chart {
    let these = analysis
        .knees
        .iter()
        .filter(|knee| (knee.case.as_str(), knee.slo.as_str(), knee.workers) == (case, slo, workers));
    let lines: Vec<Line> = these
        .map(|knee| Line {
            label: format!("{} ({}/s)", knee.target, thousands(knee.rate)),
            colour: colours.of_target(&knee.target),
            points: curve(knee),
        })
        .collect();
    let level = service_level(slo);
    let points = || lines.iter().flat_map(|line| &line.points);
    let up = points().map(|point| point.y.value).chain(level.iter().map(|level| level.value));
    let workers_named = if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") };
    Lines {
        name: slug(&format!("knee {case} {slo} {workers}")),
        title: format!("Latency below the capacity: {case}, {workers_named}"),
        across: share_axis(points().map(|point| point.x)),
        up: Axis::around("p99", Kind::Log, up).with_names(latency),
        lines: lines.clone(),
        level,
        write: latency,
    }
    .draw()
}

fn share_axis(shares: impl Iterator<Item = f64>) -> Axis {
    let highest = shares.fold(100.0, f64::max);
    let quarters = (highest / 25.0 - 0.2).ceil() as u32;
    let ticks =
        (0..=quarters).map(|quarter| f64::from(quarter) * 25.0).map(|share| (share, thousands(share)));
    Axis::named("rate as a share of the capacity, %", Kind::Linear, ticks.collect()).reaching(highest)
}

fn curve(knee: &Knee) -> Vec<Point> {
    let points = knee.points.iter().filter_map(|point| {
        let share = point.achieved / knee.rate * 100.0;
        let at = format!("{}/s ({share:.0} %)", thousands(point.achieved));
        let value = point.response.p99_ms?;
        share.is_finite().then_some(Point { x: share, at, y: Estimate { value, interval: None } })
    });
    points.collect()
}

/// Of `p99=5ms`, the line at 5 ms.
fn service_level(slo: &str) -> Option<Level> {
    let (_, limit) = slo.split_once('=')?;
    let number = |suffix: &str| limit.strip_suffix(suffix)?.trim().parse::<f64>().ok();
    let value = number("ms")
        .or_else(|| Some(number("us").or_else(|| number("µs"))? / 1e3))
        .or_else(|| Some(number("s")? * 1e3))?;
    Some(Level { value, name: slo.to_owned() })
}

/// Capacity against workers.
pub(super) fn cores(analysis: &Analysis, colours: &Colours) -> Vec<Chart> {
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    for scaling in &analysis.cores {
        let kind = (scaling.case.as_str(), scaling.slo.as_str());
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.into_iter().map(|kind| cores_chart(analysis, colours, kind)).collect()
}

fn cores_chart(analysis: &Analysis, colours: &Colours, (case, slo): (&str, &str)) -> Chart {
    let these =
        analysis.cores.iter().filter(|scaling| (scaling.case.as_str(), scaling.slo.as_str()) == (case, slo));
    let lines: Vec<Line> = these
        .map(|scaling| Line {
            label: scaling.target.clone(),
            colour: colours.of_target(&scaling.target),
            points: scaling
                .points
                .iter()
                .map(|cores| Point {
                    x: f64::from(cores.workers),
                    at: format!("{} workers, efficiency {:.0} %", cores.workers, cores.efficiency * 100.0),
                    y: Estimate { value: cores.rate, interval: None },
                })
                .collect(),
        })
        .collect();
    let mut workers: Vec<f64> = lines.iter().flat_map(|line| &line.points).map(|point| point.x).collect();
    workers.sort_by(f64::total_cmp);
    workers.dedup();
    let highest = lines.iter().flat_map(|line| &line.points).map(|point| point.y.value);
    Lines {
        name: slug(&format!("scaling {case} {slo}")),
        title: format!("Capacity by workers: {case}, {slo}"),
        across: Axis::named(
            "workers",
            Kind::Linear,
            workers.into_iter().map(|value| (value, thousands(value))).collect(),
        ),
        up: Axis::from_zero("requests per second", highest),
        lines: lines.clone(),
        level: None,
        write: thousands,
    }
    .draw()
}

/// CPU per request over versions, one chart a program of which there are several; one line a case.
pub(super) fn versions(analysis: &Analysis) -> Vec<Chart> {
    let mut programs: Vec<(&str, Vec<&str>)> = Vec::new();
    for cell in analysis.cases.iter().flat_map(|case| &case.cells).filter(|cell| !cell.control) {
        let Some((program, version)) = cell.target.split_once('@') else { continue };
        match programs.iter_mut().find(|(known, _)| *known == program) {
            Some((_, versions)) if versions.contains(&version) => {}
            Some((_, versions)) => versions.push(version),
            None => programs.push((program, vec![version])),
        }
    }
    programs.retain(|(_, versions)| versions.len() > 1);
    programs.into_iter().map(|(program, versions)| version_chart(analysis, program, &versions)).collect()
}

fn version_chart(analysis: &Analysis, program: &str, versions: &[&str]) -> Chart {
    let lines: Vec<Line> = analysis
        .cases
        .iter()
        .enumerate()
        .map(|(index, case)| {
            let points = versions.iter().enumerate().filter_map(|(place, version)| {
                let cpu = case.cell(&format!("{program}@{version}"))?.summary.as_ref()?.cpu_us?;
                Some(Point { x: place as f64, at: (*version).to_owned(), y: drawn(cpu) })
            });
            Line { label: case.case.name.clone(), colour: index, points: points.collect() }
        })
        .collect();
    let highest = lines.iter().flat_map(|line| &line.points).map(|point| high(point.y));
    Lines {
        name: slug(&format!("versions {program}")),
        title: format!("CPU per request by version: {program}"),
        across: Axis::categories("version", versions.iter().map(|version| (*version).to_owned())),
        up: Axis::from_zero("CPU µs per request", highest),
        lines: lines.clone(),
        level: None,
        write: micros,
    }
    .draw()
}

fn high(estimate: Estimate) -> f64 {
    estimate.interval.map_or(estimate.value, |(_, high)| high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_level_is_a_line_in_milliseconds() {
        let value = |slo: &str| service_level(slo).map(|level| level.value);
        assert_eq!(value("p99=5ms"), Some(5.0));
        assert_eq!(value("p99.9=800us"), Some(0.8));
        assert_eq!(value("p50=1s"), Some(1000.0));
        assert_eq!(value("p99"), None);
    }
}

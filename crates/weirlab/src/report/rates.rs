//! The rate that holds a latency, for all targets in one chart.
use super::words::{Colours, slug};
use crate::analysis::{Analysis, Knee};
use crate::chart::{Axis, Chart, Estimate, Kind, Line, Lines, Point, latency, thousands};

/// One chart for a case and a number of workers: how high a rate may be for p99 to stay below a bound.
pub(super) fn charts(analysis: &Analysis, colours: &Colours) -> Vec<Chart> {
    let mut kinds: Vec<(&str, u32)> = Vec::new();
    for knee in &analysis.knees {
        let kind = (knee.case.as_str(), knee.workers);
        if !kinds.contains(&kind) && !held(knee).is_empty() {
            kinds.push(kind);
        }
    }
    kinds.into_iter().map(|kind| chart(analysis, colours, kind)).collect()
}

fn chart(analysis: &Analysis, colours: &Colours, (case, workers): (&str, u32)) -> Chart {
    let these = analysis.knees.iter().filter(|knee| (knee.case.as_str(), knee.workers) == (case, workers));
    let lines: Vec<Line> = these
        .map(|knee| Line {
            label: knee.target.clone(),
            colour: colours.of_target(&knee.target),
            points: held(knee),
        })
        .collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let bounds: Vec<f64> = points().map(|point| point.x).collect();
    let highest: Vec<f64> = points().map(|point| point.y.value).collect();
    Lines {
        name: slug(&format!("rates {case} {workers}")),
        title: format!("Rate that holds p99 ≤ x: {case}, workers: {workers}"),
        across: Axis::around("p99 at most", Kind::Log, bounds).with_names(latency),
        up: Axis::from_zero("requests per second", highest),
        lines: lines.clone(),
        level: None,
        write: thousands,
    }
    .draw()
}

/// The bound that each measured rate and all lower ones hold, where it rises with the rate.
fn held(knee: &Knee) -> Vec<Point> {
    let mut highest = 0.0_f64;
    let points = knee.points.iter().filter_map(|point| {
        let p99 = point.response.p99_ms?;
        highest = highest.max(p99);
        let at = format!("p99 ≤ {}", latency(highest));
        Some(Point { x: highest, at, y: Estimate { value: point.achieved, interval: None } })
    });
    points.collect()
}

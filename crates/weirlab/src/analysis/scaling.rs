//! How cost and rate change along the axis of a sweep.
use super::summary::Summary;
use crate::result::{Axis, Case, Run};
use crate::stats::Estimate;
use serde::Serialize;
use std::collections::BTreeMap;

/// A sweep.
#[derive(Clone, Debug, Serialize)]
pub struct Scaling {
    /// The scenario.
    pub scenario: String,
    /// What the scenario calls itself.
    pub title: String,
    /// `http` or `https`.
    pub scheme: String,
    /// The variable along the axis.
    pub axis: String,
    /// The other variables, which are the same at all points.
    pub fixed: BTreeMap<String, String>,
    /// One line for each target with samples.
    pub lines: Vec<ScalingLine>,
}

/// The points of one target.
#[derive(Clone, Debug, Serialize)]
pub struct ScalingLine {
    /// The target's label.
    pub target: String,
    /// By rising value.
    pub points: Vec<ScalingPoint>,
}

/// One value of the variable.
#[derive(Clone, Debug, Serialize)]
pub struct ScalingPoint {
    /// The value.
    pub value: f64,
    /// The case's name.
    pub case: String,
    /// CPU per request in microseconds.
    pub cpu_us: Option<Estimate>,
    /// Right answers per second.
    pub rps: Option<Estimate>,
    /// The median of the response time in milliseconds.
    pub p50_ms: Option<f64>,
    /// The 99th percentile of the response time in milliseconds.
    pub p99_ms: Option<f64>,
    /// Resident memory in KiB.
    pub rss_kib: u64,
}

/// All sweeps of a run.
pub(super) fn all(run: &Run) -> Vec<Scaling> {
    let mut scalings: Vec<Scaling> = Vec::new();
    for case in &run.cases {
        let Some(axis) = &case.axis else { continue };
        let scaling = Scaling::empty(case, axis);
        let same = |known: &Scaling| {
            (&known.scenario, &known.scheme, &known.axis, &known.fixed)
                == (&scaling.scenario, &scaling.scheme, &scaling.axis, &scaling.fixed)
        };
        let index = scalings.iter().position(same).unwrap_or_else(|| {
            scalings.push(scaling);
            scalings.len() - 1
        });
        scalings[index].add(run, case, axis);
    }
    scalings
}

impl Scaling {
    /// Whether a target was measured at more than one value.
    pub fn has_several_points(&self) -> bool {
        self.lines.iter().any(|line| line.points.len() > 1)
    }

    fn empty(case: &Case, axis: &Axis) -> Scaling {
        let mut fixed = case.variables.clone();
        fixed.remove(&axis.name);
        Scaling {
            scenario: case.scenario.clone(),
            title: case.title.clone(),
            scheme: case.scheme.clone(),
            axis: axis.name.clone(),
            fixed,
            lines: Vec::new(),
        }
    }

    fn add(&mut self, run: &Run, case: &Case, axis: &Axis) {
        for cell in run.cells.iter().filter(|cell| cell.case == case.name && !cell.control) {
            let Some(summary) = Summary::of(cell, run.seed) else { continue };
            let point = ScalingPoint {
                value: axis.value,
                case: case.name.clone(),
                cpu_us: summary.cpu_us,
                rps: summary.rps,
                p50_ms: summary.response.p50_ms,
                p99_ms: summary.response.p99_ms,
                rss_kib: summary.rss_kib,
            };
            self.line(&cell.target).insert(point);
        }
    }

    fn line(&mut self, target: &str) -> &mut ScalingLine {
        let index = self.lines.iter().position(|line| line.target == target).unwrap_or_else(|| {
            self.lines.push(ScalingLine { target: target.to_owned(), points: Vec::new() });
            self.lines.len() - 1
        });
        &mut self.lines[index]
    }
}

impl ScalingLine {
    fn insert(&mut self, point: ScalingPoint) {
        let place = self.points.partition_point(|known| known.value <= point.value);
        self.points.insert(place, point);
    }
}

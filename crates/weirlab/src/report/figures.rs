//! The figures of each cell that are quoted, and what the interval around each is.
use super::text::is_watched;
use crate::analysis::{
    Analysis, CaseAnalysis, CellAnalysis, Conditions, Knee, ProbedCase, QuantileRanges, Quantiles, Summary,
};
use crate::result::{ChainCost, Flame, Run};
use crate::stats::Estimate;
use serde::Serialize;

/// All figures of a run: what `--format json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// The run's id.
    pub run: String,
    /// The target that ratios are taken to.
    pub baseline: String,
    /// How far the machine was the laboratory's own.
    pub conditions: Conditions,
    /// Cases under load, each before each target.
    pub cells: Vec<CellFigures>,
    /// Rates that hold a service level.
    pub capacities: Vec<CapacityFigures>,
    /// Figures that are not of requests under load.
    pub probes: Vec<ProbeFigures>,
    /// What each plugin of a chain costs.
    pub chains: Vec<ChainCost>,
    /// Flame graphs in the folder of the run.
    pub flames: Vec<Flame>,
}

/// A case before a target.
#[derive(Clone, Debug, Serialize)]
pub struct CellFigures {
    /// The case's name.
    pub case: String,
    /// The target's label.
    pub target: String,
    /// Whether this is the A/A control.
    pub control: bool,
    /// Right answers per second.
    pub requests_per_second: Option<Figure>,
    /// The median latency in milliseconds, as [`Summary::shown`] counts it.
    pub p50_ms: Option<Figure>,
    /// The 95th percentile.
    pub p95_ms: Option<Figure>,
    /// The 99th percentile.
    pub p99_ms: Option<Figure>,
    /// The median time to the first byte of the body, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_p50_ms: Option<Figure>,
    /// The 99th percentile of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_p99_ms: Option<Figure>,
    /// CPU time of the target for each request, in microseconds.
    pub cpu_us: Option<Figure>,
    /// CPU per request over the baseline's.
    pub ratio: Option<Figure>,
    /// How it stands to the baseline.
    pub verdict: String,
}

/// The highest rate that holds a service level.
#[derive(Clone, Debug, Serialize)]
pub struct CapacityFigures {
    /// The case's name.
    pub case: String,
    /// The target's label.
    pub target: String,
    /// How many workers it had.
    pub workers: u32,
    /// Such as `p99=5ms`.
    pub slo: String,
    /// Requests per second, and the lowest rate that was tried and did not hold.
    pub rate: Figure,
    /// What is to be known of the rate; empty if nothing.
    pub reservations: String,
}

/// A figure that is not one of requests under load.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeFigures {
    /// The case's name.
    pub case: String,
    /// The target's label.
    pub target: String,
    /// Such as `exec to first answer`.
    pub what: String,
    /// Such as `s`.
    pub unit: String,
    /// The figure; none where no block counts.
    pub figure: Option<Figure>,
}

/// A figure with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The figure.
    pub value: f64,
    /// The lower end of the interval; none with a single sample.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// What the interval is.
    pub interval: Interval,
}

/// What an interval is. None of them is ever put in the place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Interval {
    /// Of the trimmed mean over blocks, or of the ratio over pairs of blocks.
    #[serde(rename = "95 % confidence interval")]
    Confidence,
    /// From the lowest to the highest block, of a quantile of all blocks' answers.
    #[serde(rename = "range of blocks")]
    Blocks,
    /// Between the highest rate that held and the lowest above it that did not.
    #[serde(rename = "bracket of the search")]
    Search,
}

impl Interval {
    /// The brackets that it is written in, so that a table shows which it is.
    #[must_use]
    pub fn brackets(self) -> (char, char) {
        match self {
            Interval::Confidence => ('(', ')'),
            Interval::Blocks | Interval::Search => ('[', ']'),
        }
    }

    /// What it is called where there is little room.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Interval::Confidence => "confidence",
            Interval::Blocks => "blocks",
            Interval::Search => "search",
        }
    }
}

impl Figure {
    /// A confidence interval; without ends for a single sample.
    #[must_use]
    pub fn confidence(estimate: Estimate) -> Figure {
        let end = |end: f64| Some(end).filter(|end| estimate.samples > 1 && end.is_finite());
        let (low, high) = (end(estimate.low), end(estimate.high));
        Figure { value: estimate.value, low, high, interval: Interval::Confidence }
    }

    fn quantile(value: Option<f64>, range: Option<(f64, f64)>) -> Option<Figure> {
        let (low, high) = range.unzip();
        Some(Figure { value: value?, low, high, interval: Interval::Blocks })
    }
}

impl Figures {
    /// Of a run.
    pub fn of(run: &Run, analysis: &Analysis) -> Figures {
        let cells =
            analysis.cases.iter().filter(|case| !is_watched(run, case)).flat_map(|case| {
                case.cells.iter().map(|cell| CellFigures::of(case, cell, &analysis.baseline))
            });
        Figures {
            run: run.id.clone(),
            baseline: analysis.baseline.clone(),
            conditions: analysis.conditions.clone(),
            cells: cells.collect(),
            capacities: analysis.knees.iter().map(capacity).collect(),
            probes: analysis.probes.iter().flat_map(probes).collect(),
            chains: run.chains.clone(),
            flames: run.flames.clone(),
        }
    }
}

impl CellFigures {
    /// Of a cell.
    pub fn of(case: &CaseAnalysis, cell: &CellAnalysis, baseline: &str) -> CellFigures {
        let summary = cell.summary.as_ref();
        let estimate = |of: fn(&Summary) -> Option<Estimate>| summary.and_then(of).map(Figure::confidence);
        let ratio = cell.ratio_to(baseline).and_then(|ratio| ratio.cpu);
        let first_byte = |value: fn(&Quantiles) -> Option<f64>,
                          range: fn(&QuantileRanges) -> Option<(f64, f64)>| {
            summary.and_then(|all| Figure::quantile(value(all.first_byte.as_ref()?), range(&all.ranges)))
        };
        CellFigures {
            case: case.case.name.clone(),
            target: cell.target.clone(),
            control: cell.control,
            requests_per_second: estimate(|summary| summary.rps),
            p50_ms: summary.and_then(|all| Figure::quantile(all.shown().p50_ms, all.ranges.p50_ms)),
            p95_ms: summary.and_then(|all| Figure::quantile(all.shown().p95_ms, all.ranges.p95_ms)),
            p99_ms: summary.and_then(|all| Figure::quantile(all.shown().p99_ms, all.ranges.p99_ms)),
            first_byte_p50_ms: first_byte(|of| of.p50_ms, |ranges| ranges.first_byte_p50_ms),
            first_byte_p99_ms: first_byte(|of| of.p99_ms, |ranges| ranges.first_byte_p99_ms),
            cpu_us: estimate(|summary| summary.cpu_us),
            ratio: ratio.map(|effect| Figure::confidence(effect.ratio)),
            verdict: cell.verdict.words(),
        }
    }
}

fn capacity(knee: &Knee) -> CapacityFigures {
    let failed = knee.points.iter().filter(|point| !point.holds && point.offered > knee.rate);
    let high = failed.map(|point| point.offered).reduce(f64::min);
    let rate = Figure { value: knee.rate, low: Some(knee.rate), high, interval: Interval::Search };
    CapacityFigures {
        case: knee.case.clone(),
        target: knee.target.clone(),
        workers: knee.workers,
        slo: knee.slo.clone(),
        rate,
        reservations: knee.reservations(),
    }
}

fn probes(case: &ProbedCase) -> impl Iterator<Item = ProbeFigures> + '_ {
    case.cells.iter().map(|cell| ProbeFigures {
        case: case.case.clone(),
        target: cell.target.clone(),
        what: case.what.clone(),
        unit: case.unit.clone(),
        figure: cell.value.map(Figure::confidence),
    })
}

//! What the samples of a run say: summaries, paired ratios with intervals, the noise floor, verdicts. Everything a
//! report says is here, derived from the data alone.
mod conditions;
mod knee;
mod pairs;
mod probe;
mod sample;
mod scaling;
mod summary;
mod verdict;
mod waterfall;

pub use conditions::{Conditions, Spread};
pub use knee::{CoreScaling, Cores, Knee, KneePoint};
pub use pairs::{Effect, Ratio};
pub use probe::{ProbedCase, ProbedCell};
pub use sample::{Sample, Usable, usable};
pub use scaling::{Scaling, ScalingLine, ScalingPoint};
pub use summary::{Combined, Counts, PartSummary, QuantileRanges, Quantiles, Summary};
pub(crate) use verdict::judge;
pub use verdict::{FLOOR_WITHOUT_CONTROL, MIN_JUDGED_PAIRS, Noise, SAME, Verdict};
pub use waterfall::{Increment, Waterfall, WaterfallLine};

use crate::result::{Case, Cell, Run, Status};
use serde::Serialize;

/// The label of the built-in target that relays as barely as is correct.
const FLOOR: &str = "floor";

/// All that a run says.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// The target that ratios are taken to.
    pub baseline: String,
    /// How far the machine was the laboratory's own.
    pub conditions: Conditions,
    /// The cases under load, in the order of the plan.
    pub cases: Vec<CaseAnalysis>,
    /// The cases whose figures are not of requests under load.
    pub probes: Vec<ProbedCase>,
    /// What each step of a waterfall adds.
    pub waterfalls: Vec<Waterfall>,
    /// How cost and rate change along the axis of a sweep.
    pub scalings: Vec<Scaling>,
    /// Latency against rate, up to the capacity.
    pub knees: Vec<Knee>,
    /// Capacity against workers.
    pub cores: Vec<CoreScaling>,
}

/// What is known of a case.
#[derive(Clone, Debug, Serialize)]
pub struct CaseAnalysis {
    /// The case.
    pub case: Case,
    /// What two runs of the same binary differ by here.
    pub noise: Noise,
    /// Its cells, in the order of the run, the A/A control among them.
    pub cells: Vec<CellAnalysis>,
}

/// What is known of a case before a target.
#[derive(Clone, Debug, Serialize)]
pub struct CellAnalysis {
    /// The target's label.
    pub target: String,
    /// Whether this is the A/A control.
    pub control: bool,
    /// Whether it was measured, or why not.
    pub status: Status,
    /// What its blocks say; none where no block counts.
    pub summary: Option<Summary>,
    /// How many blocks count, and why the others do not.
    pub counts: Counts,
    /// This target over each other, in the order of the cells.
    pub ratios: Vec<Ratio>,
    /// How it stands to the baseline, by CPU per request.
    pub verdict: Verdict,
}

impl Analysis {
    /// Derives all from a run.
    pub fn of(run: &Run) -> Analysis {
        let under_load = run.cases.iter().filter(|case| !probe::is_probed(run, case));
        let cases: Vec<CaseAnalysis> = under_load.map(|case| CaseAnalysis::of(run, case)).collect();
        Analysis {
            baseline: run.baseline.clone(),
            conditions: Conditions::of(run, &cases),
            cases,
            probes: probe::all(run),
            waterfalls: waterfall::all(run),
            scalings: scaling::all(run),
            knees: knee::all(run),
            cores: knee::cores(run),
        }
    }

    /// A case by its name.
    pub fn case(&self, name: &str) -> Option<&CaseAnalysis> {
        self.cases.iter().find(|analysis| analysis.case.name == name)
    }
}

impl CaseAnalysis {
    fn of(run: &Run, case: &Case) -> CaseAnalysis {
        let cells: Vec<&Cell> = run.cells.iter().filter(|cell| cell.case == case.name).collect();
        let ratios = pairs::between(&cells, run.seed);
        let noise = Noise::of(&cells, &ratios, &run.baseline);
        let cells = cells.into_iter().zip(ratios);
        let cells = cells.map(|(cell, ratios)| CellAnalysis::of(run, cell, ratios, &noise)).collect();
        CaseAnalysis { case: case.clone(), noise, cells }
    }

    /// A cell by its target's label.
    pub fn cell(&self, target: &str) -> Option<&CellAnalysis> {
        self.cells.iter().find(|cell| cell.target == target)
    }
}

impl CellAnalysis {
    /// Which clock the latencies are of, where the generator does not know when a request was due.
    #[must_use]
    pub fn clock(&self) -> Option<String> {
        let without = self.summary.as_ref().is_some_and(|summary| summary.latencies.is_without_response());
        without.then(|| {
            format!("the latencies of {} count from the instant of sending: its generator does not say when requests were due", self.target)
        })
    }

    /// How long the first byte of bodies took, where that was asked for.
    #[must_use]
    pub fn first_byte(&self) -> Option<String> {
        let of = self.summary.as_ref()?.first_byte?;
        let milliseconds = |quantile: Option<f64>| {
            quantile.map_or("n too small".to_owned(), |milliseconds| format!("{milliseconds:.3} ms"))
        };
        let (median, p99) = (milliseconds(of.p50_ms), milliseconds(of.p99_ms));
        Some(format!("to the first byte of the body from {}: p50 {median}, p99 {p99}", self.target))
    }

    fn of(run: &Run, cell: &Cell, ratios: Vec<Ratio>, noise: &Noise) -> CellAnalysis {
        let verdict = Verdict::of(cell, &ratios, &run.baseline, noise);
        CellAnalysis {
            target: cell.target.clone(),
            control: cell.control,
            status: cell.status.clone(),
            summary: Summary::of(cell, run.seed),
            counts: Counts::of(cell),
            ratios,
            verdict,
        }
    }

    /// The ratio to another target of the same case.
    pub fn ratio_to(&self, target: &str) -> Option<&Ratio> {
        self.ratios.iter().find(|ratio| ratio.to == target)
    }

    /// CPU per request over that of the barest relay: the distance to the limit.
    pub fn distance_to_floor(&self) -> Option<&Effect> {
        self.ratio_to(FLOOR)?.cpu.as_ref()
    }
}

//! Two runs beside each other. Their blocks were not interleaved: what differs may be the machine's doing. So where both
//! runs measured the same other targets (the same binary of a rival, the floor), it is the ratios to these that are
//! compared, in which a machine that was slower as a whole cancels; only where there are none, the costs themselves.
mod provenance;
pub(crate) mod text;

use provenance::unchanged;
pub use provenance::{Difference, differences};

use crate::analysis::{Analysis, CellAnalysis, FLOOR_WITHOUT_CONTROL};
use crate::result::Run;
use crate::stats::Estimate;
use serde::Serialize;

/// What two runs say about each other.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The earlier run's id: what ratios are taken to.
    pub old: String,
    /// The later run's id.
    pub new: String,
    /// What was not the same.
    pub differences: Vec<Difference>,
    /// Cells that both runs measured.
    pub cells: Vec<CellComparison>,
    /// Cells that only one run measured, as `case / target`.
    pub only_old: Vec<String>,
    /// The same of the new run.
    pub only_new: Vec<String>,
}

/// A cell in both runs.
#[derive(Clone, Debug, Serialize)]
pub struct CellComparison {
    /// The case's name.
    pub case: String,
    /// The target's label.
    pub target: String,
    /// CPU per request in the old run, in microseconds.
    pub old_cpu_us: Option<Estimate>,
    /// In the new run.
    pub new_cpu_us: Option<Estimate>,
    /// New over old.
    pub change: Option<Change>,
    /// Right answers per second in the old run.
    pub old_rps: Option<Estimate>,
    /// In the new run.
    pub new_rps: Option<Estimate>,
}

/// How CPU per request changed from one run to the other.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// New over old.
    pub ratio: Estimate,
    /// The targets that both runs were related to; empty where costs were compared as they are.
    pub through: Vec<String>,
    /// Effects up to this could be noise.
    pub floor: f64,
    /// Whether it is `more`, `less`, or one `cannot tell`.
    pub verdict: Direction,
}

/// What a change says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// CPU per request has grown.
    More,
    /// It has shrunk.
    Less,
    /// The interval contains 1, or the change is no larger than noise.
    CannotTell,
}

impl Direction {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Direction::More => "more",
            Direction::Less => "less",
            Direction::CannotTell => "cannot tell",
        }
    }
}

impl Comparison {
    /// Compares a run with an earlier one.
    pub fn of(old: &Run, new: &Run) -> Comparison {
        let (before, after) = (Analysis::of(old), Analysis::of(new));
        let mut comparison = Comparison {
            old: old.id.clone(),
            new: new.id.clone(),
            differences: differences(&old.manifest, &new.manifest),
            cells: Vec::new(),
            only_old: only(&before, &after),
            only_new: only(&after, &before),
        };
        let references = unchanged(&old.manifest, &new.manifest);
        for case in &after.cases {
            let Some(earlier) = before.case(&case.case.name) else { continue };
            let floor = earlier.noise.floor.max(case.noise.floor);
            let pair = Pair { old: &earlier.cells, new: &case.cells, references: &references, floor };
            let name = &case.case.name;
            let cells = measured(&case.cells).filter_map(|cell| pair.cell(name, cell));
            comparison.cells.extend(cells);
        }
        comparison
    }
}

/// Measured cells but for the control.
fn measured(cells: &[CellAnalysis]) -> impl Iterator<Item = &CellAnalysis> {
    cells.iter().filter(|cell| cell.summary.is_some() && !cell.control)
}

/// What one run measured and the other did not.
fn only(these: &Analysis, others: &Analysis) -> Vec<String> {
    let mut names = Vec::new();
    for case in &these.cases {
        let other = others.case(&case.case.name).map(|case| case.cells.as_slice()).unwrap_or_default();
        let missing = |cell: &&CellAnalysis| !measured(other).any(|known| known.target == cell.target);
        names.extend(
            measured(&case.cells).filter(missing).map(|cell| format!("{} / {}", case.case.name, cell.target)),
        );
    }
    names
}

/// One case in both runs.
struct Pair<'runs> {
    old: &'runs [CellAnalysis],
    new: &'runs [CellAnalysis],
    /// Targets that were the same in both runs.
    references: &'runs [String],
    floor: f64,
}

impl Pair<'_> {
    fn cell(&self, case: &str, new: &CellAnalysis) -> Option<CellComparison> {
        let old = measured(self.old).find(|cell| cell.target == new.target)?;
        let (before, after) = (old.summary.as_ref()?, new.summary.as_ref()?);
        Some(CellComparison {
            case: case.to_owned(),
            target: new.target.clone(),
            old_cpu_us: before.cpu_us,
            new_cpu_us: after.cpu_us,
            change: self.through_others(old, new).or_else(|| self.direct(before.cpu_us?, after.cpu_us?)),
            old_rps: before.rps,
            new_rps: after.rps,
        })
    }

    /// The ratio of the ratios to the targets that were the same in both runs, the mean over these targets.
    fn through_others(&self, old: &CellAnalysis, new: &CellAnalysis) -> Option<Change> {
        let mut through = Vec::new();
        let mut ratios = Vec::new();
        let reference =
            |cell: &&CellAnalysis| cell.target != new.target && self.references.contains(&cell.target);
        for cell in measured(self.new).filter(reference) {
            let to = |cell_of: &CellAnalysis| Some(cell_of.ratio_to(&cell.target)?.cpu?.ratio);
            if let (Some(before), Some(after)) = (to(old), to(new)) {
                through.push(cell.target.clone());
                ratios.push(quotient(after, before));
            }
        }
        let ratio = mean_of(&ratios)?;
        Some(self.change(ratio, through, self.floor))
    }

    /// Without a common target a slower gateway cannot be distinguished from a slower machine, except by the size of the change.
    fn direct(&self, before: Estimate, after: Estimate) -> Option<Change> {
        Some(self.change(quotient(after, before), Vec::new(), self.floor.max(FLOOR_WITHOUT_CONTROL)))
    }

    fn change(&self, ratio: Estimate, through: Vec<String>, floor: f64) -> Change {
        let beyond = !ratio.contains(1.0) && ratio.value.ln().abs() > floor.ln_1p();
        let verdict = match beyond {
            false => Direction::CannotTell,
            true if ratio.value > 1.0 => Direction::More,
            true => Direction::Less,
        };
        Change { ratio, through, floor, verdict }
    }
}

/// The quotient of two independent estimates: the distances to the ends add up as errors do, in squares.
pub(crate) fn quotient(above: Estimate, below: Estimate) -> Estimate {
    let value = above.value.ln() - below.value.ln();
    let down = (above.value / above.low).ln().hypot((below.high / below.value).ln());
    let up = (above.high / above.value).ln().hypot((below.value / below.low).ln());
    let samples = above.samples.min(below.samples);
    Estimate { value, low: value - down, high: value + up, samples }.map(f64::exp)
}

/// The geometric mean of estimates of the same ratio. They share the cell's own noise, so the mean's interval is no
/// narrower than theirs are on average.
fn mean_of(ratios: &[Estimate]) -> Option<Estimate> {
    let mean = |of: fn(&Estimate) -> f64| {
        crate::stats::mean(&ratios.iter().map(|ratio| of(ratio).ln()).collect::<Vec<_>>()).map(f64::exp)
    };
    Some(Estimate {
        value: mean(|ratio| ratio.value)?,
        low: mean(|ratio| ratio.low)?,
        high: mean(|ratio| ratio.high)?,
        samples: ratios.iter().map(|ratio| ratio.samples).min()?,
    })
}

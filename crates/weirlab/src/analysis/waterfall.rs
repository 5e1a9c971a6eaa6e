//! What each step adds to the cost of a request.
use super::pairs::{Rounds, paired, rounds};
use crate::result::{Case, Cell, Run, Step};
use crate::stats::{self, Estimate};
use serde::Serialize;

/// Steps that build on each other, before each target.
#[derive(Clone, Debug, Serialize)]
pub struct Waterfall {
    /// Its name.
    pub name: String,
    /// `http` or `https`.
    pub scheme: String,
    /// One line for each target that has a first step.
    pub lines: Vec<WaterfallLine>,
}

/// The steps of one target.
#[derive(Clone, Debug, Serialize)]
pub struct WaterfallLine {
    /// The target's label.
    pub target: String,
    /// In order.
    pub steps: Vec<Increment>,
}

/// One step.
#[derive(Clone, Debug, Serialize)]
pub struct Increment {
    /// Such as `+ key-auth`.
    pub label: String,
    /// The case's name.
    pub case: String,
    /// CPU per request in microseconds with all steps so far.
    pub total: Estimate,
    /// What this step adds to the one before, in microseconds, paired by round; none for the first.
    pub added: Option<Estimate>,
}

/// All waterfalls of a run.
pub(super) fn all(run: &Run) -> Vec<Waterfall> {
    let mut names: Vec<(String, String)> = Vec::new();
    for case in &run.cases {
        if let Some(step) = &case.step {
            let name = (step.waterfall.clone(), case.scheme.clone());
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names.into_iter().map(|(name, scheme)| one(run, name, scheme)).collect()
}

fn one(run: &Run, name: String, scheme: String) -> Waterfall {
    let within =
        |case: &&Case| case.scheme == scheme && case.step.as_ref().is_some_and(|step| step.waterfall == name);
    let mut steps: Vec<(&Case, &Step)> =
        run.cases.iter().filter(within).filter_map(|case| Some((case, case.step.as_ref()?))).collect();
    steps.sort_by_key(|(_, step)| step.index);
    let lines = targets(run, &steps).into_iter().map(|target| line(run, &steps, target)).collect();
    Waterfall { name, scheme, lines }
}

/// The targets that have samples of the first step, but not the control.
fn targets<'run>(run: &'run Run, steps: &[(&Case, &Step)]) -> Vec<&'run str> {
    let first = steps.first().map(|(case, _)| case.name.as_str());
    let cells = run.cells.iter().filter(|cell| Some(cell.case.as_str()) == first && !cell.control);
    cells.filter(|cell| !rounds(cell).is_empty()).map(|cell| cell.target.as_str()).collect()
}

/// Ends where a step was not measured: what follows would be added to another step than it says.
fn line(run: &Run, steps: &[(&Case, &Step)], target: &str) -> WaterfallLine {
    let mut line = WaterfallLine { target: target.to_owned(), steps: Vec::new() };
    let mut before: Option<Rounds> = None;
    for (case, step) in steps {
        let Some(cell) = find(run, &case.name, target) else { break };
        let these = rounds(cell);
        let added = before.as_ref().and_then(|before| difference(before, &these, run.seed));
        let totals: Vec<f64> = these.values().flatten().map(|sample| sample.cpu_us).collect();
        let Some(total) = stats::quantities(&totals, run.seed) else { break };
        line.steps.push(Increment { label: step.label.clone(), case: case.name.clone(), total, added });
        before = Some(these);
    }
    line
}

fn difference(before: &Rounds, after: &Rounds, seed: u64) -> Option<Estimate> {
    let pairs = paired(after, before, |sample| Some(sample.cpu_us));
    let added: Vec<f64> = pairs.iter().map(|(before, after)| after - before).collect();
    stats::estimate(&added, seed)
}

fn find<'run>(run: &'run Run, case: &str, target: &str) -> Option<&'run Cell> {
    run.cells.iter().find(|cell| cell.case == case && cell.target == target && !cell.control)
}

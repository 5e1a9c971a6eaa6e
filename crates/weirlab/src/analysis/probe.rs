//! Figures that are not of requests under load: how long a start and a reload take, what an idle connection costs.
use super::sample::{Usable, usable};
use crate::result::{Block, Case, Cell, Probe, Run, Status};
use crate::stats::{self, Estimate};
use serde::Serialize;

/// A case whose blocks carry such a figure.
#[derive(Clone, Debug, Serialize)]
pub struct ProbedCase {
    /// The case's name.
    pub case: String,
    /// What the figure is, such as `exec to first answer`.
    pub what: String,
    /// Its unit.
    pub unit: String,
    /// Its cells, in the order of the run, the A/A control among them.
    pub cells: Vec<ProbedCell>,
}

/// Such a case before a target.
#[derive(Clone, Debug, Serialize)]
pub struct ProbedCell {
    /// The target's label.
    pub target: String,
    /// Whether it was measured, or why not.
    pub status: Status,
    /// What the blocks that count come to, estimated as CPU per request is; none without such blocks.
    pub value: Option<Estimate>,
    /// The largest.
    pub worst: Option<f64>,
    /// How many blocks count.
    pub blocks: usize,
}

/// Whether a case's figures are such.
pub(super) fn is_probed(run: &Run, case: &Case) -> bool {
    of_case(run, case).any(|cell| probes(cell).next().is_some())
}

pub(super) fn all(run: &Run) -> Vec<ProbedCase> {
    run.cases.iter().filter_map(|case| probed(run, case)).collect()
}

fn of_case<'run>(run: &'run Run, case: &'run Case) -> impl Iterator<Item = &'run Cell> {
    run.cells.iter().filter(|cell| cell.case == case.name)
}

fn probes(cell: &Cell) -> impl Iterator<Item = (&Block, &Probe)> {
    cell.blocks.iter().filter_map(|block| Some((block, block.probe.as_ref()?)))
}

fn probed(run: &Run, case: &Case) -> Option<ProbedCase> {
    let (_, first) = of_case(run, case).flat_map(probes).next()?;
    Some(ProbedCase {
        case: case.name.clone(),
        what: first.name.clone(),
        unit: first.unit.clone(),
        cells: of_case(run, case).map(|cell| probed_cell(cell, run.seed)).collect(),
    })
}

fn probed_cell(cell: &Cell, seed: u64) -> ProbedCell {
    let counted = probes(cell).filter(|(block, _)| usable(block) == Usable::Yes);
    let values: Vec<f64> = counted.map(|(_, probe)| probe.value).collect();
    ProbedCell {
        target: cell.target.clone(),
        status: cell.status.clone(),
        value: stats::quantities(&values, seed),
        worst: values.iter().copied().reduce(f64::max),
        blocks: values.len(),
    }
}

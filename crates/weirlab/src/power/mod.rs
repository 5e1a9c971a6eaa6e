//! How small an effect a number of pairs of blocks shows on this machine, by the noise of recorded runs.

use crate::analysis::{Sample, Usable, usable};
use crate::result::{Cell, Run};
use crate::stats;

/// Pairs of blocks that the table is about.
pub const PAIRS: [usize; 5] = [6, 8, 16, 30, 60];
/// Imagined experiments for each number of pairs.
const EXPERIMENTS: usize = 400;

/// The log-ratios of CPU per request between each baseline and its A/A control, round by round: what is left of them
/// when nothing differs is noise.
pub fn noise(run: &Run) -> Vec<f64> {
    let controls = run.cells.iter().filter(|cell| cell.control);
    controls
        .filter_map(|control| Some((baseline(run, control)?, control)))
        .flat_map(|(baseline, control)| stats::log_ratios(&pairs(baseline, control)))
        .collect()
}

/// The share of simulated experiments with `pairs` pairs in which the effect shows.
pub fn power(noise: &[f64], effect: f64, pairs: usize, seed: u64) -> f64 {
    stats::power_at(noise, effect, pairs, EXPERIMENTS, seed)
}

fn baseline<'r>(run: &'r Run, control: &Cell) -> Option<&'r Cell> {
    let label = control.target.strip_suffix(" (again)")?;
    run.cells.iter().find(|cell| cell.case == control.case && cell.target == label)
}

fn pairs(baseline: &Cell, control: &Cell) -> Vec<(f64, f64)> {
    let cost = |cell: &Cell, round: u32| {
        let block = cell.blocks.iter().find(|block| block.round == round && block.probe.is_none())?;
        (usable(block) == Usable::Yes).then(|| Sample::of(block).cpu_us)
    };
    let rounds = baseline.blocks.iter().map(|block| block.round);
    rounds.filter_map(|round| Some((cost(baseline, round)?, cost(control, round)?))).collect()
}

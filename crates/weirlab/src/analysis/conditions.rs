//! How far the machine was the laboratory's own during a run: what a reader has to know before any figure.
use super::CaseAnalysis;
use crate::result::{Block, Manifest, Run};
use crate::stats;
use serde::Serialize;

/// From here on what others do is called a disturbance.
const MAX_PRESSURE_BEFORE: f64 = 0.10;
const MAX_STEAL: f64 = 0.02;
const MAX_OTHERS: f64 = 0.25;
const MAX_PRESSURE: f64 = 0.10;
/// Where the laboratory's own parts share CPUs, they wait for each other. From this use by others on, also for those.
const MAX_OTHERS_WHILE_WAITING: f64 = 0.05;
const MAX_VOID: f64 = 0.10;
const MAX_FLOOR: f64 = 0.10;

/// A noise floor of fewer pairs is wide for their number alone.
const MIN_PAIRS: usize = 8;

/// So seldom would so many A/A controls disagree by chance.
const CHANCE: f64 = 0.01;

/// What an interval that covers 95 % misses.
const MISSES: f64 = 0.05;

/// What the machine did beside the measurement, and whether the A/A controls agree.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Conditions {
    /// Share of the ten seconds before the run in which some task waited for a CPU.
    pub pressure_before: Option<f64>,
    /// Share of time in which some task waited for a CPU; the laboratory's own are among them.
    pub pressure: Option<Spread>,
    /// Share of CPU time that the hypervisor gave to others.
    pub steal: Option<Spread>,
    /// CPU time of processes that are not a part of the measurement, as a share of that of the laboratory's CPUs.
    pub others: Option<Spread>,
    /// Frequency of the CPUs in MHz.
    pub mhz: Option<Spread>,
    /// Blocks under load.
    pub blocks: usize,
    /// Of these, blocks that are void.
    pub void: usize,
    /// Cases with an A/A control.
    pub controls: usize,
    /// Of these, cases whose control has so few pairs that it cannot be judged.
    pub unjudged: usize,
    /// Cases whose control is judged, and its interval contains 1.
    pub agreeing: usize,
    /// The lowest and the highest noise floor of the controls that are judged.
    pub floor: Option<(f64, f64)>,
    /// Why the run is called disturbed; empty if it is not.
    pub disturbances: Vec<String>,
}

/// A quantity over blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median of the blocks.
    pub median: f64,
    /// The lowest block.
    pub low: f64,
    /// The highest block.
    pub high: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Option<Spread> {
        let values: Vec<f64> = values.collect();
        let (low, high) = stats::ends(&values)?;
        Some(Spread { median: stats::median(&values)?, low, high })
    }
}

impl Conditions {
    pub(super) fn of(run: &Run, cases: &[CaseAnalysis]) -> Conditions {
        let loaded = run.cells.iter().flat_map(|cell| &cell.blocks).filter(|block| block.probe.is_none());
        let blocks: Vec<&Block> = loaded.collect();
        let of =
            |value: fn(&Block) -> Option<f64>| Spread::of(blocks.iter().filter_map(|block| value(block)));
        let controls = || cases.iter().filter(|case| case.noise.control.is_some());
        let judged = || controls().filter(|case| case.noise.is_judged());
        let floors: Vec<f64> = judged().map(|case| case.noise.floor).collect();
        let mut conditions = Conditions {
            pressure_before: run.manifest.pressure_before,
            pressure: of(|block| block.machine.pressure),
            steal: of(|block| Some(block.machine.steal)),
            others: Spread::of(blocks.iter().filter_map(|block| others(block, run.manifest.cpus))),
            mhz: of(|block| block.machine.mhz),
            blocks: blocks.len(),
            void: blocks.iter().filter(|block| block.void.is_some()).count(),
            controls: controls().count(),
            unjudged: controls().count() - floors.len(),
            agreeing: judged().filter(|case| case.noise.contains_one() == Some(true)).count(),
            floor: stats::ends(&floors),
            disturbances: Vec::new(),
        };
        conditions.disturbances = conditions.found(&run.manifest, noisiest(cases));
        conditions
    }

    /// Whether the figures must be read with care.
    #[must_use]
    pub fn disturbed(&self) -> bool {
        !self.disturbances.is_empty()
    }

    fn found(&self, manifest: &Manifest, noisiest: Option<f64>) -> Vec<String> {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let median = |spread: Option<Spread>| spread.map(|spread| spread.median);
        let beyond = |value: Option<f64>, limit: f64| value.filter(|value| *value > limit).map(percent);
        let another =
            manifest.machine.get("another weirlab").map(|when| format!("another weirlab was {when}"));
        let before = beyond(self.pressure_before, MAX_PRESSURE_BEFORE)
            .map(|share| format!("before it began, tasks waited for a CPU {share} of the time"));
        let steal = beyond(median(self.steal), MAX_STEAL)
            .map(|share| format!("the hypervisor gave {share} of the CPU time to others"));
        let others = beyond(median(self.others), MAX_OTHERS)
            .map(|share| format!("other processes used {share} of the CPUs"));
        let apart_from_own = !manifest.cpu_sharing || median(self.others) > Some(MAX_OTHERS_WHILE_WAITING);
        let during = beyond(median(self.pressure), MAX_PRESSURE).filter(|_| apart_from_own).map(|share| match manifest
            .cpu_sharing
        {
            true => format!("while it was measured, tasks waited for a CPU {share} of the time, for other processes too"),
            false => format!(
                "while it was measured, tasks waited for a CPU {share} of the time, although each part has CPUs of its own"
            ),
        });
        let void = beyond(Some(self.void as f64 / self.blocks.max(1) as f64), MAX_VOID)
            .map(|share| format!("{share} of the blocks are void"));
        let floor = beyond(noisiest, MAX_FLOOR)
            .map(|share| format!("the same binary differs from itself by up to {share} (A/A control)"));
        let judged = self.controls - self.unjudged;
        let apart = judged - self.agreeing;
        let control = (chance_of(apart, judged) < CHANCE)
            .then(|| format!("the A/A control disagrees in {apart} of {judged} cases"));
        [another, before, during, steal, others, void, floor, control].into_iter().flatten().collect()
    }
}

/// The largest noise floor of enough pairs.
fn noisiest(cases: &[CaseAnalysis]) -> Option<f64> {
    let enough =
        |case: &&CaseAnalysis| case.noise.control.is_some_and(|control| control.ratio.samples >= MIN_PAIRS);
    cases.iter().filter(enough).map(|case| case.noise.floor).reduce(f64::max)
}

/// What was used beside the measurement. Ticks are coarse, so a short block may show less than nothing.
fn others(block: &Block, cpus: u32) -> Option<f64> {
    let named = ["control plane", "front"];
    let beside = block.parts.iter().filter(|part| named.contains(&part.name.as_str()));
    let own = block.target.cpu_us + block.generator_cpu_us + block.upstream_cpu_us;
    let own = own + beside.map(|part| part.cpu_us).sum::<f64>();
    let available = block.machine.span_s.unwrap_or(block.measured_s) * 1e6 * f64::from(cpus);
    (available > 0.0).then_some(((block.machine.busy_us? - own) / available).max(0.0))
}

/// How probable it is that at least so many of so many intervals miss by chance.
fn chance_of(misses: usize, of: usize) -> f64 {
    let mut exactly = (1.0 - MISSES).powi(of as i32);
    let mut fewer = 0.0;
    for count in 0..misses {
        fewer += exactly;
        exactly *= (of - count) as f64 / (count + 1) as f64 * MISSES / (1.0 - MISSES);
    }
    1.0 - fewer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_control_of_twenty_disagrees_by_chance_and_three_of_six_do_not() {
        assert!((chance_of(0, 6) - 1.0).abs() < 1e-12);
        assert!((chance_of(1, 1) - 0.05).abs() < 1e-12);
        assert!(chance_of(1, 20) > 0.6);
        assert!(chance_of(3, 6) < 0.003);
    }
}

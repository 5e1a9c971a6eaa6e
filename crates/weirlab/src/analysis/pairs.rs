//! Ratios between targets, from blocks of the same round.
use super::sample::{Sample, counted};
use crate::result::Cell;
use crate::stats::{self, Estimate};
use serde::Serialize;
use std::collections::BTreeMap;

/// One target over another.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// The other's label.
    pub to: String,
    /// Of CPU per request.
    pub cpu: Option<Effect>,
    /// Of right answers per second.
    pub rps: Option<Effect>,
    /// Of the blocks' medians of response time; of service time, where one generator knows no other.
    pub p50: Option<Effect>,
    /// Of the blocks' 99th percentiles, likewise.
    pub p99: Option<Effect>,
}

/// A ratio with what there is to know about its certainty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// The ratio with its interval, over pairs of blocks.
    pub ratio: Estimate,
    /// The smallest effect that would have shown with a power of 80 %: 0.05 for 5 %.
    pub detectable: f64,
    /// The p-value of Wilcoxon's signed-rank test, as a check.
    pub p: f64,
}

impl Effect {
    /// From pairs of the other's value and this one's.
    pub(crate) fn of(pairs: &[(f64, f64)], seed: u64) -> Option<Effect> {
        let ratio = stats::ratio(pairs, seed)?;
        let detectable = stats::minimum_detectable_effect(&ratio);
        Some(Effect { ratio, detectable, p: stats::wilcoxon(&stats::log_ratios(pairs)) })
    }

    fn inverse(self) -> Effect {
        Effect { ratio: self.ratio.inverse(), ..self }
    }
}

type Latency = fn(&Sample) -> Option<f64>;

/// Whether the generator of these blocks knows when each request was due.
fn knows_due(rounds: &Rounds) -> bool {
    rounds.values().flatten().all(|sample| sample.knows_due)
}

impl Ratio {
    fn of(this: &Rounds, other: &Rounds, to: &str, seed: u64) -> Ratio {
        let effect = |of: fn(&Sample) -> Option<f64>| Effect::of(&paired(this, other, of), seed);
        let (p50, p99): (Latency, Latency) = match knows_due(this) == knows_due(other) {
            true => (|sample| sample.p50_ms, |sample| sample.p99_ms),
            // From the scheduled instant is longer than from sending: both are to be of one clock.
            false => (|sample| sample.service_ms[0], |sample| sample.service_ms[1]),
        };
        Ratio {
            to: to.to_owned(),
            cpu: effect(|sample| Some(sample.cpu_us)),
            rps: effect(|sample| Some(sample.rps)),
            p50: effect(p50),
            p99: effect(p99),
        }
    }

    fn inverse(&self, to: &str) -> Ratio {
        Ratio {
            to: to.to_owned(),
            cpu: self.cpu.map(Effect::inverse),
            rps: self.rps.map(Effect::inverse),
            p50: self.p50.map(Effect::inverse),
            p99: self.p99.map(Effect::inverse),
        }
    }
}

/// Blocks that count, by round; of several blocks of one round, all.
pub(super) type Rounds = BTreeMap<u32, Vec<Sample>>;

/// A cell's blocks that count.
pub(super) fn rounds(cell: &Cell) -> Rounds {
    let mut rounds = Rounds::new();
    for block in counted(cell) {
        rounds.entry(block.round).or_default().push(Sample::of(block));
    }
    rounds
}

/// The values of the other and of this one in the rounds that both have. Two blocks of a round (ABBA) make one pair of
/// their means: they are what cancels a drift within the round.
pub(super) fn paired(this: &Rounds, other: &Rounds, of: fn(&Sample) -> Option<f64>) -> Vec<(f64, f64)> {
    let value = |samples: &[Sample]| stats::mean(&samples.iter().filter_map(of).collect::<Vec<_>>());
    let both = this.iter().filter_map(|(round, samples)| Some((other.get(round)?, samples)));
    both.filter_map(|(other, this)| Some((value(other)?, value(this)?))).collect()
}

/// For each cell, its ratios to all others.
pub(super) fn between(cells: &[&Cell], seed: u64) -> Vec<Vec<Ratio>> {
    let rounds: Vec<Rounds> = cells.iter().map(|cell| rounds(cell)).collect();
    let mut ratios: Vec<Vec<Ratio>> = vec![Vec::new(); cells.len()];
    for this in 0..cells.len() {
        for other in 0..this {
            let ratio = Ratio::of(&rounds[this], &rounds[other], &cells[other].target, seed);
            ratios[other].push(ratio.inverse(&cells[this].target));
            ratios[this].push(ratio);
        }
    }
    ratios
}

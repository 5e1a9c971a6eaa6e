//! When enough is known to call a version slower than another. Pure: the samples so far in, a decision out.
//!
//! Blocks are added until the interval is narrow enough or the time is over; never until it excludes 1, which it would
//! sooner or later do by chance. A suspicion counts only if a second series of blocks, measured afresh, bears it out.
use crate::stats::{self, Estimate};
use std::fmt;

/// The interval is narrow enough when half of it, as a logarithm, is at most this share of the wanted effect.
const PRECISION: f64 = 0.4;

/// The same of the second series alone, which only has to lean the same way as the first.
const PRECISION_AGAIN: f64 = 0.5;

/// Fewer pairs may look precise by luck.
const MIN_PAIRS: usize = 8;

/// CPU per request of the two versions in one round: the old one's and the new one's.
pub type Pair = (f64, f64);

/// What the old version cost in a round, in which it was measured twice, as itself and as the A/A control; none where
/// neither block counts. The mean of both scatters less than either, so that fewer rounds suffice. It is the
/// geometric one, since costs are compared by their ratio.
pub fn old_cost(base: Option<f64>, control: Option<f64>) -> Option<f64> {
    match (base, control) {
        (Some(base), Some(control)) => Some((base * control).sqrt()),
        (one, other) => one.or(other),
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Measure another round.
    Continue,
    /// A slowdown by the wanted effect is excluded.
    Pass,
    /// It is slower. Of the first series: a suspicion, to be confirmed by a second one.
    Regression,
    /// The time is over and the samples are inconclusive, or too few, or noisier than the wanted effect.
    CannotTell,
}

/// Why nothing may pass, whatever the ratio is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doubt {
    /// Fewer pairs than a verdict takes.
    FewPairs,
    /// The A/A control's interval reaches this far from 1 (0.5 for 50 %), which is beyond the wanted effect.
    Noise(f64),
}

impl fmt::Display for Doubt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::FewPairs => {
                write!(formatter, "a verdict takes {MIN_PAIRS} pairs: give it a longer --limit")
            }
            Doubt::Noise(floor) if floor.is_finite() => {
                write!(formatter, "the A/A control reaches as far as {:.1} %", floor * 100.0)
            }
            Doubt::Noise(_) => formatter.write_str("the A/A control has too few pairs"),
        }
    }
}

/// A decision, and what led to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// What to do next.
    pub decision: Decision,
    /// New over old; none without pairs.
    pub ratio: Option<Estimate>,
    /// Why nothing could pass, if so.
    pub doubt: Option<Doubt>,
}

/// What is wanted of a gate.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The slowdown that must not be missed: 0.1 for 10 %.
    pub effect: f64,
    /// The seed of the resamples.
    pub seed: u64,
}

impl Rule {
    /// Judges the first series. `Regression` asks for a second one. `control` has the pairs of the old version with
    /// itself, the A/A control; none without one.
    pub fn first(&self, pairs: &[Pair], control: &[Pair], time_is_left: bool) -> Finding {
        let ratio = stats::ratio(pairs, self.seed);
        let doubt = self.doubt(ratio, self.floor(control));
        let decision = match ratio {
            _ if time_is_left && (doubt.is_some() || !self.is_narrow(ratio, PRECISION)) => Decision::Continue,
            Some(ratio) if ratio.low > 1.0 => Decision::Regression,
            ratio => self.pass(ratio, doubt),
        };
        Finding { decision, ratio, doubt }
    }

    /// Judges the second series, and both together. It is a regression if both together are above 1 by at least half
    /// the wanted effect and by more than the A/A control (of both series) differs from 1, and the second series alone
    /// leans the same way by a quarter of the effect.
    pub fn second(&self, first: &[Pair], second: &[Pair], control: &[Pair], time_is_left: bool) -> Finding {
        let alone = stats::ratio(second, self.seed);
        if time_is_left && !self.is_narrow(alone, PRECISION_AGAIN) {
            return Finding { decision: Decision::Continue, ratio: alone, doubt: None };
        }
        let both: Vec<Pair> = first.iter().chain(second).copied().collect();
        let (ratio, floor) = (stats::ratio(&both, self.seed), self.floor(control));
        let doubt = self.doubt(ratio, floor);
        let beyond = floor.max(self.effect.ln_1p() / 2.0);
        let leans = alone.is_some_and(|again| again.value.ln() >= self.effect.ln_1p() / 4.0);
        let bears_out = |ratio: &Estimate| {
            leans && ratio.samples >= MIN_PAIRS && ratio.low > 1.0 && ratio.value.ln() >= beyond
        };
        let decision = match ratio {
            Some(ratio) if bears_out(&ratio) => Decision::Regression,
            ratio => self.pass(ratio, doubt),
        };
        Finding { decision, ratio, doubt }
    }

    fn pass(&self, ratio: Option<Estimate>, doubt: Option<Doubt>) -> Decision {
        match ratio {
            Some(ratio) if doubt.is_none() && ratio.high < 1.0 + self.effect => Decision::Pass,
            _ => Decision::CannotTell,
        }
    }

    fn is_narrow(&self, ratio: Option<Estimate>, precision: f64) -> bool {
        ratio.is_some_and(|ratio| {
            ratio.samples >= MIN_PAIRS && ratio.half_width() <= precision * self.effect.ln_1p()
        })
    }

    /// How far the interval of the A/A control reaches from 1, as a logarithm.
    fn floor(&self, control: &[Pair]) -> f64 {
        stats::ratio(control, self.seed).map_or(0.0, |noise| noise.low.ln().abs().max(noise.high.ln().abs()))
    }

    fn doubt(&self, ratio: Option<Estimate>, floor: f64) -> Option<Doubt> {
        match ratio {
            Some(ratio) if ratio.samples >= MIN_PAIRS => {
                (floor > self.effect.ln_1p()).then(|| Doubt::Noise(floor.exp_m1()))
            }
            _ => Some(Doubt::FewPairs),
        }
    }
}

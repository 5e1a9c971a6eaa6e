//! When enough is known to call a version slower than another. Pure: the samples so far in, a decision out.
//!
//! Blocks are added until the interval is narrow enough or the time is over; never until it excludes 1, which it would
//! sooner or later do by chance. A suspicion counts only if a second series of blocks, measured afresh, bears it out.
use crate::stats::{self, Estimate};

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
    /// The time is over and the samples are inconclusive.
    CannotTell,
}

/// A decision, and the ratio that led to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// What to do next.
    pub decision: Decision,
    /// New over old; none without pairs.
    pub ratio: Option<Estimate>,
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
    /// Judges the first series. `Regression` asks for a second one.
    pub fn first(&self, pairs: &[Pair], time_is_left: bool) -> Finding {
        self.finding(pairs, PRECISION, time_is_left, |ratio| ratio.low > 1.0)
    }

    /// Judges the second series, and both together. It is a regression if both together are above 1 by at least half
    /// the wanted effect and by more than the A/A control (pairs of the old version with itself, from both series;
    /// none without one) differs from 1, and the second series alone leans the same way by a quarter of the effect.
    pub fn second(&self, first: &[Pair], second: &[Pair], control: &[Pair], time_is_left: bool) -> Finding {
        let both: Vec<Pair> = first.iter().chain(second).copied().collect();
        let floor = stats::ratio(control, self.seed)
            .map_or(0.0, |noise| noise.low.ln().abs().max(noise.high.ln().abs()));
        let beyond = floor.max(self.effect.ln_1p() / 2.0);
        let bears_out = |ratio: &Estimate| {
            let again = stats::ratio(second, self.seed).map_or(0.0, |again| again.value.ln());
            ratio.low > 1.0 && ratio.value.ln() >= beyond && again >= self.effect.ln_1p() / 4.0
        };
        let alone = self.finding(second, PRECISION_AGAIN, time_is_left, |_| false);
        if alone.decision == Decision::Continue {
            return alone;
        }
        self.finding(&both, PRECISION, false, bears_out)
    }

    fn finding(
        &self,
        pairs: &[Pair],
        precision: f64,
        time_is_left: bool,
        slower: impl Fn(&Estimate) -> bool,
    ) -> Finding {
        let ratio = stats::ratio(pairs, self.seed);
        let narrow = ratio.filter(|ratio| {
            ratio.samples >= MIN_PAIRS && ratio.half_width() <= precision * self.effect.ln_1p()
        });
        let decision = match ratio {
            _ if narrow.is_none() && time_is_left => Decision::Continue,
            Some(ratio) if slower(&ratio) => Decision::Regression,
            Some(ratio) if ratio.high < 1.0 + self.effect => Decision::Pass,
            _ => Decision::CannotTell,
        };
        Finding { decision, ratio }
    }
}

//! How small an effect samples could have shown.
use super::Estimate;
use super::bootstrap::{estimate_with, location};
use super::distribution::{student_power, student_two_sided};
use fastrand::Rng;

/// Resamples of each imagined experiment: fewer than for an interval that is shown, since many are averaged.
const INNER_RESAMPLES: usize = 1_000;

/// The smallest effect on a ratio (0.05 for 5 %) that as many pairs with the same spread would show with a power of
/// 80 %.
pub fn minimum_detectable_effect(ratio: &Estimate) -> f64 {
    let freedom = ratio.samples.saturating_sub(1).max(1);
    (ratio.half_width() * (1.0 + student_power(freedom) / student_two_sided(freedom))).exp() - 1.0
}

/// The share of experiments with so many pairs whose interval would exclude 1 on the right side if the true ratio were
/// 1 + `effect`: imagined by drawing from recorded log-ratios, shifted to that effect.
pub fn power_at(log_ratios: &[f64], effect: f64, pairs: usize, resamples: usize, seed: u64) -> f64 {
    if log_ratios.is_empty() || pairs == 0 || resamples == 0 {
        return 0.0;
    }
    let shift = effect.ln_1p() - location(log_ratios);
    let mut random = Rng::with_seed(seed);
    let shown = |random: &mut Rng| {
        let drawn: Vec<f64> =
            (0..pairs).map(|_| log_ratios[random.usize(..log_ratios.len())] + shift).collect();
        estimate_with(&drawn, INNER_RESAMPLES, random.u64(..))
            .is_some_and(|found| if effect < 0.0 { found.high < 0.0 } else { found.low > 0.0 })
    };
    (0..resamples).filter(|_| shown(&mut random)).count() as f64 / resamples as f64
}

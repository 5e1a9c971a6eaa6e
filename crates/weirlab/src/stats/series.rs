//! Whether a series has settled, and where it is going.
use super::{location, mean, median};

/// How many values are averaged before MSER.
const BATCH: usize = 5;

/// The most that a steady series may scatter: its coefficient of variation, in batches.
const SCATTER: f64 = 0.10;

/// The most that a steady series may change from its beginning to its end, as a share of its level.
const CHANGE: f64 = 0.05;

/// What is known of a series' beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// Whether it settled: what is left of it is at least half, scatters by at most 10 % from batch to batch, and
    /// changes by at most 5 % from its beginning to its end.
    pub steady: bool,
    /// How many values of the beginning belong to the warm-up (MSER-5).
    pub settled_at: usize,
    /// The level after that.
    pub level: f64,
    /// The coefficient of variation after that, in batches of five.
    pub scatter: f64,
    /// The change from beginning to end after that, by the Theil–Sen slope, as a share of the level.
    pub change: f64,
}

/// Judges a series such as answers in each tenth of a second.
pub fn steady(series: &[f64]) -> Steady {
    let batches: Vec<f64> = series.chunks_exact(BATCH).filter_map(mean).collect();
    let cut = mser(&batches);
    let rest = &batches[cut..];
    let level = if rest.is_empty() { 0.0 } else { location(rest) };
    let scatter = deviation(rest) / level;
    let change = slope(rest) * rest.len().saturating_sub(1) as f64 / level;
    let settled = cut * 2 <= batches.len() && scatter <= SCATTER && change.abs() <= CHANGE;
    Steady { steady: rest.len() >= 3 && settled, settled_at: cut * BATCH, level, scatter, change }
}

/// The cut that makes the mean of the rest most certain, at most half of the series: White's MSER.
fn mser(batches: &[f64]) -> usize {
    let error = |cut: usize| {
        let rest = &batches[cut..];
        deviation(rest).powi(2) / rest.len() as f64
    };
    (0..=batches.len() / 2)
        .filter(|cut| *cut < batches.len())
        .min_by(|a, b| error(*a).total_cmp(&error(*b)))
        .unwrap_or(0)
}

/// The standard deviation.
fn deviation(values: &[f64]) -> f64 {
    let middle = mean(values).unwrap_or(0.0);
    let squares: Vec<f64> = values.iter().map(|value| (value - middle).powi(2)).collect();
    mean(&squares).unwrap_or(0.0).sqrt()
}

/// The Theil–Sen slope, per step: the median of the slopes between all pairs, which a few outliers do not move.
pub fn slope(series: &[f64]) -> f64 {
    let from = |first: usize| {
        let rest = series.iter().enumerate().skip(first + 1);
        rest.map(move |(second, value)| (value - series[first]) / (second - first) as f64)
    };
    let slopes: Vec<f64> = (0..series.len()).flat_map(from).collect();
    median(&slopes).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    fn noisy(length: usize, level: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut random = Rng::with_seed(7);
        (0..length).map(|i| level(i) * (1.0 + 0.05 * (random.f64() - 0.5))).collect()
    }

    #[test]
    fn a_level_series_is_steady() {
        let judged = steady(&noisy(100, |_| 1000.0));
        assert!(judged.steady, "{judged:?}");
        assert!((judged.level - 1000.0).abs() < 10.0);
    }

    #[test]
    fn a_warm_up_is_cut_off() {
        let judged = steady(&noisy(200, |i| if i < 40 { 500.0 } else { 1000.0 }));
        assert!(judged.steady, "{judged:?}");
        assert!((35..=45).contains(&judged.settled_at), "{judged:?}");
    }

    #[test]
    fn a_series_that_climbs_or_swings_is_not_steady() {
        assert!(!steady(&noisy(100, |i| 1000.0 + 5.0 * i as f64)).steady);
        assert!(!steady(&noisy(100, |i| if i / 10 % 2 == 0 { 700.0 } else { 1300.0 })).steady);
        assert!(!steady(&[]).steady);
        assert!(!steady(&[1.0, 1.0]).steady);
        assert!(!steady(&[0.0; 100]).steady);
    }

    #[test]
    fn the_slope_ignores_an_outlier() {
        let mut series: Vec<f64> = (0..20).map(|i| 3.0 + 2.0 * f64::from(i)).collect();
        series[5] = 1e6;
        assert!((slope(&series) - 2.0).abs() < 1e-9);
        assert_eq!(slope(&[1.0]), 0.0);
    }
}

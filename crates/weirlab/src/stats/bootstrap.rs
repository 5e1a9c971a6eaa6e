//! Where the middle of few samples lies, and how sure that is.
use super::distribution::{normal_below, student_two_sided};
use fastrand::Rng;
use serde::Serialize;

/// How often samples are drawn again.
pub const RESAMPLES: usize = 10_000;

/// Of the samples, sorted, the share cut off at each end before the mean is taken.
const TRIM: f64 = 0.2;

/// Of fewer samples resamples say too little.
const MIN_SAMPLES: usize = 5;

/// A value with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The estimate itself.
    pub value: f64,
    /// The interval's lower end; minus infinity where too few samples say nothing.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// From how many samples.
    pub samples: usize,
}

impl Estimate {
    /// Whether the interval contains a value.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// The same under a function that grows.
    pub fn map(self, function: impl Fn(f64) -> f64) -> Estimate {
        Estimate { value: function(self.value), low: function(self.low), high: function(self.high), ..self }
    }

    /// Of a ratio: the ratio the other way round.
    pub fn inverse(self) -> Estimate {
        Estimate { value: 1.0 / self.value, low: 1.0 / self.high, high: 1.0 / self.low, ..self }
    }

    /// Of a ratio: half the width of the interval of its logarithm.
    pub fn half_width(&self) -> f64 {
        (self.high.ln() - self.low.ln()) / 2.0
    }
}

/// The mean of the samples without the lowest and the highest fifth.
pub fn location(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    trimmed_mean(&sorted, &vec![1; samples.len()])
}

/// The 95 % confidence interval of the location of samples that may be negative, such as differences and logarithms of
/// ratios. One sample gives an interval without ends, none gives nothing.
pub fn estimate(samples: &[f64], seed: u64) -> Option<Estimate> {
    estimate_with(samples, RESAMPLES, seed)
}

/// The same for quantities above zero, which vary by factors rather than by summands.
pub fn quantities(samples: &[f64], seed: u64) -> Option<Estimate> {
    let logarithms: Vec<f64> = samples.iter().filter(|value| **value > 0.0).map(|value| value.ln()).collect();
    Some(estimate(&logarithms, seed)?.map(f64::exp))
}

/// The ratio of the second of each pair to its first.
pub fn ratio(pairs: &[(f64, f64)], seed: u64) -> Option<Estimate> {
    Some(estimate(&log_ratios(pairs), seed)?.map(f64::exp))
}

/// Logarithms of second over first; a pair that is not above zero says nothing and is left out.
pub fn log_ratios(pairs: &[(f64, f64)]) -> Vec<f64> {
    pairs.iter().filter(|(first, second)| *first > 0.0 && *second > 0.0).map(|(a, b)| (b / a).ln()).collect()
}

pub(super) fn estimate_with(samples: &[f64], resamples: usize, seed: u64) -> Option<Estimate> {
    let value = (!samples.is_empty()).then(|| location(samples))?;
    let (low, high) = match samples.len() {
        1 => (f64::NEG_INFINITY, f64::INFINITY),
        count if count < MIN_SAMPLES => student_interval(samples, value),
        _ => bootstrap_interval(samples, resamples, seed),
    };
    Some(Estimate { value, low, high, samples: samples.len() })
}

/// Of so few samples nothing is trimmed, and resamples cannot reach beyond the samples themselves, which all lie on one
/// side of the truth too often.
fn student_interval(samples: &[f64], mean: f64) -> (f64, f64) {
    let n = samples.len() as f64;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    let reach = student_two_sided(samples.len() - 1) * (squares / (n - 1.0) / n).sqrt();
    (mean - reach, mean + reach)
}

/// The quantiles of the location of resamples. Not those at 2.5 and 97.5 %, which lie too close together for few
/// samples, but farther out: where the normal distribution has what Student's t with its wider spread has there.
fn bootstrap_interval(samples: &[f64], resamples: usize, seed: u64) -> (f64, f64) {
    let n = samples.len() as f64;
    let tail = normal_below(-student_two_sided(samples.len() - 1) * (n / (n - 1.0)).sqrt());
    // The same distance from both ends: of the samples' negatives the interval is the negative.
    let outside = (tail * resamples as f64) as usize;
    let mut locations = locations_of_resamples(samples, resamples, seed);
    let (_, low, rest) = locations.select_nth_unstable_by(outside, f64::total_cmp);
    let low = *low;
    match resamples.checked_sub(2 * outside + 2) {
        Some(above) => (low, *rest.select_nth_unstable_by(above, f64::total_cmp).1),
        None => (low, low),
    }
}

/// Draws are counted by the rank of what is drawn, so that no resample has to be sorted.
fn locations_of_resamples(samples: &[f64], resamples: usize, seed: u64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_unstable_by(|a, b| samples[*a].total_cmp(&samples[*b]));
    let sorted: Vec<f64> = order.iter().map(|index| samples[*index]).collect();
    let mut ranks = vec![0; samples.len()];
    for (rank, index) in order.into_iter().enumerate() {
        ranks[index] = rank;
    }
    let mut random = Rng::with_seed(seed);
    let mut counts = vec![0; samples.len()];
    let mut draw = || {
        counts.fill(0);
        for _ in 0..ranks.len() {
            counts[ranks[random.usize(..ranks.len())]] += 1;
        }
        trimmed_mean(&sorted, &counts)
    };
    (0..resamples).map(|_| draw()).collect()
}

/// Of sorted values, each as often as is counted.
fn trimmed_mean(sorted: &[f64], counts: &[usize]) -> f64 {
    let cut = (sorted.len() as f64 * TRIM) as usize;
    let kept = sorted.len() - 2 * cut;
    let (mut to_skip, mut to_take, mut sum) = (cut, kept, 0.0);
    for (value, count) in sorted.iter().zip(counts) {
        let skipped = to_skip.min(*count);
        let taken = to_take.min(count - skipped);
        sum += value * taken as f64;
        to_skip -= skipped;
        to_take -= taken;
    }
    sum / kept as f64
}

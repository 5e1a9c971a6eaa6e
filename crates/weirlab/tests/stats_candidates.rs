//! Why the interval is what it is: estimators and intervals that were considered, under the same noise. The table in
//! docs/laboratory/statistics.md is printed by
//! `cargo test --profile quick -p weirlab --test main stats_candidates:: -- --ignored --nocapture`.

use crate::sample::noise::{NOISES, Noise, pairs};
use fastrand::Rng;
use weirlab::stats;

const RUNS: usize = 1_000;
const RESAMPLES: usize = 600;

/// Where the middle of samples lies.
#[derive(Clone, Copy, Debug)]
enum Location {
    Mean,
    Trimmed,
    Median,
    HodgesLehmann,
}

/// How an interval is drawn around it.
#[derive(Clone, Copy, Debug)]
enum Method {
    /// The quantiles of resamples at 2.5 and 97.5 %.
    Percentile,
    /// The same, farther out by as much as Student's t is wider than the normal distribution.
    Expanded,
    /// Bias-corrected and accelerated.
    Bca,
    /// Student's t, with its distribution taken from resamples.
    BootstrapT,
    /// Student's t times the spread of the resamples.
    Spread,
}

impl Location {
    fn of(self, samples: &mut [f64]) -> f64 {
        match self {
            Location::Mean => stats::mean(samples).unwrap_or(f64::NAN),
            Location::Trimmed => stats::location(samples),
            Location::Median => stats::median(samples).unwrap_or(f64::NAN),
            Location::HodgesLehmann => {
                let all = &*samples;
                let with_later = |i: usize| all[i..].iter().map(move |other| (all[i] + other) / 2.0);
                let averages: Vec<f64> = (0..all.len()).flat_map(with_later).collect();
                stats::median(&averages).unwrap_or(f64::NAN)
            }
        }
    }

    /// The standard error by formula: of the mean, or of the trimmed mean from winsorised samples.
    fn error(self, samples: &[f64]) -> f64 {
        let n = samples.len();
        let cut = if matches!(self, Location::Trimmed) { n / 5 } else { 0 };
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (low, high) = (sorted[cut], sorted[n - 1 - cut]);
        let kept: Vec<f64> = sorted.iter().map(|sample| sample.clamp(low, high)).collect();
        deviation(&kept) / (n as f64).sqrt() * n as f64 / (n - 2 * cut) as f64
    }
}

fn deviation(samples: &[f64]) -> f64 {
    let mean = stats::mean(samples).unwrap_or(f64::NAN);
    (samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (samples.len() as f64 - 1.0)).sqrt()
}

/// Student's t at 0.975.
fn student(freedom: usize) -> f64 {
    match freedom {
        4 => 2.7764,
        7 => 2.3646,
        19 => 2.0930,
        other => 1.96 + 2.4 / other as f64,
    }
}

/// The standard normal distribution below z, by adding up its density.
fn below(z: f64) -> f64 {
    let step = z / 400.0;
    let density = |x: f64| (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
    0.5 + (0..400).map(|i| density(step * (f64::from(i) + 0.5)) * step).sum::<f64>()
}

fn quantile_of_normal(p: f64) -> f64 {
    let halve = |(low, high): (f64, f64), _| {
        let middle = (low + high) / 2.0;
        if below(middle) < p { (middle, high) } else { (low, middle) }
    };
    (0..30).fold((-6.0, 6.0), halve).0
}

fn quantile(sorted: &[f64], p: f64) -> f64 {
    sorted[((p * sorted.len() as f64) as usize).min(sorted.len() - 1)]
}

fn interval(location: Location, method: Method, samples: &[f64], random: &mut Rng) -> (f64, f64) {
    let (n, value) = (samples.len() as f64, location.of(&mut samples.to_vec()));
    let widening = student(samples.len() - 1) * (n / (n - 1.0)).sqrt();
    let mut draw =
        || -> Vec<f64> { samples.iter().map(|_| samples[random.usize(..samples.len())]).collect() };
    let drawn = |of: &dyn Fn(&mut Vec<f64>) -> f64, draw: &mut dyn FnMut() -> Vec<f64>| {
        let mut values: Vec<f64> = (0..RESAMPLES).map(|_| of(&mut draw())).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    };
    if let Method::BootstrapT = method {
        // A resample of equal samples has no spread: it counts as one that lies very far out.
        let t = |drawn: &mut Vec<f64>| {
            (location.of(&mut drawn.clone()) - value) / location.error(drawn).max(1e-9)
        };
        let (sorted, error) = (drawn(&t, &mut draw), location.error(samples));
        return (value - quantile(&sorted, 0.975) * error, value - quantile(&sorted, 0.025) * error);
    }
    let sorted = drawn(&|drawn| location.of(drawn), &mut draw);
    let between = |low: f64, high: f64| (quantile(&sorted, low), quantile(&sorted, high));
    match method {
        Method::Expanded => between(below(-widening), below(widening)),
        Method::Bca => {
            let (low, high) = bca(location, samples, value, &sorted);
            between(low, high)
        }
        Method::Spread => (value - widening * deviation(&sorted), value + widening * deviation(&sorted)),
        Method::Percentile | Method::BootstrapT => between(0.025, 0.975),
    }
}

/// Where BCa looks for the ends of the interval.
fn bca(location: Location, samples: &[f64], value: f64, sorted: &[f64]) -> (f64, f64) {
    let share = |wanted: &dyn Fn(f64) -> bool| {
        sorted.iter().filter(|x| wanted(**x)).count() as f64 / sorted.len() as f64
    };
    let bias = quantile_of_normal(share(&|x| x < value) + share(&|x| x == value) / 2.0);
    let without = |left_out: usize| {
        let mut rest = samples.to_vec();
        rest.remove(left_out);
        location.of(&mut rest)
    };
    let jackknife: Vec<f64> = (0..samples.len()).map(without).collect();
    let mean = stats::mean(&jackknife).unwrap_or(f64::NAN);
    let power = |p: i32| jackknife.iter().map(|x| (mean - x).powi(p)).sum::<f64>();
    let acceleration = power(3) / 6.0 / power(2).powf(1.5).max(1e-300);
    let end = |z: f64| below(bias + (bias + z) / (1.0 - acceleration * (bias + z)));
    (end(-1.96), end(1.96))
}

/// The share of intervals that contain the truth, and their median half-width, in percent.
fn coverage(location: Location, method: Method, noise: Noise, n: usize) -> String {
    let mut random = Rng::with_seed(1);
    let (mut hits, mut widths) = (0, Vec::new());
    for _ in 0..RUNS {
        let samples = stats::log_ratios(&pairs(noise, 0.03, n, &mut random));
        let (low, high) = interval(location, method, &samples, &mut random);
        hits += usize::from(low <= 0.0 && 0.0 <= high);
        widths.push((high - low) * 50.0);
    }
    let (share, width) = (hits as f64 * 100.0 / RUNS as f64, stats::median(&widths).unwrap_or(f64::NAN));
    if width < 1e3 { format!("{share:.1} (±{width:.1})") } else { format!("{share:.1} (±∞)") }
}

#[test]
#[ignore = "prints the table of the documentation; takes minutes when built for speed"]
fn table() {
    use Location::{HodgesLehmann, Mean, Median, Trimmed};
    use Method::{Bca, BootstrapT, Expanded, Percentile, Spread};
    let methods = [Percentile, Expanded, Bca, BootstrapT, Spread];
    println!("| pairs | location | interval | {} |", NOISES.map(|noise| format!("{noise:?}")).join(" | "));
    println!("|---|---|---{}|", "|---".repeat(NOISES.len()));
    for n in [5, 8, 20] {
        for location in [Mean, Trimmed, Median, HodgesLehmann] {
            let known_error = matches!(location, Mean | Trimmed);
            for method in methods.into_iter().filter(|method| known_error || !matches!(method, BootstrapT)) {
                let cells = NOISES.map(|noise| coverage(location, method, noise, n)).join(" | ");
                println!("| {n} | {location:?} | {method:?} | {cells} |");
            }
        }
    }
}

//! How often the interval contains the truth, by simulation. The table in docs/laboratory/statistics.md is printed by
//! `cargo test --profile quick -p weirlab --test main stats_coverage:: -- --ignored --nocapture`.

use crate::sample::noise::{NOISES, Noise, pairs};
use fastrand::Rng;
use weirlab::stats;

/// The share of runs whose interval contains the true ratio, and the median width of the interval.
fn coverage(noise: Noise, n: usize, runs: usize) -> (f64, f64) {
    let mut random = Rng::with_seed(1);
    let mut hits = 0;
    let mut widths = Vec::new();
    for run in 0..runs {
        let Some(ratio) = stats::ratio(&pairs(noise, 0.03, n, &mut random), run as u64) else { continue };
        hits += usize::from(ratio.contains(1.0));
        widths.push(ratio.high - ratio.low);
    }
    (hits as f64 / runs as f64, stats::median(&widths).unwrap_or(f64::NAN))
}

/// 24 runs of each noise: far too few to see whether it is 94 or 96 %, enough to see an interval that is half as wide as it
/// should be (70 %), as the plain percentile interval nearly is for 5 pairs, or twice as wide.
#[test]
fn intervals_contain_the_truth_about_as_often_as_they_say() {
    for n in [5, 9] {
        let hits: f64 =
            NOISES.iter().map(|noise| coverage(*noise, n, 24).0).sum::<f64>() / NOISES.len() as f64;
        assert!((0.89..=0.995).contains(&hits), "n = {n}: {hits}");
    }
}

#[test]
#[ignore = "prints the table of the documentation; takes a minute when built for speed"]
fn table() {
    println!("| pairs | {} |", NOISES.map(|noise| format!("{noise:?}")).join(" | "));
    println!("|---{}|", "|---".repeat(NOISES.len()));
    for n in [3, 5, 6, 8, 10, 12, 16, 20, 30, 40] {
        let cell = |noise| {
            let (hits, width) = coverage(noise, n, 2_000);
            format!("{:.1} % (±{:.1} %)", hits * 100.0, width * 50.0)
        };
        println!("| {n} | {} |", NOISES.map(cell).join(" | "));
    }
}

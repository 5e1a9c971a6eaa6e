//! What intervals, effects and power must satisfy whatever the samples are.

use crate::sample::noise::{Noise, pairs};
use fastrand::Rng;
use weirlab::stats::{self, Estimate};

fn some_pairs(n: usize, seed: u64) -> Vec<(f64, f64)> {
    pairs(Noise::Contaminated, 0.03, n, &mut Rng::with_seed(seed))
}

#[test]
fn the_same_seed_gives_the_same_interval() {
    let pairs = some_pairs(9, 3);
    assert_eq!(stats::ratio(&pairs, 5), stats::ratio(&pairs, 5));
    assert_ne!(stats::ratio(&pairs, 5), stats::ratio(&pairs, 6));
}

#[test]
fn the_interval_surrounds_the_estimate_within_the_samples() {
    for n in 5..30 {
        let samples = stats::log_ratios(&some_pairs(n, n as u64));
        let Estimate { value, low, high, samples: count } = stats::estimate(&samples, 1).unwrap();
        let (least, most) = samples.iter().fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(*x), b.max(*x)));
        assert!(least <= low && low < value && value < high && high <= most, "{n}: {low} {value} {high}");
        assert_eq!(count, n);
    }
}

#[test]
fn the_other_way_round_the_ratio_is_the_inverse() {
    for n in [2, 4, 5, 12] {
        let pairs = some_pairs(n, n as u64);
        let swapped: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
        let (there, back) = (stats::ratio(&pairs, 1).unwrap(), stats::ratio(&swapped, 1).unwrap().inverse());
        for (one, other) in [(there.value, back.value), (there.low, back.low), (there.high, back.high)] {
            assert!((one - other).abs() < 1e-12, "{n}: {there:?} {back:?}");
        }
    }
}

#[test]
fn a_factor_on_one_side_is_a_factor_of_the_ratio() {
    let pairs = some_pairs(10, 4);
    let slower: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*a, b * 1.1)).collect();
    let (plain, slowed) = (stats::ratio(&pairs, 1).unwrap(), stats::ratio(&slower, 1).unwrap());
    assert!((slowed.low / plain.low - 1.1).abs() < 1e-9);
    assert!((slowed.high / plain.high - 1.1).abs() < 1e-9);
}

#[test]
fn few_samples_say_little() {
    assert_eq!(stats::ratio(&[], 1), None);
    assert_eq!(stats::ratio(&[(0.0, 1.0), (1.0, 0.0)], 1), None, "what is not above zero has no ratio");
    let one = stats::ratio(&[(1.0, 2.0)], 1).unwrap();
    assert_eq!((one.value, one.low, one.high, one.samples), (2.0, 0.0, f64::INFINITY, 1));
    // Student's t for 1, 2 and 3 of one standard deviation: 2 ± 4.3027 / √3.
    let three = stats::estimate(&[1.0, 2.0, 3.0], 1).unwrap();
    assert!((three.high - 2.0 - 4.3027 / 3f64.sqrt()).abs() < 1e-3, "{three:?}");
}

#[test]
fn one_outlier_does_not_move_the_location() {
    let samples = [1.0, 1.1, 0.9, 1.05, 0.95, 100.0];
    assert!((stats::location(&samples) - 1.025).abs() < 1e-9);
}

#[test]
fn the_detectable_effect_is_detected_in_about_four_of_five_experiments() {
    let recorded = stats::log_ratios(&pairs(Noise::Normal, 0.03, 200, &mut Rng::with_seed(2)));
    let effects: Vec<f64> = (0..20)
        .map(|seed| stats::ratio(&pairs(Noise::Normal, 0.03, 12, &mut Rng::with_seed(seed)), 1).unwrap())
        .map(|ratio| stats::minimum_detectable_effect(&ratio))
        .collect();
    let effect = stats::median(&effects).unwrap();
    let power = stats::power_at(&recorded, effect, 12, 150, 9);
    assert!((0.68..=0.92).contains(&power), "effect {effect}: power {power}");
}

#[test]
fn power_grows_with_effect_and_pairs() {
    let recorded = stats::log_ratios(&pairs(Noise::Normal, 0.03, 40, &mut Rng::with_seed(2)));
    let power = |effect: f64, pairs: usize| stats::power_at(&recorded, effect, pairs, 100, 9);
    assert!(power(0.0, 10) < 0.1);
    assert!(power(0.01, 8) < power(0.05, 8));
    assert!(power(0.03, 6) < power(0.03, 20));
    assert!(power(-0.10, 10) > 0.95, "speed-ups are effects too");
    assert_eq!(stats::power_at(&[], 0.1, 10, 100, 9), 0.0);
}

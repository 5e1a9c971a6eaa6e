//! Whether the gate finds what it must and is silent otherwise, by simulation.
mod sample;

use fastrand::Rng;
use sample::noise::{Noise, pairs};
use weirlab::gate::decide::{Decision, Pair, Rule};

const RULE: Rule = Rule { effect: 0.10, seed: 1 };

/// A gate on noise with a true slowdown: rounds are added as the rule asks for, up to `most` in each series. The
/// decision, and how many rounds it took.
fn gate(noise: Noise, spread: f64, slowdown: f64, most: usize, seed: u64) -> (Decision, usize) {
    let mut random = Rng::with_seed(seed);
    let mut series = |factor: f64| -> Vec<Pair> {
        pairs(noise, spread, most, &mut random).into_iter().map(|(old, new)| (old, new * factor)).collect()
    };
    let (first, second) = (series(1.0 + slowdown), series(1.0 + slowdown));
    let control: Vec<Pair> = series(1.0).into_iter().chain(series(1.0)).collect();
    let (decision, n) = settle(most, |n| RULE.first(&first[..n], n < most).decision);
    if decision != Decision::Regression {
        return (decision, n);
    }
    let again = |m: usize| RULE.second(&first[..n], &second[..m], &control[..n + m], m < most).decision;
    let (decision, m) = settle(most, again);
    (decision, n + m)
}

fn settle(most: usize, decide: impl Fn(usize) -> Decision) -> (Decision, usize) {
    // Below eight pairs it is always another round.
    let decisions = (8..=most).map(|n| (decide(n), n));
    decisions
        .into_iter()
        .find(|(decision, _)| *decision != Decision::Continue)
        .unwrap_or((Decision::Continue, most))
}

#[test]
fn ten_slowdowns_are_found_and_ten_equals_raise_no_alarm() {
    for seed in 0..10 {
        assert_eq!(gate(Noise::Normal, 0.03, 0.10, 40, seed).0, Decision::Regression, "seed {seed}");
        assert_eq!(gate(Noise::Normal, 0.03, 0.0, 40, seed).0, Decision::Pass, "seed {seed}");
    }
}

#[test]
fn without_time_or_precision_it_cannot_tell() {
    let wild: Vec<Pair> = (0..10).map(|i| if i % 2 == 0 { (1.0, 2.0) } else { (2.0, 1.0) }).collect();
    assert_eq!(RULE.first(&wild, true).decision, Decision::Continue);
    assert_eq!(RULE.first(&wild, false).decision, Decision::CannotTell);
    assert_eq!(RULE.first(&[], true).decision, Decision::Continue);
    assert_eq!(RULE.first(&[], false).decision, Decision::CannotTell);
}

#[test]
fn a_clear_difference_does_not_end_it_before_the_interval_is_narrow() {
    let few: Vec<Pair> = pairs(Noise::Normal, 0.01, 7, &mut Rng::with_seed(1));
    let slower: Vec<Pair> = few.iter().map(|(old, new)| (*old, new * 2.0)).collect();
    assert_eq!(RULE.first(&slower, true).decision, Decision::Continue);
    assert_eq!(RULE.first(&slower, false).decision, Decision::Regression);
}

#[test]
fn a_suspicion_that_does_not_return_is_dropped() {
    let calm = pairs(Noise::Normal, 0.02, 12, &mut Rng::with_seed(5));
    let slower: Vec<Pair> = calm.iter().map(|(old, new)| (*old, new * 1.08)).collect();
    assert_eq!(RULE.first(&slower, true).decision, Decision::Regression);
    assert_eq!(RULE.second(&slower, &calm, &[], true).decision, Decision::Pass);
    assert_eq!(RULE.second(&slower, &slower, &[], true).decision, Decision::Regression);
}

#[test]
fn nothing_is_a_regression_that_the_control_could_be_too() {
    let calm = pairs(Noise::Normal, 0.02, 12, &mut Rng::with_seed(5));
    let slower: Vec<Pair> = calm.iter().map(|(old, new)| (*old, new * 1.12)).collect();
    let control = |shift: f64| -> Vec<Pair> { calm.iter().map(|(old, new)| (*old, new * shift)).collect() };
    assert_eq!(RULE.second(&slower, &slower, &control(1.0), true).decision, Decision::Regression);
    assert_eq!(RULE.second(&slower, &slower, &control(0.8), true).decision, Decision::CannotTell);
}

#[test]
#[ignore = "prints the table of the documentation; takes a minute when built for speed"]
fn table() {
    println!(
        "| noise | spread of a block | true slowdown | regression | pass | cannot tell | rounds (median) |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (noise, spread) in
        [(Noise::Normal, 0.03), (Noise::Normal, 0.06), (Noise::Contaminated, 0.03), (Noise::Drift, 0.03)]
    {
        for slowdown in [0.0, 0.05, 0.10] {
            println!("{}", row(noise, spread, slowdown));
        }
    }
}

fn row(noise: Noise, spread: f64, slowdown: f64) -> String {
    // A false alarm is rare: it takes more gates to see one.
    let gates: u64 = if slowdown == 0.0 { 1_000 } else { 300 };
    let outcomes: Vec<(Decision, usize)> =
        (0..gates).map(|seed| gate(noise, spread, slowdown, 60, seed)).collect();
    let share =
        |wanted| outcomes.iter().filter(|(decision, _)| *decision == wanted).count() as f64 / gates as f64;
    let rounds: Vec<f64> = outcomes.iter().map(|(_, rounds)| *rounds as f64).collect();
    format!(
        "| {noise:?} | {:.0} % | {:.0} % | {:.1} % | {:.1} % | {:.1} % | {:.0} |",
        spread * 100.0,
        slowdown * 100.0,
        share(Decision::Regression) * 100.0,
        share(Decision::Pass) * 100.0,
        share(Decision::CannotTell) * 100.0,
        weirlab::stats::median(&rounds).unwrap_or(0.0)
    )
}

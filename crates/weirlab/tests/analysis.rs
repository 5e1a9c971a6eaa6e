//! What is derived from runs whose truth is known.

use crate::sample::{self, case, cell, normal, run, swept};
use fastrand::Rng;
use std::sync::OnceLock;
use weirlab::analysis::{Analysis, CaseAnalysis, FLOOR_WITHOUT_CONTROL, Verdict};
use weirlab::result::{ActionSample, Cell, Histogram, Run};

/// One case before `weir`, its control and `rival`, which costs `factor` as much; each block scatters by `spread`, the
/// rounds together by 20 %.
fn duel(factor: f64, spread: f64, rounds: u32, seed: u64) -> Run {
    let mut random = Rng::with_seed(seed);
    let common: Vec<f64> = (0..rounds).map(|_| (0.2 * normal(&mut random)).exp()).collect();
    let plain = case("kong/plain-1", "http");
    let mut gateway = |target: &str, cost: f64| {
        cell(&plain, target, rounds, |round| {
            cost * common[round as usize] * (spread * normal(&mut random)).exp()
        })
    };
    let cells = vec![gateway("weir", 13.0), gateway("weir (again)", 13.0), gateway("rival", 13.0 * factor)];
    run(vec![plain], cells)
}

/// The plausible sample, analysed once for all tests.
fn plausible() -> &'static Analysis {
    static ANALYSIS: OnceLock<Analysis> = OnceLock::new();
    ANALYSIS.get_or_init(|| Analysis::of(&crate::sample::plausible()))
}

fn only_case(run: &Run) -> CaseAnalysis {
    Analysis::of(run).cases.remove(0)
}

fn verdict(run: &Run) -> Verdict {
    only_case(run)
        .cells
        .pop()
        .map_or_else(|| Verdict::CannotTell("no cell".to_owned()), |rival| rival.verdict)
}

#[test]
fn a_true_ratio_is_found_though_rounds_differ() {
    let run = duel(1.3, 0.02, 12, 1);
    let case = only_case(&run);
    let rival = case.cell("rival").unwrap();
    let cpu = rival.ratio_to("weir").unwrap().cpu.unwrap();
    assert!(cpu.ratio.contains(1.3), "{cpu:?}");
    assert!(cpu.ratio.half_width() < 0.03, "pairing takes out what rounds have in common: {cpu:?}");
    assert!(cpu.p < 0.001 && cpu.detectable < 0.05, "{cpu:?}");
    assert_eq!(rival.verdict, Verdict::Slower);
    assert_eq!(case.noise.contains_one(), Some(true));
    let back = case.cell("weir").unwrap().ratio_to("rival").unwrap().cpu.unwrap();
    assert!((back.ratio.value * cpu.ratio.value - 1.0).abs() < 1e-12);
}

#[test]
fn latencies_are_compared_by_the_clock_that_both_generators_have() {
    let mut run = duel(1.0, 0.0, 6, 9);
    let cells = run.cells.iter_mut().filter(|cell| cell.target != "rival");
    // From the scheduled instant, half as long again.
    for block in cells.flat_map(|cell| &mut cell.blocks) {
        block.latencies.response = sample::latencies(1.5).response;
        block.latencies.service = sample::latencies(1.0).service;
    }
    let rival = run.cells.iter_mut().filter(|cell| cell.target == "rival");
    for block in rival.flat_map(|cell| &mut cell.blocks) {
        block.latencies.response = Histogram::default();
        block.latencies.service = sample::latencies(1.0).service;
    }
    let case = only_case(&run);
    let p50 = |target: &str| case.cell(target).unwrap().ratio_to("weir").unwrap().p50.unwrap().ratio.value;
    assert!((p50("rival") - 1.0).abs() < 0.01, "{}", p50("rival"));
    assert!((p50("weir (again)") - 1.0).abs() < 0.01, "{}", p50("weir (again)"));
}

#[test]
fn verdicts() {
    assert_eq!(verdict(&duel(0.8, 0.02, 12, 2)), Verdict::Faster);
    assert!(matches!(verdict(&duel(1.0, 0.01, 12, 3)), Verdict::Same(within) if within < 0.03));
    assert!(matches!(verdict(&duel(1.05, 0.2, 6, 4)), Verdict::CannotTell(_)));
    let case = only_case(&duel(1.0, 0.01, 6, 5));
    assert_eq!(case.cell("weir").unwrap().verdict, Verdict::Baseline);
    assert_eq!(case.cell("weir (again)").unwrap().verdict, Verdict::Control);
}

#[test]
fn nothing_is_slower_by_less_than_the_same_binary_differs_from_itself() {
    let mut run = duel(1.08, 0.002, 12, 6);
    assert_eq!(verdict(&run), Verdict::Slower);
    for block in &mut run.cells[1].blocks {
        block.target.cpu_us *= 1.12;
    }
    assert!(matches!(verdict(&run), Verdict::CannotTell(why) if why.contains("differs from itself")));
}

#[test]
fn without_a_control_ten_percent_are_taken_for_noise() {
    let without = |factor: f64| {
        let mut run = duel(factor, 0.002, 12, 7);
        run.cells.remove(1);
        run
    };
    assert_eq!(only_case(&without(1.08)).noise.floor, FLOOR_WITHOUT_CONTROL);
    assert!(matches!(verdict(&without(1.08)), Verdict::CannotTell(_)));
    assert_eq!(verdict(&without(1.2)), Verdict::Slower);
}

#[test]
fn blocks_that_are_void_or_wrong_do_not_count() {
    let mut run = duel(1.0, 0.01, 12, 8);
    let rival: &mut Cell = &mut run.cells[2];
    for index in 0..3 {
        rival.blocks[index].target.cpu_us *= 10.0;
    }
    rival.blocks[0].void = Some("the generator was late".to_owned());
    rival.blocks[1].errors.insert("status".to_owned(), 1);
    rival.blocks[2].good = 0;
    let case = only_case(&run);
    let rival = case.cell("rival").unwrap();
    assert_eq!((rival.counts.counted, rival.counts.void, rival.counts.invalid), (9, 1, 2));
    assert_eq!(rival.counts.reasons, ["the generator was late", "1 status", "no answer was right"]);
    let cpu = rival.ratio_to("weir").unwrap().cpu.unwrap();
    assert!(cpu.ratio.samples == 9 && cpu.ratio.high < 1.05, "{cpu:?}");
    assert_eq!(rival.summary.as_ref().unwrap().combined.p99_ms.len(), 9);
}

#[test]
fn under_actions_a_few_errors_are_a_result() {
    let mut run = duel(1.0, 0.01, 6, 9);
    let reload = ActionSample { name: "reload".to_owned(), at_s: 0.5, took_ms: 2.0, bytes: 0, error: None };
    for block in &mut run.cells[2].blocks {
        block.actions.push(reload.clone());
        block.errors.insert("closed".to_owned(), 5);
    }
    let counts = &only_case(&run).cells[2].counts;
    assert_eq!((counts.counted, counts.errors["closed"]), (6, 30));
    run.cells[2].blocks[0].errors.insert("closed".to_owned(), 500);
    assert_eq!(only_case(&run).cells[2].counts.invalid, 1);
}

#[test]
fn a_waterfall_tells_what_each_step_adds() {
    let analysis = plausible();
    let waterfall = &analysis.waterfalls[0];
    let line = waterfall.lines.iter().find(|line| line.target == "weir").unwrap();
    let labels: Vec<&str> = line.steps.iter().map(|step| step.label.as_str()).collect();
    assert_eq!(labels, ["plain", "+ rate-limiting", "+ key-auth"]);
    assert!(line.steps[0].added.is_none());
    // The sample's truth is + 0.6 and + 0.8, with some noise of 4 % that steps do not share.
    assert!(line.steps[1].added.unwrap().contains(0.6) && line.steps[2].added.unwrap().contains(0.8));
    let nginx = waterfall.lines.iter().find(|line| line.target == "nginx").unwrap();
    assert_eq!(nginx.steps.len(), 2, "it has no key-auth");
    assert!(!waterfall.lines.iter().any(|line| line.target == "weir (again)"));
}

#[test]
fn a_sweep_is_sorted_along_its_axis() {
    let cases = [100, 1, 10].map(|routes| swept("weir/routes", "routes", routes));
    let cells = cases.iter().map(|case| cell(case, "weir", 5, |_| 13.0)).collect();
    let analysis = Analysis::of(&run(cases.to_vec(), cells));
    let scaling = &analysis.scalings[0];
    let values: Vec<f64> = scaling.lines[0].points.iter().map(|point| point.value).collect();
    assert_eq!(
        (analysis.scalings.len(), scaling.axis.as_str(), values),
        (1, "routes", vec![1.0, 10.0, 100.0])
    );
}

#[test]
fn capacities_become_knees_and_scaling_over_workers() {
    let analysis = plausible();
    assert_eq!((analysis.knees.len(), analysis.cores.len()), (3, 1));
    assert!(analysis.knees[0].points.is_sorted_by(|a, b| a.offered <= b.offered));
    let two = analysis.cores[0].points[1];
    assert_eq!(two.workers, 2);
    assert!((two.efficiency - 79.0 / 84.0).abs() < 1e-9);
}

#[test]
fn the_floor_is_the_limit() {
    let analysis = plausible();
    let weir = analysis.case("kong/plain-1 http").unwrap().cell("weir").unwrap();
    let distance = weir.distance_to_floor().unwrap().ratio;
    assert!((distance.value - 1.0 / 0.9).abs() < 0.03, "{distance:?}");
}

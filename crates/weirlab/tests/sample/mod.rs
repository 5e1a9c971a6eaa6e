//! Runs that never happened, with known truth: what analysis, text and reports are tested on.
// Each test binary uses another part of it.
#![allow(dead_code, unreachable_pub)]
pub mod golden;
pub mod noise;

use fastrand::Rng;
use std::collections::BTreeMap;
use weirlab::result::{
    Axis, Block, Capacity, CapacityPoint, Case, Cell, ChainCost, ChainPart, Flame, Latencies, Machine,
    Manifest, Parity, Run, SCHEMA, Status, Step, TargetManifest, Usage,
};

/// Right answers in a block.
pub const ANSWERS: u64 = 2_000;

/// A standard normal number.
pub fn normal(random: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

/// A case without variables.
pub fn case(scenario: &str, scheme: &str) -> Case {
    Case {
        name: format!("{scenario} {scheme}"),
        scenario: scenario.to_owned(),
        title: scenario.rsplit('/').next().unwrap_or(scenario).replace('-', " "),
        scheme: scheme.to_owned(),
        variables: BTreeMap::new(),
        load: "32 connections, 1 thread, closed loop".to_owned(),
        axis: None,
        step: None,
        published: None,
    }
}

/// A case on the axis of a sweep.
pub fn swept(scenario: &str, variable: &str, value: u64) -> Case {
    let mut swept = case(scenario, "http");
    swept.name = format!("{scenario}[{variable}={value}] http");
    swept.variables.insert(variable.to_owned(), value.to_string());
    swept.axis = Some(Axis { name: variable.to_owned(), value: value as f64 });
    swept
}

/// A step of the waterfall `plugins`.
pub fn step(scenario: &str, index: u32, label: &str) -> Case {
    let waterfall = "plugins".to_owned();
    Case { step: Some(Step { waterfall, index, label: label.to_owned() }), ..case(scenario, "http") }
}

/// Latencies like those of a gateway with this median: skewed, with a tail.
pub fn latencies(median_ms: f64) -> Latencies {
    let mut latencies = Latencies::default();
    for i in 0..ANSWERS {
        // Few distinct values, so that the committed file stays small.
        let rank = (i / 25 * 25) as f64 / ANSWERS as f64;
        let tail = if i >= ANSWERS - ANSWERS / 200 { 3.0 } else { 1.0 };
        let nanos = (median_ms * 1e6 * (0.7 + 0.6 * rank) * tail) as u64;
        latencies.response.record_nanos(nanos);
        latencies.service.record_nanos(nanos);
    }
    latencies
}

/// A block that lasted a second.
pub fn block(round: u32, sequence: u32, cpu_us: f64) -> Block {
    let good = ANSWERS as f64;
    Block {
        connections_opened: Some(0),
        round,
        sequence,
        at_s: f64::from(sequence) * 1.5,
        measured_s: round_to(good * (cpu_us + 9.0) / 1e6 * 20.0, 6),
        warm_up_s: 0.3,
        steady: Some(true),
        void: None,
        overloaded: false,
        answers: ANSWERS,
        good: ANSWERS,
        bytes: ANSWERS * 1_250,
        statuses: BTreeMap::from([("200".to_owned(), ANSWERS)]),
        errors: BTreeMap::new(),
        latencies: latencies(round_to((cpu_us + 9.0) * 32.0 / 1e3, 3)),
        lateness: None,
        offered: None,
        series: vec![200; 10],
        target: usage(cpu_us),
        generator_cpu_us: round_to(good * 6.0, 1),
        upstream_cpu_us: round_to(good * 3.0, 1),
        connections_per_worker: vec![32],
        machine: machine(cpu_us),
        parts: Vec::new(),
        actions: Vec::new(),
        seconds: Vec::new(),
        probe: None,
    }
}

/// Little more was used than by target, upstream and generator.
fn machine(cpu_us: f64) -> Machine {
    let busy_us = round_to((cpu_us + 10.0) * ANSWERS as f64, 1);
    Machine {
        steal: 0.001,
        pressure: Some(0.1),
        idle: 0.2,
        busy_us: Some(busy_us),
        span_s: None,
        mhz: Some(2_100.0),
    }
}

fn usage(cpu_us: f64) -> Usage {
    let total = cpu_us * ANSWERS as f64;
    Usage {
        cpu_us: round_to(total, 1),
        user_us: round_to(total * 0.3, 1),
        system_us: round_to(total * 0.7, 1),
        rss_kib: 14_000,
        rss_peak_kib: 15_200,
        voluntary: 400,
        involuntary: 90,
        processes: 1,
    }
}

fn round_to(value: f64, digits: i32) -> f64 {
    let factor = 10f64.powi(digits);
    (value * factor).round() / factor
}

/// A measured cell whose CPU per request in each round is what `cost` says.
pub fn cell(case: &Case, target: &str, rounds: u32, mut cost: impl FnMut(u32) -> f64) -> Cell {
    Cell {
        cut_short: None,
        case: case.name.clone(),
        target: target.to_owned(),
        control: target.ends_with(" (again)"),
        status: Status::Measured,
        parity: vec![Parity {
            request: "GET /s1-r1".to_owned(),
            expected: "200".to_owned(),
            got: "200".to_owned(),
            agrees: true,
        }],
        blocks: (0..rounds).map(|round| block(round, round, cost(round))).collect(),
    }
}

/// A cell that has no blocks.
pub fn without_blocks(case: &Case, target: &str, status: Status) -> Cell {
    let (case, target) = (case.name.clone(), target.to_owned());
    Cell { case, target, control: false, status, cut_short: None, parity: Vec::new(), blocks: Vec::new() }
}

/// A run of cases and cells, with `weir` as the baseline.
pub fn run(cases: Vec<Case>, cells: Vec<Cell>) -> Run {
    Run {
        schema: SCHEMA,
        id: "2026-11-22T10-00-00Z".to_owned(),
        kind: "run".to_owned(),
        profile: "quick".to_owned(),
        seed: 7,
        baseline: "weir".to_owned(),
        interrupted: false,
        manifest: manifest(),
        cases,
        cells,
        capacities: Vec::new(),
        flames: Vec::new(),
        chains: Vec::new(),
    }
}

fn manifest() -> Manifest {
    let versions = [
        ("weir", "weir 0.1.0"),
        ("nginx", "nginx/1.26.3"),
        ("haproxy", "HAProxy version 3.0.11"),
        ("floor", "0.1.0"),
    ];
    let target = |(name, version): (&str, &str)| {
        let manifest = TargetManifest {
            version: version.to_owned(),
            binary: format!("/usr/sbin/{name}"),
            sha256: "ab".repeat(32),
            driver: "process".to_owned(),
            ..TargetManifest::default()
        };
        (name.to_owned(), manifest)
    };
    Manifest {
        started: "2026-11-22T10:00:00Z".to_owned(),
        ended: "2026-11-22T10:04:10Z".to_owned(),
        command: ["weirlab", "run", "scenarios/kong/plain-1"].map(str::to_owned).to_vec(),
        laboratory: "0.1.0 (0123456789ab)".to_owned(),
        kernel: "6.12.0 #1 SMP".to_owned(),
        cpu: "Synthetic CPU @ 2.10GHz".to_owned(),
        cpus: 2,
        memory_mib: 7_900,
        machine: BTreeMap::from([("governor".to_owned(), "performance".to_owned())]),
        pressure_before: Some(0.02),
        rustc: "rustc 1.95.0".to_owned(),
        cpu_sharing: true,
        pinning: "target, upstream and generator share CPUs 0-1".to_owned(),
        targets: versions.into_iter().map(target).collect(),
        configurations: BTreeMap::from([("kong/plain-1 http / weir".to_owned(), "cd".repeat(32))]),
        hosts: BTreeMap::new(),
    }
}

/// A plausible run: a waterfall, a sweep, capacities, and cells with all that can go wrong.
pub fn plausible() -> Run {
    let cases = vec![
        Case { published: Some("plain-1".to_owned()), ..case("kong/plain-1", "https") },
        step("kong/plain-1", 0, "plain"),
        step("kong/rate-limiting-1", 1, "+ rate-limiting"),
        step("kong/rate-limiting-key-auth-1", 2, "+ key-auth"),
        swept("weir/response-size", "bytes", 0),
        swept("weir/response-size", "bytes", 65_536),
    ];
    let costs = [21.0, 13.0, 13.6, 14.4, 12.8, 20.0];
    let mut random = Rng::with_seed(11);
    let cells = cases.iter().zip(costs).flat_map(|(case, cost)| cells(case, cost, &mut random)).collect();
    let mut run = run(cases, cells);
    spoil(&mut run);
    run.capacities = capacities();
    run.chains = vec![chain()];
    run.flames =
        vec![Flame { file: "flame-weir.svg".to_owned(), title: "weir, kong/plain-1 http".to_owned() }];
    run
}

fn chain() -> ChainCost {
    let part = |phase: &str, name: &str, mean_us: f64, cpu_share: Option<f64>| ChainPart {
        phase: phase.to_owned(),
        name: name.to_owned(),
        mean_us,
        p50_us: Some(mean_us * 0.9),
        p99_us: Some(mean_us * 2.0),
        cpu_share,
    };
    ChainCost {
        target: "weir".to_owned(),
        case: "kong/rate-limiting-key-auth-1 http".to_owned(),
        route: "r".to_owned(),
        requests: 100_000,
        cpu_us: 12.5,
        parts: vec![
            part("access", "key-auth", 0.5, Some(0.04)),
            part("access", "rate-limiting", 0.75, Some(0.06)),
            part("upstream", "upstream", 50.0, None),
            part("engine", "the gateway itself", 11.25, Some(0.9)),
        ],
    }
}

/// What the targets of the plausible run cost over `weir`; the last ones only where the case is plain.
const TARGETS: [(&str, f64); 6] =
    [("weir", 1.0), ("weir (again)", 1.0), ("nginx", 1.5), ("haproxy", 1.3), ("floor", 0.9), ("direct", 0.0)];

fn cells(case: &Case, cost: f64, random: &mut Rng) -> Vec<Cell> {
    let plain = case.scenario == "kong/plain-1";
    let shared: Vec<f64> = (0..6).map(|_| 1.0 + 0.04 * normal(random)).collect();
    let mut cells = Vec::new();
    for (target, factor) in
        TARGETS.iter().filter(|(target, _)| plain || !["floor", "direct"].contains(target))
    {
        if case.scenario.contains("key-auth") && ["nginx", "haproxy"].contains(target) {
            let why = "needs key-auth, which it does not have".to_owned();
            cells.push(without_blocks(case, target, Status::Skipped(why)));
        } else {
            let own = |round: u32| cost * factor * shared[round as usize] * (1.0 + 0.01 * normal(random));
            cells.push(cell(case, target, 6, own));
        }
    }
    let why = "kong is not on this machine; targets/kong/target.toml says how to install it".to_owned();
    cells.push(without_blocks(case, "kong", Status::Unmeasured(why)));
    cells
}

fn spoil(run: &mut Run) {
    run.cells[0].blocks[1].void = Some("the generator was saturated: 97 % of its CPU".to_owned());
    run.cells[2].blocks[2].errors.insert("closed".to_owned(), 3);
    run.cells[3].blocks[3].steady = Some(false);
}

fn capacities() -> Vec<Capacity> {
    let of = |target: &str, workers: u32, rate: f64| Capacity {
        case: "kong/plain-1 http".to_owned(),
        target: target.to_owned(),
        slo: "p99=5ms".to_owned(),
        workers,
        rate,
        confirmed: true,
        limited_by: (workers == 2).then(|| "generator and upstream had no CPU left".to_owned()),
        points: [0.25, 0.5, 0.75, 0.9, 1.0, 1.1].iter().map(|share| point(rate, *share)).collect(),
    };
    vec![of("weir", 1, 42_000.0), of("weir", 2, 79_000.0), of("nginx", 1, 29_000.0)]
}

fn point(rate: f64, share: f64) -> CapacityPoint {
    CapacityPoint {
        offered: rate * share,
        achieved: rate * share.min(1.02),
        share: [0.25, 0.5, 0.75, 0.9].contains(&share).then_some(share),
        holds: share <= 1.0,
        latencies: latencies(0.3 / (1.12 - share)),
        cpu_us_per_request: 13.0,
        void: None,
    }
}

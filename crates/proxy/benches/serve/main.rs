//! What routes and plugins cost, measured without sockets: requests pass through the whole engine over connections in
//! memory.
//!
//! ```text
//! cargo bench -p weir-proxy --bench serve                          a table of nanoseconds per request
//! cargo bench -p weir-proxy --bench serve -- CASE...               of these alone
//! cargo bench -p weir-proxy --bench serve -- json                  the same, a line of JSON for each case
//! cargo bench -p weir-proxy --bench serve -- json CASE...          of these alone
//! cargo bench -p weir-proxy --bench serve -- with|without CASE     one side of a case, for callgrind
//! ```
//!
//! `COST_SAMPLING=N` in the environment has the plugins of one request in N measured, 0 of none; else it is 64.
//!
//! Each case is a gateway with what is measured and one without, and the same requests for both. They take turns, a few
//! milliseconds each, and so do the cases, round by round: what is added is the median of the differences of neighbours.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::panic)]

mod background;
mod cases;
mod gateway;
mod sinks;
mod statistics;
mod traffic;

use background::Background;
use cases::Case;
use gateway::{Prepared, Shared};
use sinks::Sinks;
use statistics::Interval;
use std::time::Instant;

/// As in the gateway.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ROUNDS: usize = 101;
/// What a turn begins with, unmeasured: caches hold what the others needed.
const WARM_UP: usize = 200;
/// With these, what a log plugin has room for, should its thread not run meanwhile.
const REQUESTS: usize = 1000;
/// What callgrind sees.
const COUNTED: usize = 2000;

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let cases = cases::all(&Sinks::start());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["json", ref names @ ..] => {
            measure(&named(&cases, names)).iter().for_each(|measured| println!("{}", measured.json()));
        }
        [side @ ("with" | "without"), name] => {
            let case = named(&cases, &[name])[0];
            let gateway = if side == "with" { &case.gateway } else { &case.base };
            let prepared = gateway.prepare(&Shared::new());
            prepared.serve(WARM_UP);
            counted(&prepared);
        }
        ref names => table(&measure(&named(&cases, names))),
    }
}

/// The cases of these names; all if there are none.
fn named<'a>(cases: &'a [Case], names: &[&str]) -> Vec<&'a Case> {
    let find = |name: &&str| {
        let case = cases.iter().find(|case| case.name == *name);
        case.unwrap_or_else(|| {
            panic!("{name}: expected json or not, and names of cases; or with or without, and one")
        })
    };
    if names.is_empty() { cases.iter().collect() } else { names.iter().map(find).collect() }
}

/// A function of its own, whose instructions callgrind can be asked for.
#[inline(never)]
fn counted(prepared: &Prepared) {
    prepared.serve(COUNTED);
}

/// A running case, and its measurements so far.
struct Measured<'a> {
    case: &'a Case,
    base: Prepared,
    with: Prepared,
    /// Nanoseconds per request of each round, without and with.
    rounds: Vec<(f64, f64)>,
    /// Nanoseconds that threads spent on it which serve no requests.
    background: f64,
}

fn measure<'a>(cases: &[&'a Case]) -> Vec<Measured<'a>> {
    // `cargo test --benches` only sees whether it still runs.
    let rounds = if cfg!(debug_assertions) { 1 } else { ROUNDS };
    let shared = Shared::new();
    let background = Background::new(&shared);
    let mut measured: Vec<_> = cases.iter().map(|case| Measured::begin(case, &shared)).collect();
    for round in 0..rounds {
        for measured in &mut measured {
            // Each side goes first in every other round.
            let nanos = if round % 2 == 0 {
                (turn(&measured.base), measured.turn_with(&background))
            } else {
                let with = measured.turn_with(&background);
                (turn(&measured.base), with)
            };
            measured.rounds.push(nanos);
        }
    }
    let dropped = background.dropped();
    assert!(dropped.is_empty(), "entries were dropped, which is cheaper than to deliver them: {dropped:?}");
    measured
}

/// Nanoseconds per request.
fn turn(prepared: &Prepared) -> f64 {
    prepared.serve(WARM_UP);
    let start = Instant::now();
    prepared.serve(REQUESTS);
    start.elapsed().as_nanos() as f64 / REQUESTS as f64
}

impl<'a> Measured<'a> {
    fn begin(case: &'a Case, shared: &Shared) -> Self {
        let (base, with) = (case.base.prepare(shared), case.gateway.prepare(shared));
        Self { case, base, with, rounds: Vec::new(), background: 0.0 }
    }

    fn turn_with(&mut self, background: &Background) -> f64 {
        let spent = background.spent();
        let nanos = turn(&self.with);
        background.finish();
        self.background += background.spent() - spent;
        nanos
    }

    fn in_background(&self) -> f64 {
        self.background / (self.rounds.len() * (WARM_UP + REQUESTS)) as f64
    }

    fn without(&self) -> Interval {
        Interval::of_median(self.rounds.iter().map(|(base, _)| *base))
    }

    fn added(&self) -> Interval {
        Interval::of_median(self.rounds.iter().map(|(base, with)| with - base))
    }

    fn json(&self) -> serde_json::Value {
        let tenths = |nanos: f64| (nanos * 10.0).round() / 10.0;
        let bounds = |interval: Interval| [interval.low, interval.middle, interval.high].map(tenths);
        let rounds: Vec<_> = self.rounds.iter().map(|(base, with)| [base.round(), with.round()]).collect();
        serde_json::json!({
            "case": self.case.name, "base": self.case.base.to_string(), "requests": REQUESTS, "base_nanoseconds": bounds(self.without()),
            "added_nanoseconds": bounds(self.added()), "background_nanoseconds": tenths(self.in_background()),
            "rounds": rounds,
        })
    }
}

fn table(measured: &[Measured<'_>]) {
    println!("{:32}{:>12}{:>28}{:>16}", "case", "ns without", "added (95 %)", "in background");
    for measured in measured {
        let (base, added) = (measured.without().middle, measured.added().to_string());
        println!("{:32}{base:12.0}{added:>28}{:16.0}", measured.case.name, measured.in_background());
    }
}

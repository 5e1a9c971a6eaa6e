//! The engine under a deterministic scheduler: one worker with its connection pools, retries, health checks, ejections, limits,
//! deadlines and snapshots, on one thread, with a clock and a network in memory.
//!
//! A seed decides everything that can differ: the [`plan`] (configuration, load, faults, when further versions are published), what
//! each [`server`] and each [`client`] does, and how bytes are cut and delayed ([`stream`]). The [`history`] is what happened;
//! [`invariants`] are what must hold of it.

mod client;
mod grpc;
mod history;
mod invariants;
mod plan;
mod server;
mod stream;
mod version;
mod world;

use weir_simulation::Simulation;

const SIMULATION: Simulation =
    Simulation { package: "weir-proxy", test: "simulation::invariants_hold", run: world::run };

#[test]
fn invariants_hold() {
    SIMULATION.check(1_000);
}

#[test]
#[ignore = "takes minutes: run it with --release"]
fn invariants_hold_for_many_seeds() {
    SIMULATION.check(100_000);
}

#[test]
fn a_seed_repeats_itself() {
    SIMULATION.check_repeatable(20);
}

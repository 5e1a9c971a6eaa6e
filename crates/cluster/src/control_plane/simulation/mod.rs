//! A fleet under a deterministic scheduler: control planes that share a store and lag behind it, data planes that move between
//! them, on one thread, with a clock and connections in memory. A seed decides what is committed when, how late each message
//! and each control plane is, which connections are cut, which control planes start again, and what data planes refuse.
mod fleet;
mod node;
mod store;
mod wire;

use weir_simulation::Simulation;

const SIMULATION: Simulation = Simulation {
    package: "weir-cluster",
    test: "control_plane::simulation::invariants_hold",
    run: fleet::run,
};

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

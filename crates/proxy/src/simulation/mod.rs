//! The engine under a deterministic scheduler: one worker with its connection pools, retries, health checks, ejections, limits,
//! deadlines and snapshots, on one thread, with a clock and a network in memory.
//!
//! A seed decides everything that can differ: the [`plan`] (configuration, load, faults, when further versions are published), what
//! each [`server`] and each [`client`] does, and how bytes are cut and delayed ([`stream`]). The [`history`] is what happened;
//! [`invariants`] are what must hold of it.

mod body;
mod client;
mod grpc;
mod history;
mod invariants;
mod panics;
mod plan;
mod retries;
mod server;
mod stream;
mod version;
mod world;

weir_simulation::simulation_tests!(world::run);

//! The laboratory against real gateways and on made-up figures: one module for each subject, in one binary because each
//! would link the same libraries again. `cargo test -p weirlab --test main report::` runs those of one module.
//!
//! `observe_tree` and `flame` watch their own process, in which nothing else may run, and are binaries of their own; so is
//! `faults`, which stops and kills what it has started.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
mod action;
mod analysis;
mod analysis_data;
mod analysis_text;
mod catalogue;
// Clippy allows `unwrap` in a file without a test only there.
#[cfg(test)]
mod catalogue_bench;
mod catalogue_standins;
mod catalogue_targets;
mod chart;
mod compare;
mod driver_docker;
mod driver_kong;
mod driver_process;
mod floor;
mod generators;
mod hosts;
mod join;
mod load;
mod power;
mod probe;
mod protocols;
mod report;
mod sample;
mod script;
mod session;
mod session_fleet;
mod session_kong;
mod site;
mod stats;
mod stats_candidates;
mod stats_coverage;
mod stats_gate;
mod stats_search;
mod suites;
mod telemetry;
mod version_build;
mod waterfall;

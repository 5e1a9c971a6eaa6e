//! Runs a test once for each of many seeds, and says how to repeat the one that failed. For tests alone: no product code
//! depends on this crate.

mod seeds;

pub use seeds::{Outcome, Simulation, random};

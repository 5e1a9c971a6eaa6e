//! Runs a test once for each of many seeds, and says how to repeat the one that failed. For tests alone: no product code
//! depends on this crate.

mod seeds;

pub use seeds::{Outcome, Simulation, random};

/// The tests of a simulation, in the module where this stands: a thousand seeds, a hundred thousand on request, and that a seed
/// repeats itself. `$run` is a `fn(u64) -> Outcome`.
#[macro_export]
macro_rules! simulation_tests {
    ($run:path) => {
        const SIMULATION: $crate::Simulation =
            $crate::Simulation { package: env!("CARGO_PKG_NAME"), module: module_path!(), run: $run };

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
    };
}

//! Which seeds a test runs, and what it says of one that fails.
#![allow(clippy::panic, clippy::print_stdout)]

use std::any::Any;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs one seed alone, and prints its events.
const SEED: &str = "WEIR_SEED";
/// How many seeds are run instead of the usual number.
const SEEDS: &str = "WEIR_SEEDS";

/// How many of the last events before a failure are shown.
const SHOWN: usize = 40;

/// What came of one seed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What happened, in order.
    pub events: Vec<String>,
    /// The invariants that did not hold, each with what was wrong.
    pub broken: Vec<String>,
}

/// A test that depends on nothing but its seed.
pub struct Simulation {
    /// The package that has the test.
    pub package: &'static str,
    /// The path of the test's module, with the name of the crate.
    pub module: &'static str,
    /// Runs a seed.
    pub run: fn(u64) -> Outcome,
}

impl Simulation {
    /// Runs so many seeds, or those that the environment names.
    ///
    /// # Panics
    /// With the first seed that breaks an invariant, and the command that repeats it.
    pub fn check(&self, seeds: u64) {
        if let Some(seed) = number(SEED) {
            let outcome = self.outcome(seed);
            outcome.events.iter().for_each(|event| println!("{event}"));
            return self.judge(seed, &outcome);
        }
        (0..number(SEEDS).unwrap_or(seeds)).for_each(|seed| self.judge(seed, &self.outcome(seed)));
    }

    /// Runs seeds twice.
    ///
    /// # Panics
    /// If a seed does not have the same outcome each time.
    pub fn check_repeatable(&self, seeds: u64) {
        for seed in 0..seeds {
            let (once, again) = (self.outcome(seed), self.outcome(seed));
            let differing = once.events.iter().zip(&again.events).position(|(once, again)| once != again);
            let at = differing.unwrap_or(once.events.len().min(again.events.len()));
            assert!(
                once == again,
                "seed {seed} differs at event {at}: {:?}, then {:?}",
                once.events.get(at),
                again.events.get(at)
            );
        }
    }

    fn outcome(&self, seed: u64) -> Outcome {
        catch_unwind(AssertUnwindSafe(|| (self.run)(seed))).unwrap_or_else(|panic| Outcome {
            events: Vec::new(),
            broken: vec![format!("panicked: {}", text_of(&*panic))],
        })
    }

    fn judge(&self, seed: u64, Outcome { events, broken }: &Outcome) {
        if broken.is_empty() {
            return;
        }
        let mut message = format!("seed {seed} breaks {} invariants:\n", broken.len());
        for broken in broken.iter().take(SHOWN) {
            let _ = writeln!(message, "  {broken}");
        }
        let _ = writeln!(message, "after these events, of {}:", events.len());
        for event in &events[events.len().saturating_sub(SHOWN)..] {
            let _ = writeln!(message, "  {event}");
        }
        let Self { package, module, .. } = self;
        let module = module.split_once("::").map_or("", |(_, module)| module);
        panic!(
            "{message}repeat it with: {SEED}={seed} cargo test -p {package} {module}::invariants_hold -- --nocapture"
        );
    }
}

/// A random number generator for one part of what a seed decides: parts do not influence each other.
pub fn random(seed: u64, part: u64) -> fastrand::Rng {
    let mut random = fastrand::Rng::with_seed(seed ^ part.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    // The first numbers of neighbouring seeds are alike.
    (0..4).for_each(|_| {
        random.u64(..);
    });
    random
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

//! How long and how often: the named shapes of a run.
use crate::load::WarmUp;
use crate::scenario::CasePlan;
use std::time::Duration;

/// The shape of a run.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// How many blocks each cell gets.
    pub rounds: u32,
    /// The measured window of each block.
    pub measured: Duration,
    /// What precedes it.
    pub warm_up: WarmUp,
    /// Whether targets are started anew for each block, so that addresses, heaps and the placement of connections are
    /// drawn again.
    pub restart: bool,
    /// Into how many slices a block is cut, so that the targets of a case take turns within a round.
    pub slices: u32,
    /// Whether the generator uses as many threads as the scenario's source did.
    pub source_threads: bool,
}

impl Profile {
    /// The names that [`Profile::named`] knows.
    pub const NAMES: [&'static str; 3] = ["quick", "full", "kong"];

    /// The profile of this name.
    pub fn named(name: &str) -> Option<Profile> {
        let (rounds, measured, at_least, at_most, slices) = match name {
            "quick" => (8, 650, 250, 500, 10),
            "full" => (30, 1_000, 300, 1_000, 15),
            "kong" => (5, 900_000, 10_000, 60_000, 1),
            _ => return None,
        };
        Some(Profile {
            name: name.to_owned(),
            rounds,
            measured: Duration::from_millis(measured),
            warm_up: WarmUp {
                at_least: Duration::from_millis(at_least),
                at_most: Duration::from_millis(at_most),
            },
            restart: true,
            slices,
            source_threads: name == "kong",
        })
    }

    /// The measured window for a case: long enough that each periodic action happens once, half an interval in.
    pub fn window(&self, case: &CasePlan) -> Duration {
        case.actions.iter().map(|action| action.every).chain([self.measured]).max().unwrap_or(self.measured)
    }
}

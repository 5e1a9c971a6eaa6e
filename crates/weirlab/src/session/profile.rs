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
    /// The warm-up before it.
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

    /// The measured window for a case: long enough that each periodic action happens once, half an interval in, and
    /// that each connection is used several times.
    pub fn window(&self, case: &CasePlan) -> Duration {
        let actions = case.actions.iter().map(|action| action.every).max().unwrap_or_default();
        self.measured.max(actions).max(shortest_window(case.load.connections))
    }

    /// Into how many slices a block is cut: fewer with many connections, because each slice opens all of them.
    pub(super) fn slices_with(&self, connections: usize) -> u32 {
        let shortest = shortest_window(connections).as_nanos().max(1);
        let fitting = u32::try_from(self.measured.as_nanos() / shortest).unwrap_or(u32::MAX);
        self.slices.min(fitting).max(1)
    }
}

/// A gateway that answers 20,000 requests a second uses each connection eight times in it.
const WINDOW_PER_CONNECTION: Duration = Duration::from_micros(400);

fn shortest_window(connections: usize) -> Duration {
    WINDOW_PER_CONNECTION.saturating_mul(u32::try_from(connections).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_connections_make_fewer_slices() {
        let quick = Profile::named("quick").unwrap();
        let slices = [1, 32, 256, 1_000, 5_000].map(|connections| quick.slices_with(connections));
        assert_eq!(slices, [10, 10, 6, 1, 1]);
        let kong = Profile::named("kong").unwrap();
        assert_eq!(kong.slices_with(300), 1);
    }
}

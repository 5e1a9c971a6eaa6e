//! The health of targets that a process hands to the one that replaces it.

use super::change::HealthSource;
use super::state::TargetStates;
use std::net::SocketAddr;

/// The health of one target: its upstream, its name, and its addresses with their health and counters as numbers.
pub type TargetNumbers = (Box<str>, Box<str>, Vec<(SocketAddr, u64)>);

impl TargetStates {
    /// The health of all targets.
    pub fn export(&self) -> Vec<TargetNumbers> {
        let numbers = |(upstream, target, state): (_, _, std::sync::Arc<super::TargetState>)| {
            (upstream, target, state.numbers())
        };
        self.all().into_iter().map(numbers).collect()
    }

    /// Takes over the health of targets from another process.
    pub fn import(&self, targets: &[TargetNumbers]) {
        for (upstream, target, numbers) in targets {
            self.of(upstream, target).restore(numbers, HealthSource::Predecessor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::mark;
    use crate::testing::{entity, id};
    use serde_json::json;
    use weir_model::entity::Upstream;

    #[test]
    fn a_target_that_is_down_stays_down() {
        let upstream: std::sync::Arc<Upstream> = entity(json!({ "id": id(1), "name": "u" }));
        let (old, new) = (TargetStates::default(), TargetStates::default());
        let address = "10.0.0.1:80".parse().unwrap();
        old.of(&upstream.name, "a.test:80").follow(&[address]);
        mark(&old, &upstream, ("a.test:80", &[address]), None, false);
        new.import(&old.export());
        let state = new.of(&upstream.name, "a.test:80");
        assert!(state.is_down());
        assert_eq!(state.addresses(), [(address, false)]);
    }
}

//! What data planes can be called for by Kong's second protocol, for as long as they are connected by it. A data plane of Kong
//! has a connection of each of its workers, and may be sent the configuration by the first protocol all the same.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

/// The capabilities of data planes, by their ids.
#[derive(Debug, Clone, Default)]
pub(super) struct Capabilities(Arc<Mutex<HashMap<Uuid, Connected>>>);

/// A data plane that is connected.
#[derive(Debug, Default)]
struct Connected {
    connections: usize,
    capabilities: Vec<String>,
}

/// A connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Listed {
    capabilities: Capabilities,
    id: Uuid,
}

impl Capabilities {
    /// Counts a connection.
    pub(super) fn list(&self, id: Uuid, names: Vec<String>) -> Listed {
        let mut by_id = self.by_id();
        let connected = by_id.entry(id).or_default();
        connected.connections += 1;
        connected.capabilities = names;
        drop(by_id);
        Listed { capabilities: self.clone(), id }
    }

    /// Those of a data plane.
    pub(super) fn of(&self, id: Uuid) -> Vec<String> {
        self.by_id().get(&id).map(|connected| connected.capabilities.clone()).unwrap_or_default()
    }

    fn by_id(&self) -> MutexGuard<'_, HashMap<Uuid, Connected>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut by_id = self.capabilities.by_id();
        if let Some(connected) = by_id.get_mut(&self.id) {
            connected.connections -= 1;
            if connected.connections == 0 {
                by_id.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_known_until_the_last_connection_ends() {
        let (capabilities, id) = (Capabilities::default(), Uuid::from_u128(1));
        let connect = || capabilities.list(id, vec!["kong.sync.v2".to_owned()]);
        let (one, other) = (connect(), connect());
        drop(one);
        assert_eq!(
            (capabilities.of(id), capabilities.of(Uuid::nil())),
            (vec!["kong.sync.v2".to_owned()], vec![])
        );
        drop(other);
        assert!(capabilities.of(id).is_empty());
    }
}

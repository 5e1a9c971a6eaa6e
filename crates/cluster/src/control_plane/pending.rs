//! Connections on their way to a WebSocket. There is a limit to them, in all and by address, so that peers that connect and
//! say nothing keep no other connection out.
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many there may be at a time.
const MAX: usize = 1024;

/// How many of them may come from one address, unless it is the node's own.
const MAX_OF_ADDRESS: usize = 16;

/// The connections that are on their way, by address.
#[derive(Debug, Clone, Default)]
pub(super) struct Pending(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct PendingPeer {
    pending: Pending,
    address: IpAddr,
}

impl Pending {
    /// Counts a connection, unless there are too many.
    pub(super) fn enter(&self, address: IpAddr) -> Option<PendingPeer> {
        let address = address.to_canonical();
        let mut counts = self.counts();
        let of_address = counts.get(&address).copied().unwrap_or_default();
        let is_crowded = of_address >= MAX_OF_ADDRESS && !address.is_loopback();
        if is_crowded || counts.values().sum::<usize>() >= MAX {
            return None;
        }
        counts.insert(address, of_address + 1);
        Some(PendingPeer { pending: self.clone(), address })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PendingPeer {
    fn drop(&mut self) {
        let mut counts = self.pending.counts();
        let left = counts.get(&self.address).map_or(0, |count| count - 1);
        match left {
            0 => counts.remove(&self.address),
            left => counts.insert(self.address, left),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leaves_room_for_others() {
        let pending = Pending::default();
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let mut of_one: Vec<_> = std::iter::from_fn(|| pending.enter(one)).take(MAX).collect();
        assert_eq!(of_one.len(), MAX_OF_ADDRESS);
        assert!(pending.enter(other).is_some());
        of_one.pop();
        assert!(pending.enter(one).is_some());
        drop(of_one);
        assert!(pending.counts().is_empty());
    }

    #[test]
    fn the_nodes_own_address_is_bound_by_the_limit_of_all() {
        let pending = Pending::default();
        let own: Vec<_> = std::iter::from_fn(|| pending.enter(IpAddr::from([127, 0, 0, 1]))).collect();
        assert_eq!(own.len(), MAX);
        assert!(pending.enter(IpAddr::from([192, 0, 2, 1])).is_none());
    }
}

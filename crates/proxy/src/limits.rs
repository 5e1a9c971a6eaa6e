//! The limits of the node, and how often each of them acted.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

macro_rules! limits {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A limit of the node.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum NodeLimit {
            $($(#[$doc])* $variant,)*
        }

        impl NodeLimit {
            /// The names in metrics, in order.
            pub(crate) const NAMES: &[&str] = &[$($name,)*];
        }
    };
}

limits! {
    /// Connections of clients: accepting paused, or a connection over QUIC was refused.
    Connections = "connections",
    /// Connections of one client address: a connection was closed.
    ConnectionsPerIp = "connections_per_ip",
    /// Requests of one connection: it was closed behind the last.
    RequestsPerConnection = "requests_per_connection",
    /// Requests in flight on a worker: a request was shed.
    RequestsInFlight = "requests_in_flight",
    /// Memory of the process: a request was shed.
    Memory = "memory",
    /// The time for a PROXY protocol header and a TLS handshake.
    HandshakeTime = "handshake_time",
    /// Handshakes over QUIC with clients whose address is not proven: a client had to prove it.
    UnprovenHandshakes = "unproven_handshakes",
    /// The size of a request's head.
    HeadSize = "head_size",
    /// The size of the heads of all requests of one connection: a request was refused.
    HeadsSize = "heads_size",
    /// The size of a request's body.
    BodySize = "body_size",
    /// The time for a request's head.
    HeadTime = "head_time",
    /// The time for a request's body, or its least speed.
    BodyTime = "body_time",
    /// The time in which a client takes some of its response.
    SendTime = "send_time",
    /// Requests at a time on one connection over HTTP/2: a request was refused.
    Streams = "streams",
    /// Requests that a client gives up: the connection takes no more.
    Resets = "resets",
    /// The rules of HTTP/2 for a connection, and floods of its frames: the connection is closed.
    ProtocolErrors = "protocol_errors",
}

/// How often each limit acted, by one writer.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct LimitCounts([AtomicU64; NodeLimit::NAMES.len()]);

impl LimitCounts {
    /// Counts where there is one writer.
    pub(crate) fn count(&self, limit: NodeLimit) {
        let count = &self.0[limit as usize];
        count.store(count.load(Relaxed) + 1, Relaxed);
    }
}

/// The limits of the node that all workers share.
pub(crate) struct NodeLimits {
    /// By worker; the last is the acceptor's.
    counts: Vec<LimitCounts>,
    /// Requests in flight on each worker; 0 while memory is used up.
    requests: AtomicUsize,
    has_memory: AtomicBool,
    addresses: Addresses,
}

impl NodeLimits {
    pub(crate) fn new(workers: usize, requests: usize, connections_per_ip: usize) -> NodeLimits {
        NodeLimits {
            counts: (0..=workers).map(|_| LimitCounts::default()).collect(),
            requests: AtomicUsize::new(requests),
            has_memory: AtomicBool::new(true),
            addresses: Addresses::new(connections_per_ip),
        }
    }

    /// What one worker counts.
    pub(crate) fn of_worker(&self, index: usize) -> &LimitCounts {
        &self.counts[index]
    }

    /// What the acceptor counts.
    pub(crate) fn of_acceptor(&self) -> &LimitCounts {
        &self.counts[self.counts.len() - 1]
    }

    /// The requests that may be in flight on each worker; 0 while memory is used up.
    #[inline]
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// Whether the process may use more memory.
    pub(crate) fn has_memory(&self) -> bool {
        self.has_memory.load(Relaxed)
    }

    /// Memory is used up, or again not; then so many requests may be in flight.
    pub(crate) fn set_has_memory(&self, has_memory: bool, requests: usize) {
        self.has_memory.store(has_memory, Relaxed);
        self.requests.store(if has_memory { requests } else { 0 }, Relaxed);
    }

    /// How often each limit acted since the start, by name.
    pub(crate) fn totals(&self) -> Vec<(&'static str, u64)> {
        let of = |index: usize| self.counts.iter().map(|counts| counts.0[index].load(Relaxed)).sum();
        NodeLimit::NAMES.iter().enumerate().map(|(index, name)| (*name, of(index))).collect()
    }

    /// Counts a connection of a client; none if it has as many as it may have.
    pub(crate) fn connect(&self, peer: IpAddr) -> Option<AddressPermit> {
        self.addresses.take(client_of(peer))
    }
}

/// The most memory that the process should use, and how much it uses.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLimit {
    /// Bytes.
    pub bytes: u64,
    /// The bytes that are resident now.
    pub resident: fn() -> u64,
}

/// Shards of the table of addresses, so that workers which close connections seldom meet.
const SHARDS: usize = 16;

/// Connections by client address.
struct Addresses {
    most: usize,
    shards: Arc<[Mutex<HashMap<IpAddr, usize>>; SHARDS]>,
}

impl Addresses {
    fn new(most: usize) -> Addresses {
        Addresses { most, shards: Arc::default() }
    }

    fn take(&self, client: IpAddr) -> Option<AddressPermit> {
        let shard = shard_of(client);
        let mut connections = self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner);
        let count = connections.entry(client).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(AddressPermit { shards: self.shards.clone(), client })
    }
}

/// What counts as one client: an IPv4 address, or the /64 network of an IPv6 address, because a client with one address of it
/// usually has them all (RFC 4291, section 2.5.1; RFC 7934).
fn client_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(peer) => IpAddr::V6(Ipv6Addr::from_bits(peer.to_bits() & (u128::MAX << 64))),
        v4 => v4,
    }
}

fn shard_of(client: IpAddr) -> usize {
    let last = match client {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(network) => network.octets()[7],
    };
    usize::from(last) % SHARDS
}

/// Counts a connection of a client until it is dropped.
pub(crate) struct AddressPermit {
    shards: Arc<[Mutex<HashMap<IpAddr, usize>>; SHARDS]>,
    client: IpAddr,
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut connections =
            self.shards[shard_of(self.client)].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = connections.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_as_many_connections_as_it_may_have() {
        let limits = NodeLimits::new(1, 1, 2);
        let [one, other] = ["192.0.2.1", "192.0.2.17"].map(|address| address.parse().unwrap());
        let mut held = [limits.connect(one), limits.connect(one), limits.connect(one), limits.connect(other)];
        assert_eq!(held.each_ref().map(Option::is_some), [true, true, false, true]);
        held[0] = None;
        assert!(limits.connect(one).is_some());
        drop(held);
        assert!(limits.addresses.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let limits = NodeLimits::new(1, 1, 1);
        let connect = |address: &str| limits.connect(address.parse().unwrap());
        let held = ["2001:db8::1", "2001:db8:0:1::1", "::ffff:192.0.2.1", "::ffff:192.0.2.2"].map(connect);
        assert!(held.iter().all(Option::is_some));
        for same in ["2001:db8::ffff:2", "2001:db8:0:1:8000::", "192.0.2.1", "192.0.2.2"] {
            assert!(connect(same).is_none(), "{same}");
        }
        assert!(connect("192.0.2.3").is_some());
    }

    #[test]
    fn what_acted_is_counted_by_name() {
        let limits = NodeLimits::new(2, 1, 1);
        limits.of_acceptor().count(NodeLimit::Connections);
        limits.of_worker(0).count(NodeLimit::Streams);
        limits.of_worker(1).count(NodeLimit::Streams);
        let acted: Vec<_> = limits.totals().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(acted, [("connections", 1), ("streams", 2)]);
    }
}

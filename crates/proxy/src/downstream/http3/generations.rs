//! Processes that replace each other on the same sockets. The newest alone receives. It passes on the datagrams of
//! connections that an older one still serves, which the ids of these connections tell.

use quinn::udp::{EcnCodepoint, RecvMeta};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;
use uuid::Uuid;

/// The longest datagram, and what is said of it.
const MAX_ENVELOPE: usize = 65_536 + 64;

/// What processes that replace each other share, so that each knows the ids of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct QuicIdentity {
    /// What hides the contents of ids.
    pub(super) keys: (u64, u64),
    /// The number of this process among them.
    pub(super) generation: u8,
}

impl QuicIdentity {
    fn new() -> Self {
        Self { keys: Uuid::new_v4().as_u64_pair(), generation: 0 }
    }

    /// That of the process before.
    fn predecessor(self) -> u8 {
        self.generation.wrapping_sub(1)
    }

    /// That of the process that follows.
    pub fn successor(self) -> Self {
        Self { generation: self.generation.wrapping_add(1), ..self }
    }
}

/// A datagram that came to the wrong worker or the wrong process.
#[derive(Debug)]
pub(super) struct Moved {
    pub(super) meta: RecvMeta,
    pub(super) bytes: Vec<u8>,
}

/// The sockets of one address.
#[derive(Debug)]
pub(super) struct Slots {
    /// The way to the worker that has each.
    pub(super) senders: Box<[mpsc::Sender<Moved>]>,
    /// Whether another process receives from them now.
    pub(super) handed_over: AtomicBool,
}

/// What a process that replaces another knows of those before it.
#[derive(Debug)]
pub struct QuicInheritance {
    /// Who this process is.
    pub identity: QuicIdentity,
    /// The way to the process that it replaces.
    pub way: OwnedFd,
    /// The ways to those before that one, by their numbers.
    pub earlier: Vec<(u8, OwnedFd)>,
}

/// This process among those that replace each other.
#[derive(Debug)]
pub(crate) struct Generations {
    pub(super) identity: QuicIdentity,
    /// The ways to the processes before, by their numbers, that of the last one first.
    predecessors: Vec<(u8, OwnedFd)>,
    slots: Mutex<HashMap<SocketAddr, Arc<Slots>>>,
}

impl Generations {
    /// The first process, or one that replaces another.
    pub(crate) fn new(inherited: Option<QuicInheritance>) -> Arc<Self> {
        let (identity, predecessors) = match inherited {
            Some(QuicInheritance { identity, way, earlier }) => {
                (identity, [(identity.predecessor(), way)].into_iter().chain(earlier).collect())
            }
            None => (QuicIdentity::new(), Vec::new()),
        };
        Arc::new(Self { identity, predecessors, slots: Mutex::default() })
    }

    /// The ways to the processes before that still run, by their numbers, for the process that follows: it may outlive this one.
    pub(crate) fn ways(&self) -> io::Result<Vec<(u8, OwnedFd)>> {
        let mut ways = Vec::new();
        for (generation, way) in &self.predecessors {
            // Nothing comes from there but the end.
            if recv(way, &mut [0; 1][..], RecvFlags::DONTWAIT).is_err_and(|error| error == Errno::AGAIN) {
                ways.push((*generation, way.try_clone()?));
            }
        }
        Ok(ways)
    }

    pub(crate) fn identity(&self) -> QuicIdentity {
        self.identity
    }

    pub(super) fn has_predecessor(&self) -> bool {
        !self.predecessors.is_empty()
    }

    pub(super) fn register(&self, local: SocketAddr, slots: &Arc<Slots>) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).insert(local, slots.clone());
    }

    /// Passes a datagram on to the process of this number, or to the last one, which may know it; false if no such process is left.
    pub(super) fn pass_back(
        &self,
        generation: u8,
        local: SocketAddr,
        meta: &RecvMeta,
        datagram: &[u8],
    ) -> bool {
        let of_number = self.predecessors.iter().find(|(number, _)| *number == generation);
        let Some((_, way)) = of_number.or(self.predecessors.first()) else { return false };
        match send(way, &envelope(local, meta, datagram), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            // One that has no room loses it, as the network might have.
            Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS) => true,
            Err(_) => false,
        }
    }

    /// Leaves the sockets of these addresses to the process at the other end of `way`, or takes them back.
    pub(crate) fn hand_over(&self, addresses: &[SocketAddr], is_handed_over: bool) {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        for slots in addresses.iter().filter_map(|address| slots.get(address)) {
            slots.handed_over.store(is_handed_over, Ordering::SeqCst);
            // Empty, to wake what waits for datagrams from elsewhere alone.
            let wake =
                || Moved { meta: RecvMeta { len: 0, stride: 0, ..RecvMeta::default() }, bytes: Vec::new() };
            slots.senders.iter().for_each(|sender| drop(sender.try_send(wake())));
        }
    }

    /// Receives what a successor passes on, on a thread of its own, until that process has ended. A process without HTTP/3 has no
    /// connections that it could be for.
    pub(crate) fn relay_from(self: &Arc<Self>, way: OwnedFd) -> io::Result<()> {
        if self.slots.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return Ok(());
        }
        let generations = self.clone();
        std::thread::Builder::new().name("weir-quic-relay".to_owned()).spawn(move || {
            let mut room = vec![0; MAX_ENVELOPE];
            while let Ok((length @ 1.., _)) = recv(&way, &mut room[..], RecvFlags::empty()) {
                if let Some((local, moved)) = open(&room[..length]) {
                    generations.take(local, moved);
                }
            }
        })?;
        Ok(())
    }

    fn take(&self, local: SocketAddr, moved: Moved) {
        let ids = super::steering::Ids::of(self.identity, 0);
        let owner = ids.owner(&moved.bytes);
        if let Some(owner) = owner
            && owner.generation != self.identity.generation
            && self.pass_back(owner.generation, local, &moved.meta, &moved.bytes)
        {
            return;
        }
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(slots) = slots.get(&local) else { return };
        let slot = owner.map_or(0, |owner| usize::from(owner.slot));
        if let Some(sender) = slots.senders.get(slot).or(slots.senders.first()) {
            let _ = sender.try_send(moved);
        }
    }
}

fn envelope(local: SocketAddr, meta: &RecvMeta, datagram: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(datagram.len() + 64);
    for address in [local, meta.addr] {
        put_ip(&mut bytes, Some(address.ip()));
        bytes.extend(address.port().to_be_bytes());
    }
    put_ip(&mut bytes, meta.dst_ip);
    bytes.push(meta.ecn.map_or(0, |ecn| ecn as u8));
    bytes.extend(datagram);
    bytes
}

fn put_ip(bytes: &mut Vec<u8>, ip: Option<IpAddr>) {
    match ip {
        None => bytes.push(0),
        Some(IpAddr::V4(ip)) => {
            bytes.push(4);
            bytes.extend(ip.octets());
        }
        Some(IpAddr::V6(ip)) => {
            bytes.push(6);
            bytes.extend(ip.octets());
        }
    }
}

fn open(mut bytes: &[u8]) -> Option<(SocketAddr, Moved)> {
    let mut address = || {
        let ip = take_ip(&mut bytes)??;
        let (port, rest) = bytes.split_first_chunk()?;
        bytes = rest;
        Some(SocketAddr::new(ip, u16::from_be_bytes(*port)))
    };
    let (local, peer) = (address()?, address()?);
    let dst_ip = take_ip(&mut bytes)?;
    let (ecn, datagram) = bytes.split_first()?;
    let (len, ecn) = (datagram.len(), EcnCodepoint::from_bits(*ecn));
    let meta = RecvMeta { addr: peer, len, stride: len, ecn, dst_ip };
    Some((local, Moved { meta, bytes: datagram.to_vec() }))
}

fn take_ip(bytes: &mut &[u8]) -> Option<Option<IpAddr>> {
    let (version, rest) = bytes.split_first()?;
    let (ip, rest) = match version {
        0 => (None, rest),
        4 => {
            let (ip, rest) = rest.split_first_chunk::<4>()?;
            (Some(IpAddr::V4(Ipv4Addr::from(*ip))), rest)
        }
        _ => {
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            (Some(IpAddr::V6(Ipv6Addr::from(*ip))), rest)
        }
    };
    *bytes = rest;
    Some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_on_is_what_was_received() {
        let cases = [
            ("127.0.0.1:443", "10.0.0.1:5000", Some("127.0.0.1"), Some(EcnCodepoint::Ce)),
            ("[::]:443", "[fe80::1]:5000", Some("::1"), Some(EcnCodepoint::Ect0)),
            ("[::]:443", "10.0.0.1:1", None, None),
        ];
        for (local, peer, dst_ip, ecn) in cases {
            let local = local.parse().unwrap();
            let meta = RecvMeta {
                addr: peer.parse().unwrap(),
                len: 5,
                stride: 5,
                ecn,
                dst_ip: dst_ip.map(|ip| ip.parse().unwrap()),
            };
            let bytes = envelope(local, &meta, b"hello");
            let (to, moved) = open(&bytes).unwrap();
            assert_eq!((to, &moved.bytes[..]), (local, &b"hello"[..]));
            assert_eq!(format!("{:?}", moved.meta), format!("{meta:?}"));
            assert!((0..bytes.len() - 5).all(|cut| open(&bytes[..cut]).is_none()));
        }
    }
}

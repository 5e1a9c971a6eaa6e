//! Which worker a datagram is for. Each has a socket of its own, and the system gives it the datagrams of the clients
//! that it has chosen for it by their addresses. A client owner address changes comes to another one: the id of its
//! connection says owner it is, and the datagram is passed on. So it is to a [process that was replaced](super::generations).

use super::endpoint::QuicListener;
use super::generations::{Generations, Moved, QuicIdentity, Slots};
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, ConnectionId, ConnectionIdGenerator, UdpPoller};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use uuid::Uuid;

/// Datagrams on their way to another worker; more are dropped, as by a socket that is full.
const ON_THE_WAY: usize = 256;
/// Of an id, what is drawn by lot, and what worker and process are hidden in.
const DRAWN: usize = 6;
const HIDDEN: usize = 4;
const ID: usize = DRAWN + HIDDEN;
/// A part of what is hidden, which distinguishes an id from one that a client has drawn.
const MARK: u8 = 0x5A;
/// The most that can be sent at a time, cut into datagrams by the system.
const MAX_SENT: usize = 65_507;
/// In the first byte of a datagram: it belongs to a handshake, and says how long the id is, behind the version.
const LONG_HEADER: u8 = 0x80;
const LENGTH_AT: usize = 5;

/// The ids of the connections of one socket. Only the node sees which are of the same socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ids {
    identity: QuicIdentity,
    slot: u16,
}

/// Which process and which of its sockets a datagram is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SocketOwner {
    pub(super) generation: u8,
    pub(super) slot: u16,
}

impl Ids {
    pub(super) fn of(identity: QuicIdentity, slot: u16) -> Self {
        Self { identity, slot }
    }

    /// What hides the contents of an id that begins so.
    fn mask(&self, drawn: &[u8]) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.identity.keys.0, self.identity.keys.1);
        hasher.write(drawn);
        hasher.finish() as u32
    }

    /// SocketOwner a datagram is, if it says so.
    pub(super) fn owner(&self, datagram: &[u8]) -> Option<SocketOwner> {
        let id = match datagram.first()? & LONG_HEADER {
            0 => datagram.get(1..)?,
            _ if usize::from(*datagram.get(LENGTH_AT)?) == ID => datagram.get(LENGTH_AT + 1..)?,
            _ => return None,
        };
        let (drawn, rest) = id.split_at_checked(DRAWN)?;
        let hidden: [u8; HIDDEN] = *rest.first_chunk()?;
        let [mark, generation, slot @ ..] = (u32::from_be_bytes(hidden) ^ self.mask(drawn)).to_be_bytes();
        (mark == MARK).then_some(SocketOwner { generation, slot: u16::from_be_bytes(slot) })
    }
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID];
        id[..DRAWN].copy_from_slice(&Uuid::new_v4().as_bytes()[..DRAWN]);
        let [high, low] = self.slot.to_be_bytes();
        let hidden =
            u32::from_be_bytes([MARK, self.identity.generation, high, low]) ^ self.mask(&id[..DRAWN]);
        id[DRAWN..].copy_from_slice(&hidden.to_be_bytes());
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        ID
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// The way between the sockets of one address.
#[derive(Debug)]
pub(super) struct Steering {
    pub(super) ids: Ids,
    pub(super) local: SocketAddr,
    slots: Arc<Slots>,
    inbox: Mutex<mpsc::Receiver<Moved>>,
    generations: Arc<Generations>,
}

impl Steering {
    /// Whether another process receives from the socket now.
    pub(super) fn is_handed_over(&self) -> bool {
        self.slots.handed_over.load(Ordering::Relaxed)
    }

    /// The same, for as long as connections of this socket are served.
    pub(super) fn handed_over(&self) -> Arc<Slots> {
        self.slots.clone()
    }
}

/// What is received from, of the sockets of one address.
pub(crate) fn listeners(
    sockets: Vec<UdpSocket>,
    local: SocketAddr,
    generations: &Arc<Generations>,
) -> Vec<QuicListener> {
    let (senders, inboxes): (Vec<_>, Vec<_>) = sockets.iter().map(|_| mpsc::channel(ON_THE_WAY)).unzip();
    let slots = Arc::new(Slots { senders: senders.into(), handed_over: AtomicBool::new(false) });
    generations.register(local, &slots);
    let listeners = sockets.into_iter().zip(inboxes).zip(0..);
    let listener = |((socket, inbox), slot)| {
        let (slots, generations) = (slots.clone(), generations.clone());
        let ids = Ids::of(generations.identity, slot);
        let steering = Steering { ids, local, slots, inbox: Mutex::new(inbox), generations };
        QuicListener { socket, local, steering }
    };
    listeners.map(listener).collect()
}

/// A worker's socket, with what other workers pass on.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) own: Arc<dyn AsyncUdpSocket>,
    pub(super) steering: Steering,
}

impl Socket {
    /// Takes what other workers have passed on, at most so that half of the room is left.
    fn poll_moved(&self, cx: &mut Context<'_>, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> usize {
        let (mut inbox, most) =
            (self.steering.inbox.lock().unwrap_or_else(PoisonError::into_inner), bufs.len() / 2);
        for (n, (buf, meta)) in bufs.iter_mut().zip(meta).enumerate().take(most) {
            let Poll::Ready(Some(moved)) = inbox.poll_recv(cx) else { return n };
            let length = moved.bytes.len().min(buf.len());
            buf[..length].copy_from_slice(&moved.bytes[..length]);
            *meta = RecvMeta { len: length, stride: length, ..moved.meta };
        }
        most
    }

    /// Passes on the datagrams that are for other sockets or processes, and keeps the others.
    fn keep_own(&self, buf: &mut [u8], meta: &mut RecvMeta) {
        let (length, stride) = (meta.len, meta.stride.max(1));
        let mut kept = 0;
        for begin in (0..length).step_by(stride) {
            let end = length.min(begin + stride);
            if self.pass_on(meta, &buf[begin..end]) {
                continue;
            }
            if kept != begin {
                buf.copy_within(begin..end, kept);
            }
            kept += end - begin;
        }
        meta.len = kept;
    }

    /// Passes a datagram on, unless it is for this socket.
    fn pass_on(&self, meta: &RecvMeta, datagram: &[u8]) -> bool {
        let Steering { ids, local, slots, generations, .. } = &self.steering;
        let Some(owner) = ids.owner(datagram) else { return false };
        if owner.generation != ids.identity.generation {
            return generations.pass_back(owner.generation, *local, meta, datagram);
        }
        match slots.senders.get(usize::from(owner.slot)) {
            Some(other) if owner.slot != ids.slot => {
                // One that has no room loses it, as the network might have.
                let _ = other.try_send(Moved { meta: *meta, bytes: datagram.to_vec() });
                true
            }
            _ => false,
        }
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.own.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if transmit.destination.port() == 0 {
            // The system refuses it (EINVAL), whereupon `quinn-udp` gives up GSO and ECN for all clients.
            return Ok(());
        }
        let Some(segment) = transmit.segment_size.filter(|_| transmit.contents.len() > MAX_SENT) else {
            return self.own.try_send(transmit);
        };
        // What was sent of one that has to be sent again is recognised by its number.
        let mut pieces = transmit.contents.chunks((MAX_SENT / segment).max(1) * segment);
        pieces.try_for_each(|contents| self.own.try_send(&Transmit { contents, ..transmit.clone() }))
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let is_handed_over = self.steering.is_handed_over();
        let is_alone = self.steering.slots.senders.len() == 1 && !self.steering.generations.has_predecessor();
        // The inbox is polled even then, so that a handover is noticed.
        let moved = self.poll_moved(cx, bufs, meta);
        if is_handed_over {
            return if moved > 0 { Poll::Ready(Ok(moved)) } else { Poll::Pending };
        }
        if is_alone && moved == 0 {
            return self.own.poll_recv(cx, bufs, meta);
        }
        let (bufs, meta) = (&mut bufs[moved..], &mut meta[moved..]);
        match self.own.poll_recv(cx, bufs, meta) {
            Poll::Ready(Ok(received)) => {
                for (buf, meta) in bufs.iter_mut().zip(meta).take(received) {
                    self.keep_own(buf, meta);
                }
                Poll::Ready(Ok(moved + received))
            }
            Poll::Pending if moved > 0 => Poll::Ready(Ok(moved)),
            other => other,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.own.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.own.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.own.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.own.may_fragment()
    }
}

#[cfg(test)]
mod tests {
    use super::super::generations::QuicInheritance;
    use super::*;
    use std::os::fd::OwnedFd;

    fn ids(generation: u8, slot: u16) -> Ids {
        Ids::of(QuicIdentity { keys: (1, 2), generation }, slot)
    }

    fn short(id: &ConnectionId) -> Vec<u8> {
        [&[0x40][..], id, b"rest"].concat()
    }

    fn long(id: &ConnectionId) -> Vec<u8> {
        [&[0xe0, 0, 0, 0, 1, id.len() as u8][..], id, b"rest"].concat()
    }

    #[test]
    fn an_id_tells_process_and_worker() {
        for (generation, slot) in [(0, 0), (0, 1), (1, 7), (255, 300)] {
            let id = ids(generation, slot).generate_cid();
            let owner = Some(SocketOwner { generation, slot });
            assert_eq!(ids(0, 0).owner(&short(&id)), owner);
            assert_eq!(ids(0, 0).owner(&long(&id)), owner);
        }
        assert_ne!(ids(0, 3).generate_cid(), ids(0, 3).generate_cid());
        for datagram in
            [&b"\xc0\0\0\0\x01\x08aaaaaaaa"[..], b"\xc0\0\0\0\x01\x0aaaaaaa", b"\x40aaaaaaa", b"\xc0", b""]
        {
            assert_eq!(ids(0, 0).owner(datagram), None);
        }
    }

    fn sockets(
        sockets: Vec<UdpSocket>,
        local: SocketAddr,
        generations: &Arc<Generations>,
    ) -> impl Iterator<Item = Socket> {
        listeners(sockets, local, generations).into_iter().map(|listener| {
            let own = quinn::Runtime::wrap_udp_socket(&quinn::TokioRuntime, listener.socket).unwrap();
            Socket { own, steering: listener.steering }
        })
    }

    async fn received(socket: &Socket) -> (Vec<u8>, usize) {
        let (mut room, mut metas) = ([[0; 100]; 2], [RecvMeta::default(); 2]);
        let mut bufs = room.each_mut().map(|room| IoSliceMut::new(room));
        let received = std::future::poll_fn(|cx| socket.poll_recv(cx, &mut bufs, &mut metas)).await;
        assert_eq!(received.unwrap(), 1);
        (bufs[0][..metas[0].len].to_vec(), metas[0].stride)
    }

    #[tokio::test]
    async fn what_is_for_another_worker_is_passed_on() {
        let udp = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let local = udp[0].local_addr().unwrap();
        let generations = Generations::new(None);
        let mut sockets = sockets(udp.into(), local, &generations);
        let (one, two) = (sockets.next().unwrap(), sockets.next().unwrap());
        let (mut mine, mut others) = (one.steering.ids, two.steering.ids);
        let ids = [mine.generate_cid(), others.generate_cid(), mine.generate_cid()];
        let datagrams = ids.map(|id| short(&id));
        let mut buf = datagrams.concat();
        let mut meta = RecvMeta { len: buf.len(), stride: datagrams[0].len(), ..RecvMeta::default() };
        one.keep_own(&mut buf, &mut meta);
        assert_eq!(buf[..meta.len], [&datagrams[0][..], &datagrams[2]].concat());
        assert_eq!(received(&two).await, (datagrams[1].clone(), meta.stride));
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap()
    }

    /// What the process that follows is given.
    fn inherited(of: &Generations, way: OwnedFd) -> Option<QuicInheritance> {
        Some(QuicInheritance { identity: of.identity.successor(), way, earlier: of.ways().unwrap() })
    }

    #[tokio::test]
    async fn what_is_for_a_process_before_one_that_has_ended_is_passed_back() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = udp.local_addr().unwrap();
        let copy = || vec![udp.try_clone().unwrap()];
        let first = Generations::new(None);
        let oldest = sockets(copy(), local, &first).next().unwrap();
        let (back, from) = pair();
        first.relay_from(from).unwrap();
        let second = Generations::new(inherited(&first, back));
        let (back, from) = pair();
        let third = Generations::new(inherited(&second, back));
        let newest = sockets(copy(), local, &third).next().unwrap();
        drop((second, from));
        let datagram = short(&{ oldest.steering.ids }.generate_cid());
        let mut meta = RecvMeta { len: datagram.len(), stride: datagram.len(), ..RecvMeta::default() };
        newest.keep_own(&mut datagram.clone(), &mut meta);
        assert_eq!(received(&oldest).await.0, datagram);
        let ways: Vec<u8> = third.ways().unwrap().into_iter().map(|(generation, _)| generation).collect();
        assert_eq!(ways, [0], "a process that has ended takes no descriptor of those that follow");
    }

    #[tokio::test]
    async fn what_is_for_a_process_that_was_replaced_is_passed_back() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = udp.local_addr().unwrap();
        let copy = || vec![udp.try_clone().unwrap()];
        let first = Generations::new(None);
        let oldest = sockets(copy(), local, &first).next().unwrap();
        let (back, from) = pair();
        first.relay_from(from).unwrap();
        let second = Generations::new(inherited(&first, back));
        let older = sockets(copy(), local, &second).next().unwrap();
        let (back, from) = pair();
        second.relay_from(from).unwrap();
        let third = Generations::new(inherited(&second, back));
        let newest = sockets(copy(), local, &third).next().unwrap();
        for (generations, socket) in [(&first, &oldest), (&second, &older)] {
            generations.hand_over(&[local], true);
            let mut ids = socket.steering.ids;
            let datagram = short(&ids.generate_cid());
            let mut meta = RecvMeta { len: datagram.len(), stride: datagram.len(), ..RecvMeta::default() };
            newest.keep_own(&mut datagram.clone(), &mut meta);
            assert_eq!(meta.len, 0);
            // What wakes at a handover is empty.
            assert_eq!(received(socket).await.0, b"");
            assert_eq!(received(socket).await, (datagram.clone(), datagram.len()));
        }
        let datagram = short(&{ newest.steering.ids }.generate_cid());
        let mut meta = RecvMeta { len: datagram.len(), stride: datagram.len(), ..RecvMeta::default() };
        newest.keep_own(&mut datagram.clone(), &mut meta);
        assert_eq!(meta.len, datagram.len());
    }
}

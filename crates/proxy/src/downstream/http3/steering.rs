//! Which worker a datagram is for. Each has a socket of its own, and the system gives it the datagrams of the clients
//! that it has chosen for it by their addresses. A client whose address changes comes to another one: the id of its
//! connection says whose it is, and the datagram is passed on.

use super::endpoint::QuicListener;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, ConnectionId, ConnectionIdGenerator, UdpPoller};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use uuid::Uuid;

/// Datagrams on their way to another worker; more are dropped, as by a socket that is full.
const ON_THE_WAY: usize = 256;
/// Of an id, what is drawn by lot, and what the worker's number is hidden in.
const DRAWN: usize = 6;
const ID: usize = DRAWN + 2;
/// The most that can be sent at a time, cut into datagrams by the system.
const MAX_SENT: usize = 65_507;
/// In the first byte of a datagram: it belongs to a handshake, during which addresses do not change.
const LONG_HEADER: u8 = 0x80;

/// The ids of a worker's connections. Only the node sees which are of the same worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ids {
    keys: (u64, u64),
    worker: u16,
}

impl Ids {
    /// What hides the worker's number in an id that begins so.
    fn mask(&self, drawn: &[u8]) -> u16 {
        let mut hasher = SipHasher13::new_with_keys(self.keys.0, self.keys.1);
        hasher.write(drawn);
        hasher.finish() as u16
    }

    /// The worker that a datagram is for, if it says so.
    fn worker(&self, datagram: &[u8]) -> Option<u16> {
        let (first, rest) = datagram.split_first()?;
        if first & LONG_HEADER != 0 {
            return None;
        }
        let (drawn, rest) = rest.split_at_checked(DRAWN)?;
        let hidden: [u8; 2] = *rest.first_chunk()?;
        Some(u16::from_be_bytes(hidden) ^ self.mask(drawn))
    }
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID];
        id[..DRAWN].copy_from_slice(&Uuid::new_v4().as_bytes()[..DRAWN]);
        let hidden = self.worker ^ self.mask(&id[..DRAWN]);
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

/// A datagram that came to the wrong worker.
#[derive(Debug)]
struct Moved {
    meta: RecvMeta,
    bytes: Vec<u8>,
}

/// The way between the workers that have sockets of one address.
#[derive(Debug)]
pub(super) struct Steering {
    pub(super) ids: Ids,
    /// Of each worker.
    workers: Arc<[mpsc::Sender<Moved>]>,
    inbox: Mutex<mpsc::Receiver<Moved>>,
}

/// What each worker receives from, of the sockets of one address.
pub(crate) fn listeners(sockets: Vec<UdpSocket>, local: SocketAddr) -> Vec<QuicListener> {
    let keys = Uuid::new_v4().as_u64_pair();
    let (senders, inboxes): (Vec<_>, Vec<_>) = sockets.iter().map(|_| mpsc::channel(ON_THE_WAY)).unzip();
    let workers: Arc<[_]> = senders.into();
    let listeners = sockets.into_iter().zip(inboxes).zip(0..);
    let listener = |((socket, inbox), worker)| {
        let steering =
            Steering { ids: Ids { keys, worker }, workers: workers.clone(), inbox: Mutex::new(inbox) };
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

    /// Passes on the datagrams that are for other workers, and keeps the others.
    fn keep_own(&self, buf: &mut [u8], meta: &mut RecvMeta) {
        let (length, stride) = (meta.len, meta.stride.max(1));
        let mut kept = 0;
        for begin in (0..length).step_by(stride) {
            let end = length.min(begin + stride);
            let worker = self.steering.ids.worker(&buf[begin..end]).map(usize::from);
            match worker.and_then(|worker| self.steering.workers.get(worker)) {
                Some(other) if worker != Some(self.steering.ids.worker.into()) => {
                    // One that has no room loses it, as the network might have.
                    let _ = other.try_send(Moved { meta: *meta, bytes: buf[begin..end].to_vec() });
                }
                _ => {
                    if kept != begin {
                        buf.copy_within(begin..end, kept);
                    }
                    kept += end - begin;
                }
            }
        }
        meta.len = kept;
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
        if self.steering.workers.len() == 1 {
            return self.own.poll_recv(cx, bufs, meta);
        }
        let moved = self.poll_moved(cx, bufs, meta);
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
    use super::*;

    fn ids(worker: u16) -> Ids {
        Ids { keys: (1, 2), worker }
    }

    fn short(id: &ConnectionId) -> Vec<u8> {
        [&[0x40][..], id, b"rest"].concat()
    }

    #[test]
    fn an_id_tells_the_worker() {
        for worker in [0, 1, 7, 300] {
            let id = ids(worker).generate_cid();
            assert_eq!(ids(0).worker(&short(&id)), Some(worker));
        }
        assert_ne!(ids(3).generate_cid(), ids(3).generate_cid());
        assert_eq!(ids(0).worker(b"\xc0\0\0\0\x01\x08aaaaaaaa"), None);
        assert_eq!(ids(0).worker(b"\x40aaaaaaa"), None);
        assert_eq!(ids(0).worker(b""), None);
    }

    #[tokio::test]
    async fn what_is_for_another_worker_is_passed_on() {
        let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let local = sockets[0].local_addr().unwrap();
        let mut sockets = listeners(sockets.into(), local).into_iter().map(|listener| {
            let own = quinn::Runtime::wrap_udp_socket(&quinn::TokioRuntime, listener.socket).unwrap();
            Socket { own, steering: listener.steering }
        });
        let (one, two) = (sockets.next().unwrap(), sockets.next().unwrap());
        let (mut mine, mut others) = (one.steering.ids, two.steering.ids);
        let ids = [mine.generate_cid(), others.generate_cid(), mine.generate_cid()];
        let datagrams = ids.map(|id| short(&id));
        let mut buf = datagrams.concat();
        let mut meta = RecvMeta { len: buf.len(), stride: datagrams[0].len(), ..RecvMeta::default() };
        one.keep_own(&mut buf, &mut meta);
        assert_eq!(buf[..meta.len], [&datagrams[0][..], &datagrams[2]].concat());
        let (mut room, mut metas) = ([[0; 100]; 2], [RecvMeta::default(); 2]);
        let mut bufs = room.each_mut().map(|room| IoSliceMut::new(room));
        let received = std::future::poll_fn(|cx| two.poll_recv(cx, &mut bufs, &mut metas)).await;
        assert_eq!((received.unwrap(), metas[0].len, metas[0].stride), (1, meta.stride, meta.stride));
        assert_eq!(bufs[0][..metas[0].len], datagrams[1]);
    }
}

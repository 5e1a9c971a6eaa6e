//! Connections in memory: bytes take a while to arrive, come in pieces, and a connection can end in an orderly way or be reset.

use fastrand::Rng;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How many bytes are on their way at most, as in the buffers of a socket.
const MAX_IN_TRANSIT: usize = 48 * 1024;

/// One direction of a connection.
#[derive(Default)]
struct Way {
    pieces: VecDeque<(Instant, Vec<u8>)>,
    in_transit: usize,
    written: u64,
    read: u64,
    /// When the end arrives.
    end: Option<Instant>,
    /// When a reset arrives.
    reset: Option<Instant>,
    /// The reader has gone: what is sent to it is answered by a reset.
    is_deserted: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Way {
    fn wake_reader(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
    }
}

/// Observes one end of a connection.
pub(super) trait Tap {
    fn wrote(&self, bytes: &[u8]);
    /// So many bytes were read since the beginning.
    fn read(&self, total: u64);
    fn closed(&self);
}

/// One end of a connection.
pub(super) struct Stream {
    incoming: Rc<RefCell<Way>>,
    outgoing: Rc<RefCell<Way>>,
    latency: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    random: RefCell<Rng>,
    tap: Option<Rc<dyn Tap>>,
    /// The end of what is sent was said.
    is_finished: Cell<bool>,
}

/// The two ends of a new connection.
pub(super) fn connection(latency: Duration, mut random: Rng) -> (Stream, Stream) {
    let ways = [(); 2].map(|()| Rc::<RefCell<Way>>::default());
    let mut end = |incoming: usize| Stream {
        incoming: ways[incoming].clone(),
        outgoing: ways[1 - incoming].clone(),
        latency,
        timer: None,
        random: RefCell::new(random.fork()),
        tap: None,
        is_finished: Cell::new(false),
    };
    (end(0), end(1))
}

impl Stream {
    pub(super) fn tapped(mut self, tap: Rc<dyn Tap>) -> Self {
        self.tap = Some(tap);
        self
    }

    /// How many bytes this end has sent.
    pub(super) fn written(&self) -> u64 {
        self.outgoing.borrow().written
    }

    /// Ends the connection so that the other end loses what it has not read.
    pub(super) fn reset(self) {
        let mut outgoing = self.outgoing.borrow_mut();
        outgoing.reset.get_or_insert(Instant::now() + self.latency);
        outgoing.wake_reader();
    }

    fn finish(&self) {
        if !self.is_finished.replace(true) {
            let mut outgoing = self.outgoing.borrow_mut();
            outgoing.end = Some(Instant::now() + self.latency);
            outgoing.wake_reader();
        }
    }

    /// What can be read by now: bytes, the end, or a reset; otherwise when there is something.
    fn poll_arrived(&self, room: &mut ReadBuf<'_>) -> Result<Poll<io::Result<()>>, Option<Instant>> {
        let mut way = self.incoming.borrow_mut();
        let way = &mut *way;
        let now = Instant::now();
        if room.remaining() == 0 {
            return Ok(Poll::Ready(Ok(())));
        }
        if way.reset.is_some_and(|at| at <= now) {
            return Ok(Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())));
        }
        match way.pieces.front_mut() {
            Some((at, piece)) if *at <= now => {
                let most = piece.len().min(room.remaining());
                // Where the network cuts bytes says nothing of what they mean.
                let n = if self.random.borrow_mut().u8(..4) == 0 {
                    self.random.borrow_mut().usize(1..=most)
                } else {
                    most
                };
                room.put_slice(&piece[..n]);
                piece.drain(..n);
                if piece.is_empty() {
                    way.pieces.pop_front();
                }
                way.in_transit -= n;
                way.read += n as u64;
                way.writer.take().into_iter().for_each(Waker::wake);
                Ok(Poll::Ready(Ok(())))
            }
            Some((at, _)) => Err(Some(way.reset.map_or(*at, |reset| reset.min(*at)))),
            None if way.end.is_some_and(|at| at <= now) => Ok(Poll::Ready(Ok(()))),
            None => Err(way.end.into_iter().chain(way.reset).min()),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let next = match self.poll_arrived(room) {
                Ok(arrived) => {
                    if let Some(tap) = &self.tap {
                        tap.read(self.incoming.borrow().read);
                    }
                    return arrived;
                }
                Err(next) => next,
            };
            self.incoming.borrow_mut().reader = Some(cx.waker().clone());
            let Some(at) = next else { return Poll::Pending };
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
            if timer.deadline() != at {
                timer.as_mut().reset(at);
            }
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let now = Instant::now();
        if self.incoming.borrow().reset.is_some_and(|at| at <= now) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut way = self.outgoing.borrow_mut();
        let n = if way.is_deserted { bytes.len() } else { bytes.len().min(MAX_IN_TRANSIT - way.in_transit) };
        if n == 0 {
            way.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if way.is_deserted {
            let mut back = self.incoming.borrow_mut();
            back.reset.get_or_insert(now + 2 * self.latency);
            back.wake_reader();
        } else {
            way.pieces.push_back((now + self.latency, bytes[..n].to_vec()));
            way.in_transit += n;
            way.wake_reader();
        }
        way.written += n as u64;
        drop(way);
        if let Some(tap) = &self.tap {
            tap.wrote(&bytes[..n]);
        }
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.finish();
        let mut incoming = self.incoming.borrow_mut();
        incoming.is_deserted = true;
        let is_unread = !incoming.pieces.is_empty();
        incoming.writer.take().into_iter().for_each(Waker::wake);
        drop(incoming);
        if is_unread {
            // As a system does: who closes without having read all resets the connection.
            let mut outgoing = self.outgoing.borrow_mut();
            outgoing.reset.get_or_insert(Instant::now() + self.latency);
            outgoing.wake_reader();
        }
        if let Some(tap) = &self.tap {
            tap.closed();
        }
    }
}

//! The transport under the `h2` crate. The crate writes frame by frame; the transport buffers those frames until the
//! task that drives the connection has let the crate make all possible progress, then sends them in one write.

mod inbound;
mod outbound;

use crate::buffer::{Buffer, Outbox};
use crate::io::Io;
use crate::wire::Wire;
use h2::Reason;
pub use inbound::Failure;
use inbound::{Inbound, Next};
use outbound::Outbound;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// How many bytes are buffered at most, including those that were already sent.
const HELD: usize = 64 * 1024;

/// Larger pieces are not copied into the buffer, but sent together with it.
const COPIED: usize = 8 * 1024;

/// What is read in one turn. Then those whose streams it is for have theirs: the crate would otherwise hold whatever a
/// fast peer sends, and give up the connection for it.
const TURN: usize = 64 * 1024;

/// The byte stream that the `h2` crate reads from and writes to.
pub struct Transport(Rc<RefCell<Stream>>);

/// Sends the buffered bytes. The task that drives the connection owns it.
#[derive(Clone)]
pub struct Sender(Rc<RefCell<Stream>>);

/// A byte stream, with what was read and is not used, and what is to be written.
struct Stream {
    io: Io,
    inbox: Buffer,
    outbox: Outbox,
    /// Bytes read in this turn.
    read: usize,
    /// Of a client's stream.
    guard: Option<Box<Guard>>,
}

/// The filters between a client and the `h2` crate.
struct Guard {
    inbound: Inbound,
    outbound: Outbound,
    /// GOAWAY frames carry ENHANCE_YOUR_CALM.
    says_calm: bool,
    /// The client does not read what is written.
    is_stalled: bool,
}

impl From<Io> for Transport {
    fn from(io: Io) -> Self {
        Self::new(io, Buffer::default())
    }
}

impl From<Wire> for Transport {
    fn from(wire: Wire) -> Self {
        Self::new(wire.io, wire.inbox)
    }
}

impl Transport {
    fn new(io: Io, inbox: Buffer) -> Self {
        Self(Rc::new(RefCell::new(Stream { io, inbox, outbox: Outbox::default(), read: 0, guard: None })))
    }

    /// The same for a client that may have so many streams open, with heads of so many bytes.
    pub fn guarded(self, max_streams: u32, max_header_list_size: u32) -> Self {
        let inbound = Inbound::new(max_streams, max_header_list_size);
        let guard = Guard { inbound, outbound: Outbound::default(), says_calm: false, is_stalled: false };
        self.0.borrow_mut().guard = Some(Box::new(guard));
        self
    }

    /// What sends the bytes that wait.
    pub fn sender(&self) -> Sender {
        Sender(self.0.clone())
    }
}

impl Sender {
    /// Sends the buffered bytes, as far as the peer reads them.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_flush(cx)
    }

    /// Why the client's connection has to end: its bytes can no longer be understood.
    pub fn failure(&self) -> Option<Failure> {
        self.guard(|guard| guard.inbound.failure())?
    }

    /// When the first of a head came that has no end so far.
    pub fn head_begun(&self) -> Option<Instant> {
        self.guard(|guard| guard.inbound.begun())?
    }

    /// The head that has begun is not waited for any longer.
    pub fn give_up_head(&self) {
        self.guard(|guard| guard.inbound.give_up());
    }

    /// How many heads were larger than they may be since it was asked last.
    pub fn large_heads(&self) -> u32 {
        self.guard(|guard| guard.inbound.large_heads()).unwrap_or_default()
    }

    /// How many streams were reset because the client broke a rule since it was asked last.
    pub fn faults(&self) -> u32 {
        self.guard(|guard| guard.outbound.faults()).unwrap_or_default()
    }

    /// How many streams were refused because there were too many since it was asked last.
    pub fn refused(&self) -> u32 {
        self.guard(|guard| guard.outbound.refused()).unwrap_or_default()
    }

    /// If a stream is refused from now on, it is for another reason than the number of streams.
    pub fn refuses_otherwise(&self, stream: u32) {
        self.guard(|guard| guard.outbound.refuses_otherwise(stream));
    }

    /// Whether the path of a stream that is accepted now has a `#`.
    pub fn has_fragment(&self, stream: impl FnOnce() -> u32) -> bool {
        self.guard(|guard| guard.inbound.has_fragments() && guard.inbound.has_fragment(stream()))
            .unwrap_or_default()
    }

    /// From now on GOAWAY frames carry ENHANCE_YOUR_CALM.
    pub fn say_calm(&self) {
        self.guard(|guard| guard.says_calm = true);
    }

    fn guard<T>(&self, act: impl FnOnce(&mut Guard) -> T) -> Option<T> {
        self.0.borrow_mut().guard.as_mut().map(|guard| act(guard))
    }

    /// Does what the future does, and sends what it writes whenever it waits.
    pub async fn with<T>(&self, future: impl Future<Output = T>) -> io::Result<T> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            self.0.borrow_mut().begin_turn();
            match future.as_mut().poll(cx) {
                Poll::Ready(value) => Poll::Ready(Ok(value)),
                Poll::Pending => match self.poll_flush(cx) {
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    _ => Poll::Pending,
                },
            }
        })
        .await
    }
}

impl Stream {
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbox.is_empty() {
            let n = ready!(self.io.poll_write(cx, self.outbox.pending()))?;
            self.outbox.wrote(non_zero(n)?);
        }
        self.outbox.release();
        self.io.poll_flush(cx)
    }

    /// Takes some of a piece, and sees whether the client takes it.
    fn poll_write(&mut self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>; 2]) -> Poll<io::Result<usize>> {
        let taken = self.poll_take(cx, pieces);
        if let Some(guard) = &mut self.guard {
            let is_whole = matches!(&taken, Poll::Ready(Ok(n)) if *n == pieces[0].len() + pieces[1].len());
            if std::mem::replace(&mut guard.is_stalled, !is_whole) && is_whole {
                // What waited for that is read in the next turn.
                cx.waker().wake_by_ref();
            }
        }
        taken
    }

    /// Takes some of a piece of so many bytes: to wait, or to leave together with what waits.
    fn poll_take(&mut self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>; 2]) -> Poll<io::Result<usize>> {
        let length = pieces[0].len() + pieces[1].len();
        if self.guard.as_ref().is_some_and(|guard| guard.says_calm) {
            // Only what waits here can be changed.
            ready!(self.poll_flush(cx))?;
            return Poll::Ready(Ok(self.hold(pieces)));
        }
        if length <= COPIED && self.outbox.held() + length <= HELD {
            return Poll::Ready(Ok(self.hold(pieces)));
        }
        loop {
            let waiting = self.outbox.pending().len();
            let all = [IoSlice::new(self.outbox.pending()), pieces[0], pieces[1]];
            let n = non_zero(ready!(self.io.poll_write_vectored(cx, &all))?)?;
            self.outbox.wrote(n.min(waiting));
            if let Some(taken @ 1..) = n.checked_sub(waiting) {
                self.left(pieces, taken);
                return Poll::Ready(Ok(taken));
            }
        }
    }

    fn hold(&mut self, pieces: &[IoSlice<'_>; 2]) -> usize {
        let held = self.outbox.writable();
        let start = held.len();
        for piece in pieces {
            held.extend_from_slice(piece);
        }
        if let Some(guard) = &mut self.guard
            && let Some(code) = guard.outbound.leave(&held[start..])
            && guard.says_calm
        {
            let calm = u32::from(Reason::ENHANCE_YOUR_CALM).to_be_bytes();
            held[start + code..start + code + calm.len()].copy_from_slice(&calm);
        }
        held.len() - start
    }

    /// So much of the pieces has left.
    fn left(&mut self, pieces: &[IoSlice<'_>; 2], n: usize) {
        if let Some(guard) = &mut self.guard {
            let first = n.min(pieces[0].len());
            guard.outbound.leave(&pieces[0][..first]);
            guard.outbound.leave(&pieces[1][..n - first]);
        }
    }

    fn begin_turn(&mut self) {
        self.read = 0;
        // The crate holds what it has to say to a client that takes nothing: no such client opens ever more streams.
        if let Some(guard) = self.guard.as_mut().filter(|guard| !guard.is_stalled) {
            guard.inbound.begin_turn();
        }
    }

    /// Reads much at once: the `h2` crate has little room, and would ask for one frame after the other.
    fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let next = match &mut self.guard {
                Some(guard) => guard.inbound.next(&mut self.inbox),
                None if self.inbox.is_empty() => Next::Read,
                None => Next::Pass(self.inbox.len()),
            };
            match next {
                Next::Pass(n) => {
                    self.pass(n, room);
                    return Poll::Ready(Ok(()));
                }
                Next::Replace => {
                    self.replace(room);
                    return Poll::Ready(Ok(()));
                }
                Next::Read if self.read < TURN => {
                    if ready!(self.poll_fill(cx))? == 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
                Next::Wait if self.guard.as_ref().is_some_and(|guard| guard.is_stalled) => {
                    return Poll::Pending;
                }
                Next::Read | Next::Wait => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
    }

    fn pass(&mut self, n: usize, room: &mut ReadBuf<'_>) {
        let n = n.min(room.remaining());
        room.put_slice(&self.inbox.bytes()[..n]);
        self.inbox.consume(n);
        if let Some(guard) = &mut self.guard {
            guard.inbound.passed(n);
        }
    }

    fn replace(&mut self, room: &mut ReadBuf<'_>) {
        if let Some(guard) = &mut self.guard {
            let replacement = guard.inbound.replacement();
            let n = replacement.len().min(room.remaining());
            room.put_slice(&replacement[..n]);
            guard.inbound.replaced(n);
        }
    }

    /// Reads what is here; 0 at the end.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = self.io.poll_read(cx, self.inbox.room());
        match read {
            Poll::Ready(Ok(n)) => {
                self.inbox.filled(n);
                self.read += n;
            }
            _ => self.inbox.release(),
        }
        read
    }
}

fn non_zero(n: usize) -> io::Result<usize> {
    if n == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(n) }
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_read(cx, room)
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write(cx, &[IoSlice::new(bytes), IoSlice::new(&[])])
    }

    /// The `h2` crate writes the start of a frame and its body, no more.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let piece = |at| pieces.get(at).copied().unwrap_or(IoSlice::new(&[]));
        self.0.borrow_mut().poll_write(cx, &[piece(0), piece(1)])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing, because the task that drives the connection sends the buffered bytes.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = &mut *self.0.borrow_mut();
        ready!(stream.poll_flush(cx))?;
        stream.io.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;

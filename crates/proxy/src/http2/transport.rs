//! A connection's byte stream as the `h2` crate takes it. The crate writes frame by frame; what it writes waits here until
//! the task that drives the connection has let it do all that it can do now, and leaves in one piece.

use crate::buffer::{Buffer, Outbox};
use crate::io::Io;
use crate::wire::Wire;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes that wait, with those before them that have left.
const HELD: usize = 64 * 1024;

/// Larger pieces are not copied to wait, but leave with what waits.
const COPIED: usize = 8 * 1024;

/// What is read in one turn. Then those whose streams it is for have theirs: the crate would otherwise hold whatever a
/// fast peer sends, and give up the connection for it.
const TURN: usize = 64 * 1024;

/// What the `h2` crate reads from and writes to.
pub(crate) struct Transport(Rc<RefCell<Stream>>);

/// Sends what waits. The task that drives the connection has it.
pub(crate) struct Sender(Rc<RefCell<Stream>>);

/// A byte stream, with what was read and is not used, and what is to be written.
struct Stream {
    io: Io,
    inbox: Buffer,
    outbox: Outbox,
    /// Bytes read in this turn.
    read: usize,
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
        Self(Rc::new(RefCell::new(Stream { io, inbox, outbox: Outbox::default(), read: 0 })))
    }

    pub(crate) fn sender(&self) -> Sender {
        Sender(self.0.clone())
    }
}

impl Sender {
    /// Sends all that waits, as far as the other side takes it.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_flush(cx)
    }

    /// Does what the future does, and sends what it writes whenever it waits.
    pub(crate) async fn with<T>(&self, future: impl Future<Output = T>) -> io::Result<T> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Ok(value)),
            Poll::Pending => match self.poll_flush(cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                _ => Poll::Pending,
            },
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

    /// Takes some of a piece of so many bytes: to wait, or to leave together with what waits.
    fn poll_take(&mut self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>; 2]) -> Poll<io::Result<usize>> {
        let length = pieces[0].len() + pieces[1].len();
        if length <= COPIED && self.outbox.held() + length <= HELD {
            for piece in pieces {
                self.outbox.writable().extend_from_slice(piece);
            }
            return Poll::Ready(Ok(length));
        }
        loop {
            let waiting = self.outbox.pending().len();
            let all = [IoSlice::new(self.outbox.pending()), pieces[0], pieces[1]];
            let n = non_zero(ready!(self.io.poll_write_vectored(cx, &all))?)?;
            self.outbox.wrote(n.min(waiting));
            if n > waiting {
                return Poll::Ready(Ok(n - waiting));
            }
        }
    }

    /// Reads much at once: the `h2` crate has little room, and would ask for one frame after the other.
    fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.inbox.is_empty() {
            if self.read >= TURN {
                self.read = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let read = self.io.poll_read(cx, self.inbox.room());
            let Poll::Ready(Ok(n)) = read else {
                self.read = 0;
                self.inbox.release();
                return read.map_ok(|_| ());
            };
            self.inbox.filled(n);
            self.read += n;
        }
        let n = self.inbox.len().min(room.remaining());
        room.put_slice(&self.inbox.bytes()[..n]);
        self.inbox.consume(n);
        Poll::Ready(Ok(()))
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
        self.0.borrow_mut().poll_take(cx, &[IoSlice::new(bytes), IoSlice::new(&[])])
    }

    /// The `h2` crate writes the start of a frame and its body, no more.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let piece = |at| pieces.get(at).copied().unwrap_or(IoSlice::new(&[]));
        self.0.borrow_mut().poll_take(cx, &[piece(0), piece(1)])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Whoever drives the connection sends what waits.
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

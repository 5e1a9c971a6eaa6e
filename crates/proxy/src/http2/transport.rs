//! A connection's byte stream as the `h2` crate takes it.

use crate::buffer::Buffer;
use crate::io::Io;
use crate::wire::Wire;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A byte stream, of which some may have been read before it was known to be HTTP/2.
pub(crate) struct Transport {
    io: Io,
    early: Buffer,
}

impl From<Io> for Transport {
    fn from(io: Io) -> Self {
        Self { io, early: Buffer::default() }
    }
}

impl From<Wire> for Transport {
    fn from(wire: Wire) -> Self {
        Self { io: wire.io, early: wire.inbox }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.early.is_empty() {
            let n = self.early.len().min(room.remaining());
            room.put_slice(&self.early.bytes()[..n]);
            self.early.consume(n);
            self.early.release();
            return Poll::Ready(Ok(()));
        }
        let n = ready!(self.io.poll_read(cx, room.initialize_unfilled()))?;
        room.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.io.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.io.poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_shutdown(cx)
    }
}

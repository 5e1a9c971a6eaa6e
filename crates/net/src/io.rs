//! The byte stream under a connection: a socket, TLS on one, or memory in benchmarks and tests.

use crate::buffer::Buffer;
use crate::socket::{Socket, would_block};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Any other stream, such as one in memory.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

/// The byte stream under a connection.
#[allow(missing_docs)]
pub enum Io {
    Plain(Socket),
    TlsServer(Box<tokio_rustls::server::TlsStream<Socket>>),
    TlsClient(Box<tokio_rustls::client::TlsStream<Socket>>),
    Memory(Box<dyn Duplex>),
}

macro_rules! each {
    ($self:expr, $io:ident => $do:expr) => {
        match $self {
            Io::Plain($io) => $do,
            Io::TlsServer($io) => $do,
            Io::TlsClient($io) => $do,
            Io::Memory($io) => $do,
        }
    };
}

impl Io {
    /// The address of the other side.
    pub fn peer(&self) -> Option<SocketAddr> {
        match self {
            Io::Plain(socket) => socket.peer(),
            Io::TlsServer(tls) => tls.get_ref().0.peer(),
            Io::TlsClient(tls) => tls.get_ref().0.peer(),
            Io::Memory(_) => None,
        }
    }

    /// The protocol that a TLS handshake agreed on.
    pub fn alpn(&self) -> Option<&[u8]> {
        match self {
            Io::TlsServer(tls) => tls.get_ref().1.alpn_protocol(),
            Io::TlsClient(tls) => tls.get_ref().1.alpn_protocol(),
            Io::Plain(_) | Io::Memory(_) => None,
        }
    }

    /// Reads some bytes; 0 is the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Io::Plain(socket) = self {
            return socket.poll_recv(cx, room);
        }
        let mut buffer = ReadBuf::new(room);
        ready!(each!(self, io => Pin::new(io).poll_read(cx, &mut buffer)))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Reads once into an inbox, which borrows its memory when there is something to read. 0 is the end, or a full inbox.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>, inbox: &mut Buffer) -> Poll<io::Result<usize>> {
        let Io::Plain(socket) = self else {
            ready!(self.poll_readable(cx))?;
            return self.poll_read(cx, inbox.room());
        };
        loop {
            ready!(socket.poll_read_ready(cx))?;
            let read = socket.try_recv(inbox.room());
            if !would_block(&read) {
                return Poll::Ready(read);
            }
        }
    }

    /// Ready when a read would find bytes or the end; costs no buffer.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = match self {
            Io::Plain(socket) => socket,
            Io::TlsServer(tls) if tls.get_ref().1.wants_read() => tls.get_ref().0,
            Io::TlsClient(tls) if tls.get_ref().1.wants_read() => tls.get_ref().0,
            _ => return Poll::Ready(Ok(())),
        };
        if socket.is_readable() { Poll::Ready(Ok(())) } else { socket.poll_read_ready(cx) }
    }

    /// Writes some of the bytes.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, io => Pin::new(io).poll_write(cx, bytes))
    }

    /// Writes some of several pieces at once.
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, io => Pin::new(io).poll_write_vectored(cx, pieces))
    }

    /// Flushes what a TLS session still holds to the socket.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Io::Plain(_) => Poll::Ready(Ok(())),
            Io::TlsServer(io) => Pin::new(io).poll_flush(cx),
            Io::TlsClient(io) => Pin::new(io).poll_flush(cx),
            Io::Memory(io) => Pin::new(io).poll_flush(cx),
        }
    }

    /// Closes the sending side.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, io => Pin::new(io).poll_shutdown(cx))
    }

    /// Makes the close that follows a reset, where nothing else would tell the peer that something is missing: over
    /// TLS the missing close_notify does.
    pub fn reset_on_close(&self) {
        if let Io::Plain(socket) = self {
            socket.reset_on_close();
        }
    }

    /// Whether an idle connection must not be reused, because its peer closed it or sent unsolicited bytes.
    /// Reads the runtime's readiness cache, so that a healthy connection costs no system call.
    pub fn is_stale(&mut self) -> bool {
        match self {
            Io::Plain(socket) => !would_block(&socket.try_read(&mut [0])),
            Io::TlsServer(_) | Io::TlsClient(_) | Io::Memory(_) => self.has_something_to_read(),
        }
    }

    /// A TLS peer may send tickets at any time, so only what is left once they are taken counts: data, or the end.
    fn has_something_to_read(&mut self) -> bool {
        self.poll_read(&mut Context::from_waker(Waker::noop()), &mut [0]).is_ready()
    }
}

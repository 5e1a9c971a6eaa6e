//! A connection: TCP, TLS over it, or a Unix socket.

use super::buffer::{Buffer, Room};
use super::{Network, Open};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// How many bytes are read at once.
const PIECE: usize = 8 << 10;

trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

enum Transport {
    Tcp(TcpStream),
    /// TLS, or a Unix socket.
    Other(Box<dyn Stream>),
    /// A handshake has it.
    Taken,
}

impl Transport {
    fn stream(&mut self) -> io::Result<Pin<&mut dyn Stream>> {
        match self {
            Self::Tcp(stream) => Ok(Pin::new(stream)),
            Self::Other(stream) => Ok(Pin::new(stream)),
            Self::Taken => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// Where a connection leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Host(String, u16),
    Path(String),
}

/// A connection with what was read from it.
pub(super) struct Connection {
    transport: Transport,
    pub(super) buffer: Buffer,
    /// How often it was used before.
    pub(super) reused: u32,
    pub(super) is_secure: bool,
    _open: Open,
}

impl Connection {
    /// Connects to a target.
    pub(super) async fn open(
        target: &Target,
        network: &Network,
        (open, room): (Open, Room),
    ) -> io::Result<Self> {
        let transport = match target {
            Target::Host(host, port) => Transport::Tcp(network.clear.tcp(host, *port).await?),
            Target::Path(path) => {
                let stream = UnixStream::connect(path).await;
                let explained = |error: io::Error| match error.kind() {
                    io::ErrorKind::NotFound => io::Error::other("no such file or directory"),
                    _ => error,
                };
                Transport::Other(Box::new(stream.map_err(explained)?))
            }
        };
        let buffer = Buffer::new(room);
        Ok(Self { transport, buffer, reused: 0, is_secure: false, _open: open })
    }

    /// Performs a TLS handshake with the server of this name.
    pub(super) async fn secure(mut self, name: &str, dialer: weir_plugin::Dialer) -> io::Result<Self> {
        match std::mem::replace(&mut self.transport, Transport::Taken) {
            Transport::Tcp(stream) => {
                let stream = dialer.tls(name, stream).await?;
                Ok(Self { transport: Transport::Other(Box::new(stream)), is_secure: true, ..self })
            }
            _ => Err(io::Error::other("TLS over Unix sockets is not available")),
        }
    }

    /// Reads more. 0 bytes are the end.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut piece = [0; PIECE];
        let mut read = ReadBuf::new(&mut piece);
        match self.transport.stream()?.poll_read(cx, &mut read) {
            Poll::Ready(Ok(())) if !self.buffer.add(read.filled()) => {
                Poll::Ready(Err(io::Error::other("no memory: sockets hold too many bytes")))
            }
            ready => ready.map_ok(|()| read.filled().len()),
        }
    }

    /// Writes some of the bytes.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.transport.stream()?.poll_write(cx, bytes)
    }

    /// Sends what was written.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport.stream()?.poll_flush(cx)
    }

    /// Whether nothing came since it was last used, and it is open.
    pub(super) fn is_idle(&mut self) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        self.buffer.is_empty() && self.poll_read(&mut cx).is_pending()
    }
}

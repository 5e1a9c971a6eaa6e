//! A connected plaintext socket: TCP, or a Unix socket.

use rustix::net::{RecvFlags, recv};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connected socket.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! each {
    ($self:expr, $socket:ident => $do:expr) => {
        match $self {
            Socket::Tcp($socket) => $do,
            Socket::Unix($socket) => $do,
        }
    };
}

impl Socket {
    /// The address of the other side; a Unix socket has none.
    pub fn peer(&self) -> Option<SocketAddr> {
        match self {
            Socket::Tcp(tcp) => tcp.peer_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    /// Ready when a read may find something.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, socket => socket.poll_read_ready(cx))
    }

    /// Ready when a write may be taken.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, socket => socket.poll_write_ready(cx))
    }

    /// Does something with the socket that may find that it would have to wait.
    pub fn try_io<T>(&self, interest: Interest, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        each!(self, socket => socket.try_io(interest, act))
    }

    /// Reads what is there.
    pub fn try_read(&self, room: &mut [u8]) -> io::Result<usize> {
        each!(self, socket => socket.try_read(room))
    }

    /// Waits until more bytes than so many are there to be read, and copies them without taking them. As many as
    /// before: the other side has ended.
    pub async fn peek_beyond(&self, known: usize, room: &mut [u8]) -> io::Result<usize> {
        let peek = || {
            let (n, _) = recv(self, &mut room[..], RecvFlags::PEEK)?;
            // No new bytes: `has_ended` distinguishes the end of the stream from a socket that would block.
            if n > known || self.has_ended() { Ok(n) } else { Err(io::ErrorKind::WouldBlock.into()) }
        };
        match self {
            Socket::Tcp(tcp) => tcp.async_io(Interest::READABLE, peek).await,
            Socket::Unix(unix) => unix.async_io(Interest::READABLE, peek).await,
        }
    }

    /// Whether the peer will send nothing more than what has already arrived.
    fn has_ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut asked = [PollFd::new(self, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let answered = poll(&mut asked, Some(&at_once)).unwrap_or_default();
        let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        answered > 0 && asked[0].revents().intersects(ends)
    }

    /// Makes the close that follows a reset.
    pub fn reset_on_close(&self) {
        if let Socket::Tcp(tcp) = self {
            let _ = tcp.set_zero_linger();
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        each!(self, socket => socket.as_fd())
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(&mut *self, socket => Pin::new(socket).poll_read(cx, room))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(&mut *self, socket => Pin::new(socket).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(&mut *self, socket => Pin::new(socket).poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(&mut *self, socket => Pin::new(socket).poll_shutdown(cx))
    }
}

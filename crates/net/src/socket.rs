//! A connected plaintext socket: TCP, or a Unix socket.

use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
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

    /// Whether a read may find something, as far as the runtime knows: it is not asked to wake a task.
    pub fn is_readable(&self) -> bool {
        self.try_io(Interest::READABLE, || Ok(())).is_ok()
    }

    /// Reads some bytes; 0 is the end.
    pub fn poll_recv(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_read_ready(cx))?;
            let read = self.try_recv(room);
            if !would_block(&read) {
                return Poll::Ready(read);
            }
        }
    }

    /// Reads some bytes, if some are here; 0 is the end.
    pub fn try_recv(&self, room: &mut [u8]) -> io::Result<usize> {
        self.try_some(Interest::READABLE, room.len(), || Ok(recv(self, room, RecvFlags::empty())?.0))
    }

    /// Writes some of the bytes.
    fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            // Asking the runtime first, as for reads, costs more. What is written was read, or is in memory: it has an end.
            let written = self
                .try_some(Interest::WRITABLE, bytes.len(), || Ok(send(self, bytes, SendFlags::NOSIGNAL)?));
            if !would_block(&written) {
                return Poll::Ready(written);
            }
            ready!(self.poll_write_ready(cx))?;
        }
    }

    /// Moves at most so many bytes. If it moves fewer, the next call would block, which the runtime has to know: it waits
    /// for changes alone.
    fn try_some(
        &self,
        interest: Interest,
        most: usize,
        act: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut moved = 0;
        let done = self.try_io(interest, || {
            moved = act()?;
            if (1..most).contains(&moved) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(moved) }
        });
        if moved > 0 { Ok(moved) } else { done }
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
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, bytes)
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

/// Whether a call found that it would have to wait.
pub(crate) fn would_block<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

//! A non-blocking TCP socket that remembers its readiness, and holds what it could not send.
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Memory for unsent bytes that a socket keeps once they are sent.
const MAX_RETAINED_BYTES: usize = 16 * 1024;

/// A connection's socket. Callers bound what it holds: they send no more while it [is blocked](Socket::is_blocked).
pub struct Socket {
    descriptor: OwnedFd,
    readable: bool,
    /// The peer ends the connection; reading goes on until that is read.
    ending: bool,
    unsent: Vec<u8>,
    sent: usize,
}

/// What came of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes.
    Bytes(usize),
    /// None yet.
    Nothing,
    /// The peer sends no more.
    End,
}

impl Socket {
    /// Takes over an accepted, non-blocking socket.
    pub fn accepted(descriptor: OwnedFd) -> Self {
        Self { descriptor, readable: false, ending: false, unsent: Vec::new(), sent: 0 }
    }

    /// Begins to connect. What is sent before the connection stands is held until it does.
    ///
    /// # Errors
    /// When there is no descriptor left, or the connection is refused at once.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let descriptor = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&descriptor, true)?;
        match rustix::net::connect(&descriptor, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Self::accepted(descriptor)),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes note of an event. A broken connection counts as readable, because reading returns its error.
    #[inline]
    pub fn note(&mut self, flags: EventFlags) {
        let ending = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        self.readable |= flags.intersects(ending | EventFlags::IN);
        self.ending |= flags.intersects(ending);
    }

    /// Whether there may be something to read.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Whether the peer ends the connection, or it broke.
    #[inline]
    pub fn is_ending(&self) -> bool {
        self.ending
    }

    /// Reads what has arrived.
    ///
    /// # Errors
    /// When the connection broke.
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            match rustix::net::recv(&self.descriptor, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => return Ok(Received::End),
                Ok((count, _)) => {
                    // Less than was asked for: what follows comes with an event of its own.
                    self.readable = count == buffer.len() || self.ending;
                    return Ok(Received::Bytes(count));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.readable = false;
                    return Ok(Received::Nothing);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends bytes, and holds those that do not go out at once.
    ///
    /// # Errors
    /// When the connection broke.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_blocked() {
            self.unsent.extend_from_slice(bytes);
            return Ok(());
        }
        let sent = self.offer(bytes)?;
        if sent < bytes.len() {
            self.unsent.extend_from_slice(&bytes[sent..]);
        }
        Ok(())
    }

    /// Sends as many bytes as go out at once, and holds none.
    ///
    /// # Errors
    /// When the connection broke.
    #[inline]
    pub fn offer(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            match rustix::net::send(&self.descriptor, &bytes[sent..], SendFlags::NOSIGNAL) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sent)
    }

    /// Whether bytes are held that could not be sent.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends what is held; whether nothing is left.
    ///
    /// # Errors
    /// When the connection broke.
    #[inline]
    pub fn flush(&mut self) -> io::Result<bool> {
        if !self.is_blocked() {
            return Ok(true);
        }
        let unsent = std::mem::take(&mut self.unsent);
        let sent = self.offer(&unsent[self.sent..])?;
        self.unsent = unsent;
        self.sent += sent;
        if self.sent < self.unsent.len() {
            return Ok(false);
        }
        self.sent = 0;
        self.unsent.clear();
        self.unsent.shrink_to(MAX_RETAINED_BYTES);
        Ok(true)
    }

    /// Closes the sending half.
    pub fn finish_sending(&self) {
        // A connection that is gone needs no end.
        let _ = rustix::net::shutdown(&self.descriptor, Shutdown::Write);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

//! What two processes say to each other while one replaces the other: messages of JSON over a socket, with descriptors.
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recv, recvmsg, sendmsg, shutdown,
    socketpair,
};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use weir_proxy::QuicIdentity;

/// The longest message.
const MAX_MESSAGE: usize = 64 << 10;
/// The longest reason why a process does not start.
const MAX_REASON: usize = MAX_MESSAGE / 4;

/// A message. Those of the old process come with a descriptor, but for `Begin` and `Left`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// Old: a listening socket, by the setting and the address there.
    Socket {
        setting: String,
        asked: Option<String>,
        /// Whether the service manager has opened it, which a version before this did not say.
        #[serde(default)]
        is_of_manager: Option<bool>,
    },
    /// Old: the pid file, whose lock excludes other nodes.
    PidFile,
    /// Old: the socket for commands.
    Commands,
    /// Old: the way to pass back datagrams of connections over QUIC.
    Quic(QuicIdentity),
    /// Old: the same to the process of this number among those before, which still drains.
    QuicOf { generation: u8 },
    /// Old: the channel of a process before, which still drains.
    Draining,
    /// Old: what was posted to `/config`, if that is what it serves.
    Configuration,
    /// Old: that was all; its process id, and the secret key under which the node keeps counts.
    Begin { pid: u32, key: (u64, u64) },
    /// New: everything has started, and these listeners of HTTP/3 would be received from.
    Ready { quic: Vec<SocketAddr> },
    /// New: why it does not start.
    Failed(String),
    /// Old: serve, with the state in this file.
    Serve,
    /// New: it takes over, and nothing of it can fail any more.
    Serving,
    /// Old: nothing is accepted and nothing is written to the disk any more.
    Left,
}

/// One end of the socket between the two processes.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

impl Channel {
    /// Both ends.
    pub(super) fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (own, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Channel(own), other))
    }

    pub(super) fn of(socket: OwnedFd) -> Channel {
        Channel(socket)
    }

    /// The socket itself.
    pub(super) fn into_socket(self) -> OwnedFd {
        self.0
    }

    /// How long each message may take.
    pub(super) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let timeout = timeout.max(Duration::from_millis(1));
        set_socket_timeout(&self.0, Timeout::Recv, Some(timeout))?;
        Ok(set_socket_timeout(&self.0, Timeout::Send, Some(timeout))?)
    }

    pub(super) fn send(&self, message: &Message) -> io::Result<()> {
        self.send_with(message, &[])
    }

    pub(super) fn send_descriptor(&self, message: &Message, descriptor: impl AsFd) -> io::Result<()> {
        self.send_with(message, &[descriptor.as_fd()])
    }

    fn send_with(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        // With a timeout, the system does not go on by itself behind a signal.
        retry_on_intr(|| sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// The next message, and the descriptor that came with it. An error of the kind `UnexpectedEof` where the other process
    /// has ended.
    pub(super) fn receive(&self) -> io::Result<(Message, Option<OwnedFd>)> {
        let mut bytes = vec![0; MAX_MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes)];
        let received = retry_on_intr(|| recvmsg(&self.0, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC))?;
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(Errno::MFILE.into());
        }
        let descriptor = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        Ok((serde_json::from_slice(&bytes[..received.bytes])?, descriptor))
    }

    /// The same, but if nothing comes in time, nothing can come later either: what the other process sends from then on fails there.
    pub(super) fn receive_in_time(&self) -> io::Result<Message> {
        let late = match self.receive() {
            Ok((message, _)) => return Ok(message),
            Err(error) => error,
        };
        shutdown(&self.0, Shutdown::Read)?;
        // It may have come meanwhile.
        self.receive().map(|(message, _)| message).map_err(|_| late)
    }

    /// Whether the process at the other end, from which nothing more comes, still runs.
    pub(super) fn is_open(&self) -> bool {
        recv(&self.0, &mut [0; 1][..], RecvFlags::DONTWAIT).is_err_and(|error| error == Errno::AGAIN)
    }

    /// Says why the new process does not start.
    pub(super) fn fail(&self, reason: &str) {
        let reason = reason.get(..reason.floor_char_boundary(MAX_REASON)).unwrap_or(reason);
        // If the old process is gone as well, there is no reader.
        let _ = self.send(&Message::Failed(reason.to_owned()));
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    #[test]
    fn descriptors_and_reasons_arrive() {
        let (one, other) = Channel::pair().unwrap();
        let other = Channel::of(other);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"text").unwrap();
        one.send_descriptor(&Message::Serve, &file).unwrap();
        one.send(&Message::Begin { pid: 7, key: (1, 2) }).unwrap();
        one.fail(&"é".repeat(MAX_MESSAGE));
        let (message, descriptor) = other.receive().unwrap();
        let mut received = File::from(descriptor.unwrap());
        received.rewind().unwrap();
        let mut text = String::new();
        received.read_to_string(&mut text).unwrap();
        assert!(matches!(message, Message::Serve) && text == "text");
        let (message, descriptor) = other.receive().unwrap();
        assert!(matches!(message, Message::Begin { pid: 7, key: (1, 2) }) && descriptor.is_none());
        assert!(matches!(other.receive().unwrap().0, Message::Failed(reason) if reason.len() <= MAX_REASON));
        drop(one);
        assert_eq!(other.receive().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_said_too_late_fails_where_it_is_said() {
        let (old, new) = Channel::pair().unwrap();
        let new = Channel::of(new);
        old.set_timeout(Duration::from_millis(1)).unwrap();
        let late = old.receive_in_time().unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(new.send(&Message::Serving).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn what_is_said_just_in_time_counts() {
        let (old, new) = Channel::pair().unwrap();
        Channel::of(new).send(&Message::Serving).unwrap();
        shutdown(&old.0, Shutdown::Read).unwrap();
        assert!(matches!(old.receive_in_time().unwrap(), Message::Serving));
    }
}

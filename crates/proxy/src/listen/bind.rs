//! Opens listeners.

use super::unix_file::Ownership;
use super::{Address, Listen, UnixFile};
use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// A socket that is listened on.
#[derive(Debug)]
pub enum Listener {
    /// For TCP.
    Tcp(TcpListener),
    /// For connections from this machine.
    Unix(UnixListener),
}

/// A listener, and the file that goes with it when it is closed.
#[derive(Debug)]
pub struct Bound {
    /// The socket.
    pub listener: Listener,
    /// Of a Unix socket.
    pub file: Option<UnixFile>,
}

impl Bound {
    /// Where it listens, with the port that the system chose.
    pub fn address(&self) -> io::Result<Address> {
        match (&self.listener, &self.file) {
            (Listener::Unix(_), Some(file)) => Ok(Address::Unix(file.path().into())),
            (Listener::Unix(unix), None) => {
                let address = unix.local_addr()?;
                Ok(Address::Unix(address.as_pathname().unwrap_or(Path::new("")).into()))
            }
            (Listener::Tcp(tcp), _) => tcp.local_addr().map(Address::Ip),
        }
    }
}

/// Listens for connections. The socket is not blocking.
pub(super) fn bind(listen: &Listen, files: &Ownership) -> io::Result<Bound> {
    let backlog = listen.backlog.try_into().unwrap_or(i32::MAX);
    match &listen.address {
        Address::Ip(address) => {
            let socket = Socket::new(Domain::for_address(*address), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            only_v6(&socket, address.is_ipv6())?;
            socket.set_nonblocking(true)?;
            socket.bind(&(*address).into())?;
            socket.listen(backlog)?;
            Ok(Bound { listener: Listener::Tcp(socket.into()), file: None })
        }
        Address::Unix(path) => {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            let file = UnixFile::create(path, listen.mode, files, |place| {
                socket.bind(&SockAddr::unix(place)?)?;
                socket.listen(backlog)
            })?;
            Ok(Bound { listener: Listener::Unix(socket.into()), file: Some(file) })
        }
    }
}

/// The requested size of the buffers of a socket of QUIC.
const QUIC_BUFFER: usize = 2 * 1024 * 1024;

/// Gives a socket of QUIC buffers as large as the system allows.
pub(super) fn enlarge_buffers(socket: &UdpSocket) {
    let sized = socket2::SockRef::from(socket);
    let _ = sized.set_recv_buffer_size(QUIC_BUFFER);
    let _ = sized.set_send_buffer_size(QUIC_BUFFER);
}

/// One socket for datagrams for each worker: the system spreads clients over them, and keeps each with one.
pub(super) fn bind_datagrams(address: &Address, workers: usize) -> io::Result<Vec<UdpSocket>> {
    let Address::Ip(address) = address else {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "datagrams come over IP alone"));
    };
    // Sockets that share a port share it with another process's as well: only one that does not share finds that out.
    let mut address = datagrams(*address, false)?.local_addr()?;
    let mut sockets = Vec::with_capacity(workers);
    for _ in 0..workers {
        let socket = datagrams(address, true)?;
        address = socket.local_addr()?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Up to so many more sockets for datagrams at an address where others receive already.
pub(super) fn join_datagrams(address: &Address, count: usize) -> Vec<UdpSocket> {
    let Address::Ip(address) = address else { return Vec::new() };
    (0..count).map_while(|_| datagrams(*address, true).ok()).collect()
}

fn datagrams(address: SocketAddr, is_shared: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    sockopt::set_socket_reuseport(&socket, is_shared)?;
    only_v6(&socket, address.is_ipv6())?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn only_v6(socket: &Socket, is_v6: bool) -> io::Result<()> {
    if is_v6 { socket.set_only_v6(true) } else { Ok(()) }
}

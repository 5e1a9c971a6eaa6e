//! The listening sockets of a process: those that it was given, by the process that it replaces or by the service manager,
//! and copies of those that it has opened, for the process that replaces it.

use super::bind::{self, Bound, Listener};
use super::{Address, Listen, Traffic, UnixFile};
use socket2::{Domain, SockRef, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A listening socket, and what it is for.
#[derive(Debug)]
pub struct NamedSocket {
    /// The setting that it belongs to, or what the service manager calls it.
    pub setting: String,
    /// The address of the setting, which may leave the port to the system; none where the service manager opened it.
    pub asked: Option<Address>,
    /// The socket.
    pub socket: OwnedFd,
}

/// The listening sockets of this process.
#[derive(Debug, Default)]
pub struct SocketTable {
    given: Mutex<Vec<NamedSocket>>,
    open: Mutex<Vec<NamedSocket>>,
    files: super::unix_file::Ownership,
}

impl SocketTable {
    /// With these to take before any is opened, of a service manager.
    pub fn given(sockets: Vec<NamedSocket>) -> Self {
        Self { given: Mutex::new(sockets), ..Self::default() }
    }

    /// The same of a process that goes on if this one fails: the files of Unix sockets are its own until
    /// [`SocketTable::own_files`].
    pub fn shared(sockets: Vec<NamedSocket>) -> Self {
        let table = Self::given(sockets);
        table.leave_files();
        table
    }

    /// Listens for connections at an address of a setting. The socket is not blocking.
    pub fn bind(&self, setting: &str, listen: &Listen) -> io::Result<Bound> {
        let bound = match self.take(setting, &listen.address, Type::STREAM) {
            Some(socket) => self.adopt(listen, socket)?,
            None => bind::bind(listen, &self.files)?,
        };
        let copy = match &bound.listener {
            Listener::Tcp(tcp) => tcp.try_clone()?.into(),
            Listener::Unix(unix) => unix.try_clone()?.into(),
        };
        self.record(setting, &listen.address, copy);
        Ok(bound)
    }

    /// Sockets for datagrams, at least one for each worker.
    pub(crate) fn bind_datagrams(&self, listen: &Listen, workers: usize) -> io::Result<Vec<UdpSocket>> {
        let setting = setting_of(listen.traffic);
        let mut sockets = self.take_datagrams(setting, &listen.address)?;
        let address = match sockets.first() {
            Some(first) => Address::Ip(first.local_addr()?),
            None => listen.address.clone(),
        };
        match sockets.len() {
            0 => sockets = bind::bind_datagrams(&address, workers)?,
            // Sockets that the service manager opened cannot be joined by others.
            some if some < workers => sockets.extend(bind::join_datagrams(&address, workers - some)),
            _ => {}
        }
        for socket in &sockets {
            if listen.traffic == Traffic::Quic {
                bind::enlarge_buffers(socket);
            }
            self.record(setting, &listen.address, socket.try_clone()?.into());
        }
        Ok(sockets)
    }

    /// The first given socket for datagrams, and those that share its address.
    fn take_datagrams(&self, setting: &str, address: &Address) -> io::Result<Vec<UdpSocket>> {
        let Some(first) = self.take(setting, address, Type::DGRAM) else { return Ok(Vec::new()) };
        let mut sockets = vec![UdpSocket::from(first)];
        let local = sockets[0].local_addr()?;
        let is_same = |it: &mut NamedSocket| {
            let socket = SockRef::from(&it.socket);
            let is_datagram = socket.r#type().is_ok_and(|it| it == Type::DGRAM);
            is_datagram && socket.local_addr().is_ok_and(|it| it.as_socket() == Some(local))
        };
        let others = lock(&self.given).extract_if(.., is_same).collect::<Vec<_>>();
        sockets.extend(others.into_iter().map(|it| UdpSocket::from(it.socket)));
        sockets.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
        Ok(sockets)
    }

    /// Copies of the sockets that are open, for another process.
    pub fn copies(&self) -> io::Result<Vec<NamedSocket>> {
        let copy = |it: &NamedSocket| {
            let (setting, asked) = (it.setting.clone(), it.asked.clone());
            Ok(NamedSocket { setting, asked, socket: it.socket.try_clone()? })
        };
        lock(&self.open).iter().map(copy).collect()
    }

    /// Closes the copies of this process, without which a socket that is no longer accepted from would stay open.
    pub fn close_copies(&self) {
        lock(&self.open).clear();
    }

    /// Leaves the files of Unix sockets to the process that has taken the sockets over.
    pub fn leave_files(&self) {
        self.files.set(false);
    }

    /// Removes the files of Unix sockets once these are closed.
    pub fn own_files(&self) {
        self.files.set(true);
    }

    /// The sockets that were given and that no setting uses. They are closed.
    pub fn close_unused(&self) -> Vec<String> {
        let unused = std::mem::take(&mut *lock(&self.given));
        let name = |it: &NamedSocket| {
            let address = SockRef::from(&it.socket).local_addr();
            let address = address.ok().and_then(|address| address.as_socket());
            format!("{} {}", it.setting, address.map(|address| address.to_string()).unwrap_or_default())
        };
        unused.iter().map(name).collect()
    }

    fn record(&self, setting: &str, asked: &Address, socket: OwnedFd) {
        let (setting, asked) = (setting.to_owned(), Some(asked.clone()));
        lock(&self.open).push(NamedSocket { setting, asked, socket });
    }

    /// The first given socket that is meant for an address of a setting.
    fn take(&self, setting: &str, address: &Address, kind: Type) -> Option<Socket> {
        let mut given = lock(&self.given);
        let is_kind = |it: &NamedSocket| SockRef::from(&it.socket).r#type().is_ok_and(|it| it == kind);
        let exact = given.iter().position(|it| {
            is_kind(it)
                && match &it.asked {
                    Some(asked) => it.setting == setting && asked == address,
                    None => is_at(&it.socket, address),
                }
        });
        let by_name =
            || given.iter().position(|it| is_kind(it) && it.asked.is_none() && it.setting == setting);
        let place = exact.or_else(by_name)?;
        Some(given.remove(place).socket.into())
    }

    /// Takes over a socket that another process has opened.
    fn adopt(&self, listen: &Listen, socket: Socket) -> io::Result<Bound> {
        socket.set_nonblocking(true)?;
        if socket.domain()? != Domain::UNIX {
            return Ok(Bound { listener: Listener::Tcp(socket.into()), file: None });
        }
        let file = match &listen.address {
            Address::Unix(path) => UnixFile::adopt(path, &self.files).ok(),
            Address::Ip(_) => None,
        };
        Ok(Bound { listener: Listener::Unix(socket.into()), file })
    }
}

/// The setting that a listener of the data plane belongs to.
pub(crate) fn setting_of(traffic: Traffic) -> &'static str {
    if traffic.is_http() { "proxy_listen" } else { "stream_listen" }
}

/// Whether a socket of the service manager listens at an address, or on all addresses where that is asked for.
fn is_at(socket: &OwnedFd, address: &Address) -> bool {
    let Ok(own) = SockRef::from(socket).local_addr() else { return false };
    match address {
        Address::Unix(path) => own.as_pathname() == Some(&**path),
        Address::Ip(address) => own.as_socket().is_some_and(|own| is_same(own, *address)),
    }
}

/// `[::]:80` of systemd takes clients of IPv4 too.
fn is_same(own: SocketAddr, asked: SocketAddr) -> bool {
    let are_any = own.ip().is_unspecified() && asked.ip().is_unspecified();
    own.port() == asked.port() && (own.ip() == asked.ip() || are_any)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::{UnixListener, UnixStream};

    fn named(setting: &str, socket: impl Into<OwnedFd>) -> NamedSocket {
        NamedSocket { setting: setting.to_owned(), asked: None, socket: socket.into() }
    }

    fn at(bound: &Bound) -> SocketAddr {
        bound.address().unwrap().ip().unwrap()
    }

    #[test]
    fn what_one_process_opened_another_takes_over() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let old = SocketTable::default();
        let (admin, first, second) = (
            old.bind("admin_listen", &Listen::http(any)).unwrap(),
            old.bind("proxy_listen", &Listen::http(any)).unwrap(),
            old.bind("proxy_listen", &Listen::http(any)).unwrap(),
        );
        let new = SocketTable::given(old.copies().unwrap());
        assert_eq!(at(&new.bind("proxy_listen", &Listen::http(any)).unwrap()), at(&first));
        assert_eq!(at(&new.bind("admin_listen", &Listen::http(any)).unwrap()), at(&admin));
        assert_ne!(at(&new.bind("status_listen", &Listen::http(any)).unwrap()).port(), 0);
        assert_eq!(new.close_unused(), [format!("proxy_listen {}", at(&second))]);
        assert_eq!(new.copies().unwrap().len(), 3);
    }

    #[test]
    fn every_socket_of_a_port_is_taken_over_and_more_are_added() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listen = Listen { traffic: Traffic::Quic, tls: true, ..Listen::http(any) };
        let old = SocketTable::default();
        let sockets = old.bind_datagrams(&listen, 2).unwrap();
        for (workers, expected) in [(1, 2), (2, 2), (4, 4)] {
            let new = SocketTable::given(old.copies().unwrap());
            let taken = new.bind_datagrams(&listen, workers).unwrap();
            assert_eq!(taken.len(), expected);
            assert!(taken.iter().all(|it| it.local_addr().unwrap() == sockets[0].local_addr().unwrap()));
        }
    }

    #[test]
    fn sockets_of_the_service_manager_are_found_by_address_or_by_name() {
        let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [by_address, by_name] = sockets.each_ref().map(|socket| socket.local_addr().unwrap());
        let [first, second] = sockets;
        let table = SocketTable::given(vec![named("weir.socket", first), named("status_listen", second)]);
        assert_eq!(at(&table.bind("proxy_listen", &Listen::http(by_address)).unwrap()), by_address);
        let other: SocketAddr = "127.0.0.1:8007".parse().unwrap();
        assert_eq!(at(&table.bind("status_listen", &Listen::http(other)).unwrap()), by_name);
        assert!(table.close_unused().is_empty());
        assert!(is_same("[::]:80".parse().unwrap(), "0.0.0.0:80".parse().unwrap()));
        assert!(!is_same("[::]:80".parse().unwrap(), "127.0.0.1:80".parse().unwrap()));
    }

    #[test]
    fn the_file_of_a_socket_belongs_to_the_process_that_took_it_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let listen = Listen::http(Address::Unix(path.as_path().into()));
        let old = SocketTable::default();
        let bound = old.bind("proxy_listen", &listen).unwrap();
        let new = SocketTable::shared(old.copies().unwrap());
        drop(new.bind("proxy_listen", &listen).unwrap());
        assert!(path.exists(), "a process that fails leaves the file alone");
        let new = SocketTable::shared(old.copies().unwrap());
        let taken = new.bind("proxy_listen", &listen).unwrap();
        old.leave_files();
        new.own_files();
        old.close_copies();
        drop(bound);
        assert!(UnixStream::connect(&path).is_ok());
        drop(taken);
        assert!(!path.exists());
        let _other = UnixListener::bind(&path).unwrap();
    }
}

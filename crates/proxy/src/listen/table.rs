//! The listening sockets of a process: those that it was given, by the process that it replaces or by the service manager,
//! and copies of those that it has opened, for the process that replaces it.

use super::bind::{self, Bound, Listener};
use super::unix_file::FileMode;
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
    /// Whether the service manager has opened it, and keeps it open: its file stays when the node stops. None where that is not
    /// known, because an older process has sent it.
    pub is_of_manager: Option<bool>,
    /// The socket.
    pub socket: OwnedFd,
}

/// The listening sockets of this process.
#[derive(Debug, Default)]
pub struct SocketTable {
    given: Mutex<Vec<NamedSocket>>,
    open: Mutex<Vec<NamedSocket>>,
    /// Where the settings listen: a socket of the service manager that fits none of these goes by its name.
    addresses: Vec<Address>,
    files: super::unix_file::Ownership,
    /// The modes that files of another process get once they are this one's.
    modes: Mutex<Vec<FileMode>>,
}

impl SocketTable {
    /// With these to take before any is opened, of a service manager.
    pub fn given(sockets: Vec<NamedSocket>) -> Self {
        Self { given: Mutex::new(sockets), ..Self::default() }
    }

    /// With all the addresses that the settings listen at.
    #[must_use]
    pub fn for_addresses(self, addresses: Vec<Address>) -> Self {
        Self { addresses, ..self }
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
        let (bound, is_of_manager) = match self.take(setting, &listen.address, Type::STREAM) {
            Some(given) => (self.adopt(listen, &given)?, given.is_of_manager),
            None => (self.bind_anew(listen)?, Some(false)),
        };
        let copy = match &bound.listener {
            Listener::Tcp(tcp) => tcp.try_clone()?.into(),
            Listener::Unix(unix) => unix.try_clone()?.into(),
        };
        self.record((setting, &listen.address), is_of_manager, copy);
        Ok(bound)
    }

    /// Opens a socket. What is in use may be this node's own, in the process that is to be replaced.
    fn bind_anew(&self, listen: &Listen) -> io::Result<Bound> {
        bind::bind(listen, &self.files).map_err(|error| {
            let port = listen.address.ip().map(|address| address.port());
            let is_own = |it: &NamedSocket| {
                let own = SockRef::from(&it.socket).local_addr().ok().and_then(|own| own.as_socket());
                own.is_some() && own.map(|own| own.port()) == port
            };
            if error.kind() == io::ErrorKind::AddrInUse && lock(&self.given).iter().any(is_own) {
                let what = "the process to replace listens at another address of this port, which only a restart can change";
                return io::Error::other(what);
            }
            error
        })
    }

    /// Sockets for datagrams, at least one for each worker.
    pub(crate) fn bind_datagrams(&self, listen: &Listen, workers: usize) -> io::Result<Vec<UdpSocket>> {
        let setting = setting_of(listen.traffic);
        let (mut sockets, is_of_manager) = self.take_datagrams(setting, &listen.address)?;
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
            self.record((setting, &listen.address), is_of_manager, socket.try_clone()?.into());
        }
        Ok(sockets)
    }

    /// The first given socket for datagrams, and those that share its address; and whether the service manager has opened them.
    fn take_datagrams(&self, setting: &str, address: &Address) -> io::Result<(Vec<UdpSocket>, Option<bool>)> {
        let Some(first) = self.take(setting, address, Type::DGRAM) else {
            return Ok((Vec::new(), Some(false)));
        };
        let is_of_manager = first.is_of_manager;
        let mut sockets = vec![UdpSocket::from(first.socket)];
        let local = sockets[0].local_addr()?;
        let is_same = |it: &mut NamedSocket| {
            let socket = SockRef::from(&it.socket);
            let is_datagram = socket.r#type().is_ok_and(|it| it == Type::DGRAM);
            is_datagram && socket.local_addr().is_ok_and(|it| it.as_socket() == Some(local))
        };
        let others = lock(&self.given).extract_if(.., is_same).collect::<Vec<_>>();
        sockets.extend(others.into_iter().map(|it| UdpSocket::from(it.socket)));
        sockets.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
        Ok((sockets, is_of_manager))
    }

    /// Copies of the sockets that are open, for another process.
    pub fn copies(&self) -> io::Result<Vec<NamedSocket>> {
        let copy = |it: &NamedSocket| {
            let (setting, asked, is_of_manager) = (it.setting.clone(), it.asked.clone(), it.is_of_manager);
            Ok(NamedSocket { setting, asked, is_of_manager, socket: it.socket.try_clone()? })
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

    /// Removes the files of Unix sockets once these are closed, and gives them the modes of the settings now.
    pub fn own_files(&self) {
        self.files.set(true);
        for file in std::mem::take(&mut *lock(&self.modes)) {
            if let Err(error) = file.set() {
                tracing::error!(path = %file.path.display(), %error, "the socket keeps the mode that it had");
            }
        }
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

    fn record(&self, (setting, asked): (&str, &Address), is_of_manager: Option<bool>, socket: OwnedFd) {
        let (setting, asked) = (setting.to_owned(), Some(asked.clone()));
        lock(&self.open).push(NamedSocket { setting, asked, is_of_manager, socket });
    }

    /// The first given socket that is meant for an address of a setting.
    fn take(&self, setting: &str, address: &Address, kind: Type) -> Option<NamedSocket> {
        let mut given = lock(&self.given);
        let is_kind = |it: &NamedSocket| SockRef::from(&it.socket).r#type().is_ok_and(|it| it == kind);
        let exact = given.iter().position(|it| {
            is_kind(it)
                && match &it.asked {
                    Some(asked) => it.setting == setting && asked == address,
                    None => is_at(&it.socket, address),
                }
        });
        let is_meant_for = |it: &NamedSocket| self.addresses.iter().any(|other| is_at(&it.socket, other));
        let is_named = |it: &NamedSocket| it.asked.is_none() && it.setting == setting && !is_meant_for(it);
        let by_name = || given.iter().position(|it| is_kind(it) && is_named(it));
        let place = exact.or_else(by_name)?;
        Some(given.remove(place))
    }

    /// Takes over a socket that another process has opened. Its backlog, and the mode of its file, are of the settings, unless the
    /// service manager may have opened it.
    fn adopt(&self, listen: &Listen, given: &NamedSocket) -> io::Result<Bound> {
        let socket = Socket::from(given.socket.try_clone()?);
        socket.set_nonblocking(true)?;
        let is_own = given.is_of_manager == Some(false);
        if is_own {
            socket.listen(listen.backlog.try_into().unwrap_or(i32::MAX))?;
        }
        if socket.domain()? != Domain::UNIX {
            return Ok(Bound { listener: Listener::Tcp(socket.into()), file: None });
        }
        let file = match &listen.address {
            Address::Unix(path) if given.is_of_manager != Some(true) => {
                UnixFile::adopt(path, &self.files).ok()
            }
            _ => None,
        };
        lock(&self.modes).extend(file.as_ref().filter(|_| is_own).map(|file| file.with_mode(listen.mode)));
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
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    fn named(setting: &str, socket: impl Into<OwnedFd>) -> NamedSocket {
        NamedSocket {
            setting: setting.to_owned(),
            asked: None,
            is_of_manager: Some(true),
            socket: socket.into(),
        }
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
    fn a_socket_that_another_listener_asks_for_is_not_taken_by_its_name() {
        let free: SocketAddr = "127.0.0.1:8007".parse().unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let opened = socket.local_addr().unwrap();
        let table = SocketTable::given(vec![named("proxy_listen", socket)])
            .for_addresses(vec![Address::Ip(free), Address::Ip(opened)]);
        assert!(table.take("proxy_listen", &Address::Ip(free), Type::STREAM).is_none());
        assert_eq!(at(&table.bind("proxy_listen", &Listen::http(opened)).unwrap()), opened);
    }

    #[test]
    fn the_file_of_a_socket_of_the_service_manager_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let listen = Listen::http(Address::Unix(path.as_path().into()));
        let socket = UnixListener::bind(&path).unwrap();
        let first = SocketTable::given(vec![named("weir.socket", socket)]);
        let bound = first.bind("proxy_listen", &listen).unwrap();
        let second = SocketTable::shared(first.copies().unwrap());
        let taken = second.bind("proxy_listen", &listen).unwrap();
        second.own_files();
        drop((bound, taken));
        assert!(path.exists());
    }

    #[test]
    fn a_socket_that_is_taken_over_gets_the_mode_of_the_settings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let listen = |mode| Listen { mode, ..Listen::http(Address::Unix(path.as_path().into())) };
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let old = SocketTable::default();
        let _bound = old.bind("proxy_listen", &listen(0o666)).unwrap();
        let new = SocketTable::shared(old.copies().unwrap());
        let _taken = new.bind("proxy_listen", &listen(0o600)).unwrap();
        assert_eq!(mode(), 0o666, "the process that listens may go on");
        new.own_files();
        assert_eq!(mode(), 0o600);
    }

    #[test]
    fn a_socket_that_the_service_manager_may_have_opened_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let listen = |mode| Listen { mode, ..Listen::http(Address::Unix(path.as_path().into())) };
        let old = SocketTable::default();
        let _bound = old.bind("proxy_listen", &listen(0o600)).unwrap();
        let unknown = |it: NamedSocket| NamedSocket { is_of_manager: None, ..it };
        let new = SocketTable::shared(old.copies().unwrap().into_iter().map(unknown).collect());
        let _taken = new.bind("proxy_listen", &listen(0o666)).unwrap();
        new.own_files();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(new.copies().unwrap()[0].is_of_manager, None);
    }

    #[test]
    fn a_link_in_the_place_of_a_socket_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("a.sock"), folder.path().join("other"));
        let listen = Listen::http(Address::Unix(path.as_path().into()));
        std::fs::write(&other, "").unwrap();
        std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).unwrap();
        let old = SocketTable::default();
        let bound = old.bind("proxy_listen", &listen).unwrap();
        let link = || {
            std::fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink(&other, &path).unwrap();
        };
        let adopted_before = SocketTable::shared(old.copies().unwrap());
        let _before = adopted_before.bind("proxy_listen", &listen).unwrap();
        link();
        let adopted_after = SocketTable::shared(old.copies().unwrap());
        let _after = adopted_after.bind("proxy_listen", &listen).unwrap();
        adopted_before.own_files();
        adopted_after.own_files();
        assert_eq!(std::fs::metadata(&other).unwrap().permissions().mode() & 0o777, 0o600);
        drop(bound);
    }

    #[test]
    fn a_port_of_the_process_to_replace_is_not_called_another_programs() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let old = SocketTable::default();
        let port = at(&old.bind("proxy_listen", &Listen::http(any)).unwrap()).port();
        let new = SocketTable::shared(old.copies().unwrap());
        let moved: SocketAddr = ([0, 0, 0, 0], port).into();
        let refused = new.bind("proxy_listen", &Listen::http(moved)).unwrap_err();
        assert!(refused.to_string().contains("restart"), "{refused}");
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

//! Notifications to the service manager (`sd_notify`), and the sockets that it has opened (`LISTEN_FDS`). Without one, nothing.
use listenfd::ListenFd;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_proxy::listen::NamedSocket;

/// The service manager, if it listens to notifications.
#[derive(Debug, Default)]
pub(crate) struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// It listens to another process now.
    is_over: AtomicBool,
    /// How often it wants to hear that the process is alive.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The one that the environment names.
    pub(crate) fn of_environment() -> ServiceManager {
        let variable = |name| std::env::var(name).ok();
        let socket = variable("NOTIFY_SOCKET").and_then(|address| match connect(&address) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(%error, "NOTIFY_SOCKET: the service manager cannot be notified");
                None
            }
        });
        let is_for_this = variable("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let interval = variable("WATCHDOG_USEC").and_then(|text| text.parse().ok()).filter(|_| is_for_this);
        ServiceManager {
            socket,
            is_over: AtomicBool::new(false),
            watchdog: interval.map(Duration::from_micros),
        }
    }

    /// How often it wants to hear that the process is alive, at least.
    pub(crate) fn watchdog(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.socket.is_some())
    }

    /// The node serves.
    pub(crate) fn ready(&self) {
        self.tell("READY=1\nSTATUS=serving");
    }

    /// The configuration is read again.
    pub(crate) fn reloading(&self) {
        let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}\nSTATUS=reloading", now.as_micros()));
    }

    /// The node stops.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=draining");
    }

    /// Another process is the node's from now on.
    pub(crate) fn replaced_by(&self, pid: u32) {
        self.tell(&format!("MAINPID={pid}"));
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// All workers make progress.
    pub(crate) fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket
            && !self.is_over.load(Ordering::SeqCst)
            && let Err(error) = socket.send(state.as_bytes())
        {
            tracing::warn!(%error, state, "the service manager was not notified");
        }
    }
}

/// Whether the environment names one.
pub(crate) fn is_notified() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

fn connect(address: &str) -> io::Result<UnixDatagram> {
    let address = match address.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

/// The sockets that the service manager has opened for this process, by the names that it gave them.
pub(crate) fn given_sockets() -> Vec<NamedSocket> {
    let mut given = ListenFd::from_env();
    let count = given.len();
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut take = |at| {
        let setting = names.next().unwrap_or_default().to_owned();
        let socket = socket_at(&mut given, at)?;
        // A copy, because the original would be inherited by every process that this one starts.
        Some(NamedSocket {
            setting,
            asked: None,
            is_of_manager: Some(true),
            socket: socket.try_clone().ok()?,
        })
    };
    (0..count).filter_map(&mut take).collect()
}

/// A socket of any kind.
fn socket_at(given: &mut ListenFd, at: usize) -> Option<OwnedFd> {
    let tcp = |given: &mut ListenFd| Some(given.take_tcp_listener(at).ok()??.into());
    let unix = |given: &mut ListenFd| Some(given.take_unix_listener(at).ok()??.into());
    let udp = |given: &mut ListenFd| Some(given.take_udp_socket(at).ok()??.into());
    let socket = tcp(given).or_else(|| unix(given)).or_else(|| udp(given));
    if socket.is_none() {
        tracing::warn!("LISTEN_FDS: socket {at} is none to listen on; it is not used");
    }
    socket
}

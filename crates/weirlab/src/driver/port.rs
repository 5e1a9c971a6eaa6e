//! Ports that someone else has.
use super::DriverError;
use crate::observe::procfs::{self, Stat, Tcp};
use crate::target::Listeners;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

/// Every address of a gateway, with what it is for.
pub(super) fn all(listeners: &Listeners) -> Vec<(&'static str, SocketAddr)> {
    let Listeners { http, https, admin, status, cluster } = listeners;
    let named =
        [("http", http), ("https", https), ("admin", admin), ("status", status), ("cluster", cluster)];
    named.into_iter().filter_map(|(name, address)| Some((name, (*address)?))).collect()
}

/// Whether every port can be had now: a readiness probe must not be answered by someone else.
pub(super) fn check_free(listeners: &Listeners) -> Result<(), DriverError> {
    for (name, address) in all(listeners) {
        if let Err(error) = TcpListener::bind(address) {
            return Err(match error.kind() {
                io::ErrorKind::AddrInUse => taken(name, address),
                _ => {
                    DriverError::System(format!("its {name} address {address} cannot be listened on"), error)
                }
            });
        }
    }
    Ok(())
}

/// Waits until the ports of a gateway that has ended can be had again.
pub(super) fn wait_until_free(listeners: &Listeners, within: Duration) -> Result<(), DriverError> {
    let deadline = Instant::now() + within;
    loop {
        match check_free(listeners) {
            Err(DriverError::PortTaken(_)) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(3));
            }
            outcome => return outcome,
        }
    }
}

/// Who listens where traffic comes in, as far as we may look into processes' files.
pub(super) fn traffic_holders(listeners: &Listeners) -> Vec<Stat> {
    [listeners.http, listeners.https].into_iter().flatten().flat_map(|at| holders(at.port())).collect()
}

/// The error for a gateway that ended because an address was in use, if that is what its log says.
pub(super) fn taken_by_log(listeners: &Listeners, log: &str) -> Option<DriverError> {
    let log = log.to_ascii_lowercase();
    if !["address already in use", "address in use", "eaddrinuse"].iter().any(|sign| log.contains(sign)) {
        return None;
    }
    let all = all(listeners);
    let held = all.iter().find(|(_, address)| !procfs::sockets(address.port(), Tcp::Listening).is_empty());
    Some(match held {
        Some((name, address)) => taken(name, *address),
        None => DriverError::PortTaken("it found an address in use that is not one it was given".to_owned()),
    })
}

/// Whether it is someone else that listens where a gateway should: then an answer says nothing of the gateway.
/// Members are looked up after holders: a gateway may just be handing its sockets to a process that it starts.
pub(super) fn check_own(
    listeners: &Listeners,
    mut members: impl FnMut() -> BTreeMap<u32, Stat>,
) -> Result<(), DriverError> {
    for (name, address) in
        [("http", listeners.http), ("https", listeners.https), ("cluster", listeners.cluster)]
    {
        let Some(address) = address else { continue };
        // Without permission to read the process's files, the holder of the port is unknown.
        let holders = holders(address.port());
        let members = members();
        if !holders.is_empty() && !holders.iter().any(|holder| members.contains_key(&holder.pid)) {
            return Err(taken(name, address));
        }
    }
    Ok(())
}

fn taken(name: &str, address: SocketAddr) -> DriverError {
    let port = address.port();
    let by = match holders(port).first() {
        Some(stat) => format!(" by {} (pid {}): end it", stat.name, stat.pid),
        None => format!("; `ss -ltnp 'sport = :{port}'`, run as root, shows by whom: end it"),
    };
    DriverError::PortTaken(format!("port {port} ({name}) is taken{by} or choose another port"))
}

/// Who listens on a port, as far as we may look into processes' files.
fn holders(port: u16) -> Vec<Stat> {
    let listening = procfs::sockets(port, Tcp::Listening);
    if listening.is_empty() {
        return Vec::new();
    }
    let holds = |pid: u32| procfs::open_sockets(pid).iter().any(|inode| listening.contains(inode));
    procfs::processes().into_values().filter(|stat| holds(stat.pid)).collect()
}

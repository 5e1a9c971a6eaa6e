//! Whether a gateway answers yet.
use super::log::last_lines;
use super::{DriverError, Running, port};
use crate::target::{Launch, Listeners, Ready};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(3);
/// How long one look may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a gateway is not ready.
pub(super) enum Unready {
    /// It has ended.
    Ended,
    /// Its time is over; this was still missing.
    Late(String),
}

/// Looks until a gateway is ready, has ended, or has had its time.
pub(super) fn wait(running: &mut dyn Running, launch: &Launch) -> Result<(), Unready> {
    let deadline = Instant::now() + launch.ready.within;
    loop {
        let outcome = look(&launch.listeners, &launch.ready);
        // Someone else may have answered in its place.
        if !running.alive() {
            return Err(Unready::Ended);
        }
        let Err(missing) = outcome else { return Ok(()) };
        if Instant::now() >= deadline {
            return Err(Unready::Late(missing));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// The error for a gateway that is not ready, with the last lines of its output.
pub(super) fn error(launch: &Launch, why: &Unready, ending: &str, log: &str) -> DriverError {
    let (label, said) = (&launch.label, last_lines(log));
    match why {
        Unready::Late(missing) => {
            let within = launch.ready.within.as_secs_f64();
            DriverError::NotReady(format!("{label} was not ready within {within} s: {missing}{said}"))
        }
        Unready::Ended => port::taken_by_log(&launch.listeners, log).unwrap_or_else(|| {
            DriverError::NotReady(format!("{label} ended before it was ready ({ending}){said}"))
        }),
    }
}

/// Looks once at every listener for traffic: at the plain one with a request, if there is a path to ask for; at those
/// over TLS by a connection alone, because a handshake adds no information. Asks the status listener if there is a path
/// for it.
///
/// # Errors
/// What was missing.
fn look(listeners: &Listeners, ready: &Ready) -> Result<(), String> {
    for (name, address) in [("https", listeners.https), ("cluster", listeners.cluster)] {
        let Some(address) = address else { continue };
        connect(address).map_err(|error| format!("{address} ({name}): {error}"))?;
    }
    if let (Some(address), Some(path)) = (listeners.status, &ready.status_path) {
        answers(address, path, Some(200))?;
    }
    let Some(address) = listeners.http else { return Ok(()) };
    match &ready.path {
        Some(path) => answers(address, path, ready.status),
        None => connect(address).map(drop).map_err(|error| format!("{address} (http): {error}")),
    }
}

/// Asks for a path. The answer has that status, or one below 500 if none is given.
fn answers(address: SocketAddr, path: &str, expected: Option<u16>) -> Result<(), String> {
    let is_right = |status: u16| expected.map_or(status < 500, |expected| status == expected);
    let status = connect(address).and_then(|mut stream| status(&mut stream, address, path));
    match status {
        Ok(status) if is_right(status) => Ok(()),
        Ok(status) => Err(format!("http://{address}{path} answers with status {status}")),
        Err(error) => Err(format!("http://{address}{path}: {error}")),
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&reachable(address), CONNECT_TIMEOUT)
}

/// What listens on every address is asked on loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn status(stream: &mut TcpStream, address: SocketAddr, path: &str) -> io::Result<u16> {
    stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    // `HTTP/1.1 200` is all that is asked; the rest is dropped with the connection.
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    let status =
        head.strip_prefix(b"HTTP/1.").and_then(|rest| std::str::from_utf8(rest.get(2..)?).ok()?.parse().ok());
    status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP/1.1"))
}

//! What Prometheus scrapes: `/metrics` of the laboratory, and below `/targets/` those of the targets. A target listens on
//! another port in each block, so its metrics are passed on from an address that stays.
use super::TelemetryError;
use super::recorder::Recorder;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a request may take to come.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// A longer head of a request is not one of Prometheus'.
const MAX_HEAD_LEN: usize = 16 << 10;

/// A listener on loopback. Dropping it ends it.
pub struct Exporter {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Listens on a free port. `targets` are the labels in the order of their paths.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn start(recorder: Arc<Recorder>, targets: Vec<String>) -> Result<Exporter, TelemetryError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(TelemetryError::Listen)?;
        let address = listener.local_addr().map_err(TelemetryError::Listen)?;
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let serve = move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                // A scrape that fails is one that Prometheus counts as failed.
                let _ = stream.and_then(|stream| respond(stream, &recorder, &targets));
            }
        };
        let thread = thread::Builder::new().name("metrics".to_owned()).spawn(serve);
        Ok(Exporter { address, over, thread: Some(thread.map_err(TelemetryError::Listen)?) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The path of the metrics of a target.
pub(super) fn path_of(index: usize) -> String {
    format!("/targets/{index}")
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the thread.
        let woken = TcpStream::connect(self.address);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            // Had it panicked, nothing would be left to do.
            let _ = thread.join();
        }
    }
}

fn respond(mut stream: TcpStream, recorder: &Recorder, targets: &[String]) -> io::Result<()> {
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let path = path(&mut stream)?;
    let (status, body) = body(&path, recorder, targets);
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(&body)?;
    stream.shutdown(Shutdown::Write)
}

fn body(path: &str, recorder: &Recorder, targets: &[String]) -> (&'static str, Vec<u8>) {
    if path == "/metrics" {
        return ("200 OK", recorder.render().into_bytes());
    }
    let named = targets.iter().enumerate().find(|(index, _)| path_of(*index) == path);
    let Some((_, target)) = named else { return ("404 Not Found", b"no such metrics\n".to_vec()) };
    match recorder.scrape(target) {
        Some(Ok(body)) => ("200 OK", body),
        Some(Err(error)) => ("502 Bad Gateway", format!("{error}\n").into_bytes()),
        None => ("503 Service Unavailable", b"the target is not up, or has no metrics\n".to_vec()),
    }
}

/// The path of the request on a connection.
fn path(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let length = stream.read(&mut part)?;
        if length == 0 || head.len() > MAX_HEAD_LEN {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.extend_from_slice(&part[..length]);
    }
    let head = String::from_utf8_lossy(&head);
    let path = head.strip_prefix("GET ").and_then(|rest| rest.split(' ').next());
    Ok(path.unwrap_or_default().to_owned())
}

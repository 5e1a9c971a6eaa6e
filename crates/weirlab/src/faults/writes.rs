//! Writes to the Admin API while faults are active: what was acknowledged must be there afterwards.
use super::message::{Inbox, MessageError};
use super::outcome::Writes;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(100);
/// Between two writes.
const PAUSE: Duration = Duration::from_millis(5);

/// A client that writes one consumer after the other.
pub(super) struct Writer {
    admin: SocketAddr,
    patience: Duration,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Vec<usize>, usize)>,
}

impl Writer {
    pub(super) fn start(admin: SocketAddr, patience: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut acknowledged, mut failed) = (Vec::new(), 0);
            for number in 0.. {
                if stopped.load(Ordering::Acquire) {
                    break;
                }
                let body = format!("{{\"username\":\"writer-{number}\"}}");
                match ask(admin, "PUT", number, &body, patience) {
                    Ok(200 | 201) => acknowledged.push(number),
                    _ => failed += 1,
                }
                thread::sleep(PAUSE);
            }
            (acknowledged, failed)
        });
        Self { admin, patience, stop, thread }
    }

    /// Ends, and looks for all that was acknowledged.
    pub(super) fn finish(self) -> Writes {
        self.stop.store(true, Ordering::Release);
        let (acknowledged, failed) = self.thread.join().unwrap_or_default();
        let is_gone =
            |number: &&usize| !matches!(ask(self.admin, "GET", **number, "", self.patience), Ok(200));
        let lost = acknowledged.iter().filter(is_gone).count();
        Writes { acknowledged: acknowledged.len(), failed, lost }
    }
}

fn ask(
    admin: SocketAddr,
    method: &str,
    number: usize,
    body: &str,
    patience: Duration,
) -> Result<u16, MessageError> {
    let io = |error: std::io::Error| MessageError::Broken(error.kind().to_string());
    let mut stream = TcpStream::connect_timeout(&admin, patience).map_err(io)?;
    stream.set_read_timeout(Some(LOOK)).map_err(io)?;
    let head = format!(
        "{method} /consumers/writer-{number} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\nContent-Type: application/json\r\n"
    );
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).map_err(io)?;
    let mut inbox = Inbox::default();
    inbox.within(patience);
    let message = inbox.message(&mut stream, false)?;
    let status = message.start.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    status.ok_or(MessageError::Malformed(message.start))
}

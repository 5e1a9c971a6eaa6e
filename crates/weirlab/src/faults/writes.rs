//! Writes to the Admin API while faults are active: what was acknowledged must be there afterwards, for a gateway that is
//! started anew, and writes must be possible again.
use super::FaultError;
use super::message::{Inbox, MessageError};
use super::outcome::Writes;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(100);
/// Between two writes, and between two looks at what came of them.
const PAUSE: Duration = Duration::from_millis(5);

/// A client that writes one consumer after the other.
pub(super) struct Writer {
    admin: SocketAddr,
    patience: Duration,
    shared: Arc<Shared>,
    thread: JoinHandle<WriteCounts>,
}

#[derive(Default)]
struct Shared {
    /// Every step of the scenario was made.
    steps_over: AtomicBool,
    /// Writes that began after that and were acknowledged.
    afterwards: AtomicUsize,
    stop: AtomicBool,
}

#[derive(Default)]
struct WriteCounts {
    acknowledged: Vec<usize>,
    failed: usize,
}

/// What a writer has written.
pub(super) struct WriteReport {
    admin: SocketAddr,
    patience: Duration,
    counts: WriteCounts,
    afterwards: usize,
}

impl Writer {
    pub(super) fn start(admin: SocketAddr, patience: Duration) -> Self {
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        let thread = thread::spawn(move || write(admin, patience, &of_thread));
        Self { admin, patience, shared, thread }
    }

    /// Every step of the scenario was made: one of the writes from now on has to be acknowledged.
    pub(super) fn steps_are_over(&self) {
        self.shared.steps_over.store(true, Ordering::Release);
    }

    /// Ends once such a write was acknowledged, or patience has.
    pub(super) fn stop(self) -> Result<WriteReport, FaultError> {
        let deadline = Instant::now() + self.patience;
        let afterwards = || self.shared.afterwards.load(Ordering::Acquire);
        while afterwards() == 0 && Instant::now() < deadline && !self.thread.is_finished() {
            thread::sleep(PAUSE);
        }
        self.shared.stop.store(true, Ordering::Release);
        let counts = self.thread.join().map_err(|_| FaultError::lost("who writes to the Admin API"))?;
        let afterwards = self.shared.afterwards.load(Ordering::Acquire);
        Ok(WriteReport { admin: self.admin, patience: self.patience, counts, afterwards })
    }
}

fn write(admin: SocketAddr, patience: Duration, shared: &Shared) -> WriteCounts {
    let mut counts = WriteCounts::default();
    for number in 0.. {
        if shared.stop.load(Ordering::Acquire) {
            break;
        }
        let is_afterwards = shared.steps_over.load(Ordering::Acquire);
        let body = format!("{{\"username\":\"writer-{number}\"}}");
        match ask(admin, "PUT", number, &body, patience) {
            Ok(200 | 201) => {
                counts.acknowledged.push(number);
                shared.afterwards.fetch_add(is_afterwards.into(), Ordering::AcqRel);
            }
            _ => counts.failed += 1,
        }
        thread::sleep(PAUSE);
    }
    counts
}

impl WriteReport {
    /// Looks for all that was acknowledged.
    pub(super) fn look(&self) -> Result<Writes, FaultError> {
        let mut lost = 0;
        for number in &self.counts.acknowledged {
            lost += usize::from(!self.is_there(*number)?);
        }
        let (acknowledged, afterwards) = (self.counts.acknowledged.len(), self.afterwards);
        Ok(Writes { acknowledged, failed: self.counts.failed, afterwards, lost })
    }

    /// An answer that says neither is asked for again.
    fn is_there(&self, number: usize) -> Result<bool, FaultError> {
        let deadline = Instant::now() + self.patience;
        loop {
            let answer = ask(self.admin, "GET", number, "", self.patience);
            match answer {
                Ok(200) => return Ok(true),
                Ok(404) => return Ok(false),
                _ if Instant::now() < deadline => thread::sleep(PAUSE),
                _ => {
                    let text = format!("whether the write {number} is there cannot be read: {answer:?}");
                    return Err(FaultError::Lost(text));
                }
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::net::{Ipv4Addr, TcpListener};

    /// An Admin API that answers with the status that is given for a request of a number and how often it came before.
    fn admin(status: impl Fn(usize, usize) -> u16 + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let mut came: HashMap<usize, usize> = HashMap::new();
            for mut stream in listener.incoming().map_while(Result::ok) {
                let request = Inbox::default().message(&mut stream, true).unwrap();
                let path = request.start.split(' ').nth(1).unwrap();
                let number = path.strip_prefix("/consumers/writer-").unwrap().parse().unwrap();
                let before = came.entry(number).or_default();
                let answer = format!("HTTP/1.1 {} x\r\nContent-Length: 0\r\n\r\n", status(number, *before));
                *before += 1;
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    fn written(admin: SocketAddr, acknowledged: &[usize], patience: Duration) -> WriteReport {
        let counts = WriteCounts { acknowledged: acknowledged.to_vec(), failed: 0 };
        WriteReport { admin, patience, counts, afterwards: 1 }
    }

    const LONG_TIMEOUT: Duration = Duration::from_secs(60);
    const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

    #[test]
    fn only_what_is_not_found_is_lost() {
        let admin = admin(|number, before| match (number, before) {
            (1, _) => 404,
            (2, 0) => 503,
            _ => 200,
        });
        let writes = written(admin, &[0, 1, 2], LONG_TIMEOUT).look().unwrap();
        assert_eq!((writes.acknowledged, writes.lost), (3, 1));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_of_the_run() {
        let said = written(admin(|_, _| 503), &[0], SHORT_TIMEOUT).look().unwrap_err().to_string();
        assert!(said.contains("the write 0") && said.contains("503"), "{said}");
    }

    #[test]
    fn a_write_after_the_last_step_is_waited_for() {
        let writer = Writer::start(admin(|number, _| if number < 5 { 503 } else { 201 }), LONG_TIMEOUT);
        writer.steps_are_over();
        let written = writer.stop().unwrap();
        assert!(written.afterwards > 0 && written.counts.failed >= 4);
        let writer = Writer::start(admin(|_, _| 201), SHORT_TIMEOUT);
        // Those before do not count.
        assert_eq!(writer.stop().unwrap().afterwards, 0);
    }

    #[test]
    fn a_writer_that_panics_fails_the_run() {
        let thread = thread::spawn(|| panic!("as it may"));
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let writer = Writer { admin, patience: SHORT_TIMEOUT, shared: Arc::default(), thread };
        assert!(writer.stop().is_err());
    }
}

//! The clients of a run: each sends one request after the other, checks every byte of the response, and never sends
//! anything again.
use super::FaultError;
use super::exchange::RequestId;
use super::message::{Inbox, Message, MessageError};
use super::scenario::Load;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

/// How often a client that waits looks at its deadline.
const LOOK: Duration = Duration::from_millis(100);
/// After a connection that could not be opened, so that a gateway which is away does not use up the run.
const AWAY: Duration = Duration::from_millis(20);

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The response that belongs to it, whole.
    Right,
    /// A response that looks whole and is another, or one that a gateway has no reason to give.
    Wrong(String),
    /// The gateway said that it failed: 408 or 5xx.
    Status(u16),
    /// The client could tell that the response was not whole, or that there was none.
    Broken(String),
    /// Nothing came within the client's patience.
    Hung,
}

/// A request and what came of it.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// Which request.
    pub(super) id: RequestId,
    /// Whether it was a POST.
    pub(super) post: bool,
    /// What came of it.
    pub(super) ending: Ending,
    /// How long that took.
    pub(super) wait: Duration,
    /// When that was.
    pub(super) ended: Instant,
}

impl Record {
    /// Whether the client knows that it has no answer.
    #[must_use]
    pub(super) fn is_lost(&self) -> bool {
        !matches!(self.ending, Ending::Right | Ending::Wrong(_))
    }
}

/// Clients at work.
pub(super) struct Clients {
    finished: Arc<AtomicUsize>,
    steps_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Record>>>,
}

impl Clients {
    /// Has all clients of a load send their requests.
    #[must_use]
    pub(super) fn start(gateway: SocketAddr, load: &Load, patience: Duration) -> Self {
        let (finished, steps_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let start = |number| {
            let (finished, steps_over, load) = (Arc::clone(&finished), Arc::clone(&steps_over), load.clone());
            thread::spawn(move || {
                let mut client = Client::new(gateway, number, load.clone(), patience);
                let mut records = Vec::new();
                while !(steps_over.load(Ordering::Acquire)
                    && finished.load(Ordering::Acquire) >= load.requests)
                {
                    records.push(client.send());
                    finished.fetch_add(1, Ordering::AcqRel);
                }
                records
            })
        };
        let threads = (0..load.clients).map(start).collect();
        Self { finished, steps_over, threads }
    }

    /// How many requests have come to an end.
    #[must_use]
    pub(super) fn finished(&self) -> usize {
        self.finished.load(Ordering::Acquire)
    }

    /// Lets them end once they have sent what the load says, and waits for that.
    pub(super) fn join(self) -> Result<Vec<Record>, FaultError> {
        self.steps_over.store(true, Ordering::Release);
        let ended: Vec<_> = self.threads.into_iter().map(JoinHandle::join).collect();
        let records = ended.into_iter().collect::<Result<Vec<_>, _>>();
        // Who panics has records, too, that are missing now.
        records.map(|records| records.concat()).map_err(|_| FaultError::lost("a client"))
    }
}

/// One client with its connection.
pub(super) struct Client {
    gateway: SocketAddr,
    number: u32,
    sent: u32,
    load: Load,
    patience: Duration,
    connection: Option<(TcpStream, Inbox)>,
    /// The gateway's time by the last response.
    pub(super) date: Option<OffsetDateTime>,
}

impl Client {
    /// A client of this number, which no other client of the run has.
    #[must_use]
    pub(super) fn new(gateway: SocketAddr, number: u32, load: Load, patience: Duration) -> Self {
        Self { gateway, number, sent: 0, load, patience, connection: None, date: None }
    }

    /// Sends the next request.
    pub(super) fn send(&mut self) -> Record {
        thread::sleep(self.load.pause);
        let id = RequestId { client: self.number, number: self.sent };
        self.sent += 1;
        let post = fastrand::u32(0..100) < self.load.posts;
        let began = Instant::now();
        let ending = match self.exchange(id, post) {
            Ok(message) => {
                let date = message.field("date");
                self.date = date.and_then(|text| OffsetDateTime::parse(text, &Rfc2822).ok());
                self.judge(id, &message)
            }
            Err(MessageError::Late) => Ending::Hung,
            Err(MessageError::Malformed(what)) => Ending::Wrong(what),
            Err(MessageError::Closed) => Ending::Broken("closed without an answer".to_owned()),
            Err(MessageError::Broken(how)) => Ending::Broken(how),
        };
        if !matches!(ending, Ending::Right | Ending::Status(_)) {
            self.connection = None;
        }
        let ended = Instant::now();
        Record { id, post, ending, wait: ended - began, ended }
    }

    fn exchange(&mut self, id: RequestId, post: bool) -> Result<Message, MessageError> {
        let (mut stream, mut inbox) = match self.connection.take() {
            Some(connection) => connection,
            None => (self.connect()?, Inbox::default()),
        };
        inbox.within(self.patience);
        let gone = |error: std::io::Error| MessageError::Broken(error.kind().to_string());
        stream.write_all(&request(id, post, self.load.body)).map_err(gone)?;
        let message = inbox.message(&mut stream, false)?;
        if !inbox.is_empty() {
            return Err(MessageError::Malformed("bytes after the response".to_owned()));
        }
        if !message.closes() {
            self.connection = Some((stream, inbox));
        }
        Ok(message)
    }

    fn connect(&self) -> Result<TcpStream, MessageError> {
        let open = || {
            let stream = TcpStream::connect_timeout(&self.gateway, self.patience)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LOOK))?;
            stream.set_write_timeout(Some(self.patience))?;
            Ok(stream)
        };
        open().map_err(|error: std::io::Error| {
            thread::sleep(AWAY);
            MessageError::Broken(format!("connect: {}", error.kind()))
        })
    }

    fn judge(&self, id: RequestId, message: &Message) -> Ending {
        let status = message.start.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        match status {
            None => Ending::Wrong(format!("the status line `{}`", message.start)),
            Some(200) if message.field("x-request") != Some(id.to_string().as_str()) => {
                Ending::Wrong(format!("{id} got the head of {:?}", message.field("x-request")))
            }
            Some(200) if message.body != id.body(self.load.body) => {
                Ending::Wrong(format!("{id} got another body, of {} bytes", message.body.len()))
            }
            Some(200) => Ending::Right,
            Some(status @ (408 | 500..=599)) => Ending::Status(status),
            Some(status) => Ending::Wrong(format!("status {status}")),
        }
    }
}

fn request(id: RequestId, post: bool, bytes: usize) -> Vec<u8> {
    if !post {
        return format!("GET /r/{id} HTTP/1.1\r\nHost: faults\r\n\r\n").into_bytes();
    }
    let mut request =
        format!("POST /r/{id} HTTP/1.1\r\nHost: faults\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
    request.extend(id.body(bytes));
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn only_a_status_that_says_that_the_gateway_failed_is_a_loss() {
        let load = Load { clients: 1, requests: 1, posts: 0, body: 4, pause: Duration::ZERO };
        let gateway = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let client = Client::new(gateway, 0, load, Duration::ZERO);
        let ending = |status: u16| {
            let start = format!("HTTP/1.1 {status} a");
            let message = Message { start, fields: Vec::new(), body: Vec::new() };
            client.judge(RequestId { client: 0, number: 0 }, &message)
        };
        for status in [408, 500, 502, 503, 504, 599] {
            assert_eq!(ending(status), Ending::Status(status));
        }
        for status in [200, 204, 301, 400, 404, 413, 429, 499, 600] {
            assert!(matches!(ending(status), Ending::Wrong(_)), "{status}");
        }
    }

    #[test]
    fn a_client_that_panics_fails_the_run() {
        let threads = vec![thread::spawn(Vec::new), thread::spawn(|| panic!("as it may"))];
        assert!(Clients { finished: Arc::default(), steps_over: Arc::default(), threads }.join().is_err());
    }
}

//! Requests to an agent and what comes back, over a channel to it.
use super::file::HostEntry;
use super::master::{Master, collect};
use crate::host::HostError;
use crate::host::agent::protocol::{Body, Call, Hello, Message, Request};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// An agent that hears nothing for half a minute ends.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long an agent may take to end what it has started.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// A channel to an agent. Dropping it ends the agent.
pub(super) struct Connection {
    pub(super) host: HostEntry,
    shared: Arc<Shared>,
    child: Mutex<Child>,
    /// The connection that the channel is of, which ends after it.
    pub(super) master: Master,
}

struct Shared {
    input: Mutex<Option<ChildStdin>>,
    waiting: Mutex<Waiting>,
    next: AtomicU64,
    /// The beginning of messages about it.
    name: String,
}

/// Requests that wait for replies.
#[derive(Default)]
struct Waiting {
    senders: HashMap<u64, Sender<Body>>,
    /// Why there will be no more, once that is so.
    lost: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// Starts the agent, and returns when it has greeted.
    pub(super) fn open(
        master: Master,
        host: &HostEntry,
        program: &str,
    ) -> Result<(Connection, Hello), HostError> {
        let address = host.internal_address.to_string();
        let mut command = master.command(&["exec", program, "agent", "--address", &address]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let unstarted = |said: &str| super::diagnosis::not_done(host, "starting its agent", said);
        let mut child = command.spawn().map_err(|error| unstarted(&error.to_string()))?;
        let (input, output, said) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let said = said.map(collect);
        let mut output = output.map(BufReader::new);
        let mut line = String::new();
        if let Some(output) = &mut output {
            let _ = output.read_line(&mut line);
        }
        let (Ok(hello), Some(output)) = (serde_json::from_str::<Hello>(&line), output) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(unstarted(&said.and_then(|said| said.join().ok()).unwrap_or_default()));
        };
        let shared = Arc::new(Shared {
            input: Mutex::new(input),
            waiting: Mutex::default(),
            next: AtomicU64::new(0),
            name: format!("{} {}", host.place("address"), host.address),
        });
        read_messages(Arc::clone(&shared), output, said);
        beat(&shared);
        Ok((Connection { host: host.clone(), shared, child: Mutex::new(child), master }, hello))
    }

    /// Asks, and waits for the reply.
    pub(super) fn call<T: DeserializeOwned>(&self, request: Request) -> Result<T, HostError> {
        self.ask(request)?.reply(&mut |_| (), &mut || false)
    }

    /// Asks; the reply may be waited for later.
    pub(super) fn ask(&self, request: Request) -> Result<PendingReply<'_>, HostError> {
        let (id, replies) = self.shared.send(request)?;
        Ok(PendingReply { connection: self, id, replies })
    }

    /// Sends a request whose reply does not matter.
    pub(super) fn send(&self, request: Request) {
        // Where it cannot be sent, what it is about has ended with the connection.
        let _ = self.shared.send(request);
    }
}

impl Shared {
    fn send(&self, request: Request) -> Result<(u64, Receiver<Body>), HostError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, replies) = mpsc::channel();
        {
            let mut waiting = lock(&self.waiting);
            if let Some(why) = &waiting.lost {
                return Err(HostError::Lost(why.clone()));
            }
            waiting.senders.insert(id, sender);
        }
        let mut line = serde_json::to_vec(&Call { id, request })
            .map_err(|error| HostError::Failed(format!("a request cannot be written: {error}")))?;
        line.push(b'\n');
        // If it fails, the output ends too, and the reader of that says why.
        let _ = lock(&self.input).as_mut().map(|input| input.write_all(&line).and_then(|()| input.flush()));
        Ok((id, replies))
    }

    fn lost(&self) -> HostError {
        let why = lock(&self.waiting).lost.clone();
        HostError::Lost(why.unwrap_or_else(|| format!("{}: the connection was lost", self.name)))
    }
}

/// A request that is not answered yet.
pub(super) struct PendingReply<'a> {
    connection: &'a Connection,
    /// Its number.
    pub(super) id: u64,
    replies: Receiver<Body>,
}

impl PendingReply<'_> {
    /// Waits for the reply. `at_edge` gets what comes before it; once `stop` says so, the request is interrupted.
    pub(super) fn reply<T: DeserializeOwned>(
        self,
        at_edge: &mut dyn FnMut(crate::load::Edge),
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<T, HostError> {
        const TICK: Duration = Duration::from_millis(20);
        let mut interrupted = false;
        loop {
            match self.replies.recv_timeout(TICK) {
                Ok(Body::Edge(edge)) => at_edge(edge),
                Ok(Body::Failed(why)) => {
                    return Err(HostError::Failed(format!("on host {}: {why}", self.connection.host.name)));
                }
                Ok(Body::Done(value)) => {
                    return serde_json::from_value(value).map_err(|error| {
                        let name = &self.connection.host.name;
                        HostError::Failed(format!("the agent on host {name} is of another version ({error})"))
                    });
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(self.connection.shared.lost()),
                Err(mpsc::RecvTimeoutError::Timeout) if !interrupted && stop() => {
                    interrupted = true;
                    self.connection.send(Request::Interrupt { id: self.id });
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// Deals out what comes back, on a thread of its own, until the channel ends.
fn read_messages(
    shared: Arc<Shared>,
    output: BufReader<ChildStdout>,
    said: Option<thread::JoinHandle<String>>,
) {
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let Ok(Message { id, body }) = serde_json::from_str::<Message>(&line) else { continue };
            let mut waiting = lock(&shared.waiting);
            let last = !matches!(body, Body::Edge(_));
            if let Some(sender) = waiting.senders.get(&id) {
                // Not every reply is waited for.
                let _ = sender.send(body);
            }
            if last {
                waiting.senders.remove(&id);
            }
        }
        let said = said.and_then(|said| said.join().ok()).unwrap_or_default();
        let reason = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("the channel was closed");
        let mut waiting = lock(&shared.waiting);
        waiting.lost = Some(format!(
            "{}: the connection was lost ({reason}); what ran there ends by itself: check the host and the \
             network, and run again",
            shared.name
        ));
        waiting.senders.clear();
    });
}

/// Shows the agent that the session is there, for as long as it is.
fn beat(shared: &Arc<Shared>) {
    let shared = Arc::downgrade(shared);
    thread::spawn(move || {
        while let Some(shared) = shared.upgrade() {
            let _ = shared.send(Request::Time);
            drop(shared);
            thread::sleep(HEARTBEAT);
        }
    });
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The agent ends when its input does.
        drop(lock(&self.shared.input).take());
        let mut child = lock(&self.child);
        let deadline = Instant::now() + END_TIMEOUT;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

//! The upstream of a script.
use super::ScriptError;
use crate::observe::pin_current_thread;
use crate::upstream::{self, Answers, Delay, Plan};
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

/// What an upstream answers: to every request alike, whatever its path.
#[derive(Clone, Debug)]
pub struct Upstream {
    listeners: usize,
    status: String,
    headers: Vec<String>,
    body: Vec<u8>,
    delay: Option<Delay>,
}

impl Default for Upstream {
    fn default() -> Self {
        Upstream {
            listeners: 1,
            status: "200".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            delay: None,
        }
    }
}

impl Upstream {
    /// An upstream with one address, whose answers are 200 and empty.
    #[must_use]
    pub fn new() -> Upstream {
        Upstream::default()
    }

    /// How many addresses it has, such as one for each target of a balancer.
    #[must_use]
    pub fn listeners(mut self, count: usize) -> Upstream {
        self.listeners = count.max(1);
        self
    }

    /// The status of its answers.
    #[must_use]
    pub fn status(mut self, status: u16) -> Upstream {
        self.status = status.to_string();
        self
    }

    /// Another header of its answers.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Upstream {
        self.headers.push(format!("{name}: {value}"));
        self
    }

    /// The body of its answers.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Upstream {
        self.body = body.into();
        self
    }

    /// How long it waits before each answer.
    #[must_use]
    pub fn delay(mut self, delay: Delay) -> Upstream {
        self.delay = Some(delay);
        self
    }

    /// Starts it on the CPUs.
    pub(super) fn start(self, cpus: &[usize]) -> Result<RunningUpstream, ScriptError> {
        let answers =
            Answers::new(&self.status, &self.headers, self.body, false).map_err(ScriptError::Setup)?;
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let plan = Plan {
            listen: vec![any_port; self.listeners],
            listen_tls: Vec::new(),
            threads: cpus.len().max(1),
            answers,
            delay: self.delay,
            at_once: None,
            event_pause: None,
            stall: None,
            seed: 1,
        };
        // Threads inherit the CPUs of the one that starts them, which is not to be the script's own.
        let started = thread::scope(|scope| {
            let start = || {
                pin_current_thread(cpus)
                    .map_err(|error| ScriptError::Setup(format!("CPUs {cpus:?}: {error}")))?;
                upstream::start(plan).map_err(ScriptError::Upstream)
            };
            scope.spawn(start).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        Ok(RunningUpstream { running: started })
    }
}

/// An upstream that runs. Dropping it ends it.
pub struct RunningUpstream {
    running: upstream::Upstream,
}

impl RunningUpstream {
    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.running.listen
    }

    /// The URL of a path on its first address.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addresses()[0])
    }
}

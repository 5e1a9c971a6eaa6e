//! The load of a script.
use super::{Lab, ScriptError};
use crate::generator::{Generator, Kind, Task};
use crate::load::text::{Summary, wrk};
use crate::load::{Edge, Expect, Outcome, Pace, Plan, Protocol, RequestTemplate, Requests, Variable, WarmUp};
use crate::observe::{ProcessTree, Sample};
use crate::result::Usage;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often it is looked whether the user has asked to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A load: closed, with as many requests as the answers allow, unless it has a rate. The defaults are those of Kong's
/// framework: 1,000 connections in 5 threads for 10 seconds.
#[derive(Clone, Debug)]
pub struct Load {
    path: String,
    method: String,
    headers: Vec<(String, String)>,
    body: String,
    variables: Vec<Variable>,
    connections: usize,
    threads: usize,
    duration: Duration,
    rate: Option<f64>,
    warm_up: WarmUp,
    generator: Kind,
}

impl Load {
    /// A load on a path, which may name variables as in `/s{service}-r{route}`.
    #[must_use]
    pub fn new(path: &str) -> Load {
        Load {
            path: path.to_owned(),
            method: "GET".to_owned(),
            headers: Vec::new(),
            body: String::new(),
            variables: Vec::new(),
            connections: 1000,
            threads: 5,
            duration: Duration::from_secs(10),
            rate: None,
            warm_up: WarmUp { at_least: Duration::from_millis(200), at_most: Duration::from_secs(3) },
            generator: Kind::Weirlab,
        }
    }

    /// Connections that are open at once, over all threads.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Load {
        self.connections = connections;
        self
    }

    /// Threads.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Load {
        self.threads = threads;
        self
    }

    /// How long it is measured, after the warm-up.
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Load {
        self.duration = duration;
        self
    }

    /// Requests per second, evenly spaced, whatever the answers do.
    #[must_use]
    pub fn rate(mut self, per_second: f64) -> Load {
        self.rate = Some(per_second);
        self
    }

    /// The method and the body of each request.
    #[must_use]
    pub fn request(mut self, method: &str, body: &str) -> Load {
        method.clone_into(&mut self.method);
        body.clone_into(&mut self.body);
        self
    }

    /// A header of each request.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Load {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// What `{name}` stands for in the path, in headers and in the body.
    #[must_use]
    pub fn variable(mut self, variable: Variable) -> Load {
        self.variables.push(variable);
        self
    }

    /// The bounds of the warm-up, which ends when answers come steadily.
    #[must_use]
    pub fn warm_up(mut self, at_least: Duration, at_most: Duration) -> Load {
        self.warm_up = WarmUp { at_least, at_most };
        self
    }

    /// What generates it, such as wrk, if that is installed.
    #[must_use]
    pub fn generator(mut self, kind: Kind) -> Load {
        self.generator = kind;
        self
    }

    /// Begins, and counts what the process tree below `watched` uses.
    pub(super) fn start(
        self,
        lab: &Lab,
        address: SocketAddr,
        watched: Option<u32>,
    ) -> Result<RunningLoad, ScriptError> {
        let generator = Generator::find(self.generator)?;
        let url = format!("http://{address}{}", self.path);
        let plan = self.plan(address, lab.layout.generator.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let own_stop = Arc::clone(&stop);
        let work = move || measure(&generator, url, plan, watched, &own_stop);
        let thread = thread::Builder::new().name("script-load".to_owned()).spawn(work);
        let thread =
            thread.map_err(|error| ScriptError::Setup(format!("no thread can be started: {error}")))?;
        Ok(RunningLoad { thread: Some(thread), stop, interrupted: Arc::clone(&lab.stop) })
    }

    fn plan(self, address: SocketAddr, cpus: Vec<usize>) -> Plan {
        let template = RequestTemplate {
            weight: 1,
            method: self.method,
            path: self.path,
            headers: self.headers,
            body: self.body,
            expect: Expect::default(),
        };
        Plan {
            live: None,
            addresses: vec![address],
            host: address.to_string(),
            protocol: Protocol::Http1,
            tls: false,
            connections: self.connections,
            threads: self.threads,
            cpus,
            keep_alive: true,
            first_byte: false,
            pace: self.rate.map_or(Pace::Closed, Pace::Constant),
            warm_up: self.warm_up,
            duration: self.duration,
            timeout: Duration::from_secs(2),
            requests: Requests { templates: vec![template], variables: self.variables },
            seed: 1,
        }
    }
}

fn measure(
    generator: &Generator,
    url: String,
    plan: Plan,
    watched: Option<u32>,
    stop: &AtomicBool,
) -> Result<LoadResult, ScriptError> {
    let mut tree = watched.map(ProcessTree::new);
    let (mut begin, mut end): (Option<Sample>, Option<Sample>) = (None, None);
    let mut observer = |edge: Edge| {
        let sample = tree.as_mut().map(ProcessTree::sample);
        match edge {
            Edge::Begin => begin = sample,
            Edge::End => end = sample,
        }
    };
    let task = Task { plan: &plan, generator, script: None };
    let outcome = task.run(&std::env::temp_dir(), &mut observer, stop)?;
    let usage = begin.zip(end).map(|(begin, end)| end.since(&begin));
    Ok(LoadResult { url, plan, outcome, usage })
}

/// A load in progress. Dropping it ends it.
pub struct RunningLoad {
    thread: Option<JoinHandle<Result<LoadResult, ScriptError>>>,
    stop: Arc<AtomicBool>,
    interrupted: Arc<AtomicBool>,
}

impl RunningLoad {
    /// Waits until the load is over.
    ///
    /// # Errors
    /// When there was nothing to measure, or the user has asked to stop. Wrong answers are no error: the result counts them.
    pub fn wait_result(mut self) -> Result<LoadResult, ScriptError> {
        let interrupted = Arc::clone(&self.interrupted);
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            if interrupted.load(Ordering::Relaxed) {
                return Err(ScriptError::Interrupted);
            }
            thread::sleep(POLL_INTERVAL);
        }
        let Some(thread) = self.thread.take() else { return Err(ScriptError::NoResults) };
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its result is not wanted any more.
            let _ = thread.join();
        }
    }
}

/// What a load came to. Its text is what wrk would print.
#[derive(Clone, Debug)]
pub struct LoadResult {
    url: String,
    plan: Plan,
    outcome: Outcome,
    usage: Option<Usage>,
}

impl LoadResult {
    /// All that was counted.
    #[must_use]
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Answers per second, right or wrong, as wrk counts them.
    #[must_use]
    pub fn requests_per_second(&self) -> f64 {
        let seconds = self.outcome.measured.as_secs_f64();
        if seconds > 0.0 { self.outcome.answers as f64 / seconds } else { 0.0 }
    }

    /// The q-quantile of latencies (0.99 for P99), if there were answers enough to say it.
    #[must_use]
    pub fn latency(&self, q: f64) -> Option<Duration> {
        self.outcome.latencies.shown().quantile(q)
    }

    /// What the gateway's process tree used meanwhile; none of an upstream.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// CPU time of the gateway for each right answer; none of an upstream, or without answers.
    #[must_use]
    pub fn cpu_per_request(&self) -> Option<Duration> {
        let usage = self.usage.filter(|_| self.outcome.good > 0)?;
        Some(Duration::from_secs_f64(usage.cpu_us.max(0.0) / 1e6 / self.outcome.good as f64))
    }
}

impl fmt::Display for LoadResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = wrk(&Summary::of(&self.url, &self.plan, &self.outcome));
        formatter.write_str(text.trim_end())
    }
}

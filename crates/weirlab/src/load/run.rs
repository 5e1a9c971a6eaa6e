//! The thread that coordinates a load: it starts the workers, watches the warm-up and flips the phases.
use super::counters::{LoadCounters, TENTH};
use super::request::Requests;
use super::shared::Shared;
use super::steady::{WINDOWS, is_steady, is_steady_throughout};
use super::validity::{Evidence, judge};
use super::wire::Tls;
use super::worker::Worker;
use super::{Edge, LoadError, Outcome, Pace, Plan, Protocol};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Files that are open beside the load's connections, generously.
pub(super) const OTHER_FILES: u64 = 64;
/// How often the coordinator looks whether it is to stop.
const TICK: Duration = Duration::from_millis(20);
/// How long a connection may take when it is first looked whether anything listens.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Generates a load. `observer` is called at the very moment the measured window begins and ends; `stop` ends the load
/// early, with what was measured so far.
///
/// # Errors
/// When there is nothing to measure: the plan makes no sense, nothing listens, or the system does not let it be. What
/// goes wrong with single requests is counted in the outcome.
pub fn run(plan: &Plan, observer: &mut dyn FnMut(Edge), stop: &AtomicBool) -> Result<Outcome, LoadError> {
    check(plan)?;
    let requests = Requests::new(plan)?;
    let tls = plan.tls.then(|| Tls::new(plan)).transpose()?;
    allow_files(plan.connections as u64 + OTHER_FILES)?;
    plan.addresses.iter().collect::<BTreeSet<_>>().into_iter().try_for_each(|address| reach(*address))?;

    let threads = plan.threads.min(plan.connections);
    let shared = Shared::new(threads)?;
    let workers = (0..threads)
        .map(|thread| Worker::new(plan, &shared, &requests, tls.clone(), (thread, threads)))
        .collect::<Result<Vec<_>, _>>()?;
    let (tallies, course) = thread::scope(|scope| {
        let mut handles = Vec::with_capacity(threads);
        for worker in workers {
            match start(scope, plan, worker) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    // The workers that have started would otherwise run for ever.
                    shared.finish();
                    shared.wake();
                    return Err(error);
                }
            }
        }
        let course = Coordinator { plan, shared: &shared, workers: &handles, stop }.conduct(observer);
        let tallies = handles.into_iter().map(joined).collect::<Result<Vec<_>, _>>()?;
        Ok((tallies, course))
    })?;
    Ok(outcome(plan, &shared, &tallies, &course))
}

/// Whether anything accepts connections at an address.
///
/// # Errors
/// When nothing does.
pub fn reach(address: SocketAddr) -> Result<(), LoadError> {
    match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
        Ok(_) => Ok(()),
        Err(error) => Err(LoadError::Unreachable(address, error)),
    }
}

pub(super) fn check(plan: &Plan) -> Result<(), LoadError> {
    let refuse = |text: &str| Err(LoadError::Plan(text.to_owned()));
    match plan.pace {
        _ if plan.addresses.is_empty() => refuse("there is no address to connect to"),
        _ if plan.connections == 0 => refuse("at least one connection is needed"),
        _ if plan.threads == 0 => refuse("at least one thread is needed"),
        _ if plan.protocol.streams() == 0 => refuse("at least one stream is needed"),
        _ if plan.protocol.is_http2() && !plan.keep_alive => {
            refuse("HTTP/2 keeps its connections: leave --no-keep-alive out, or speak HTTP/1.1")
        }
        _ if plan.protocol == Protocol::WebSocket && !plan.keep_alive => {
            refuse("WebSocket keeps its connections: leave --no-keep-alive out")
        }
        _ if plan.protocol == Protocol::WebSocket && plan.first_byte => {
            refuse("messages of a WebSocket have no time to a first byte: leave --first-byte out")
        }
        _ if plan.timeout.is_zero() => refuse("the timeout must be longer than nothing"),
        _ if plan.warm_up.at_least > plan.warm_up.at_most => {
            refuse("the shortest warm-up must not be longer than the longest")
        }
        Pace::Constant(rate) | Pace::Poisson(rate) if !(rate > 0.0 && rate <= 1e8) => {
            refuse("the rate must be above 0 and at most 100 million requests per second")
        }
        _ => Ok(()),
    }
}

/// Raises the limit of open files for a gateway that is started next: it needs two for each connection.
///
/// # Errors
/// When the hard limit is lower.
pub fn allow_gateway_files(connections: usize) -> Result<(), LoadError> {
    allow_files(2 * connections as u64 + OTHER_FILES)
}

/// Raises the limit of open files to the hard limit if more are needed than the current one allows.
pub(super) fn allow_files(needed: u64) -> Result<(), LoadError> {
    let limits = getrlimit(Resource::Nofile);
    if limits.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(limit) = limits.maximum.filter(|maximum| *maximum < needed) {
        return Err(LoadError::Descriptors { needed, limit });
    }
    let raised = Rlimit { current: limits.maximum, maximum: limits.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|error| LoadError::System("setrlimit", error.into()))
}

type Handle<'scope> = ScopedJoinHandle<'scope, Result<LoadCounters, LoadError>>;

fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    plan: &'scope Plan,
    worker: Worker<'scope>,
) -> Result<Handle<'scope>, LoadError> {
    let body = move || {
        settle(&plan.cpus)?;
        worker.run()
    };
    let builder = thread::Builder::new().name("load".to_owned());
    builder.spawn_scoped(scope, body).map_err(|error| LoadError::System("a thread cannot be started", error))
}

/// Puts the calling thread onto its CPUs and has its timers be exact.
fn settle(cpus: &[usize]) -> Result<(), LoadError> {
    if !cpus.is_empty() {
        let mut set = CpuSet::new();
        cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
        sched_setaffinity(None, &set)
            .map_err(|error| LoadError::System("the generator's CPUs cannot be had", error.into()))?;
    }
    set_current_timer_slack(NonZeroU64::new(1))
        .map_err(|error| LoadError::System("timers cannot be made exact", error.into()))
}

fn joined(handle: Handle<'_>) -> Result<LoadCounters, LoadError> {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// How much longer than the warm-up it may take until all connections are in use, because a target that refuses some is
/// measured as it is: this long, and this much longer for each connection.
const OPENING: Duration = Duration::from_secs(1);
const OPENING_PER_CONNECTION: Duration = Duration::from_millis(3);
/// How long no further connection may get its first answer until the window begins nevertheless.
const NO_PROGRESS: Duration = Duration::from_millis(250);

/// How the load went, as the coordinator sees it.
struct Course {
    warm_up: Duration,
    steady: bool,
}

struct Coordinator<'a, 'scope> {
    plan: &'a Plan,
    shared: &'a Shared,
    workers: &'a [Handle<'scope>],
    stop: &'a AtomicBool,
}

impl Coordinator<'_, '_> {
    fn conduct(&self, observer: &mut dyn FnMut(Edge)) -> Course {
        let started = Instant::now();
        let steady = self.warm_up(started);
        self.wait_until_used();
        let warm_up = started.elapsed();
        self.shared.begin();
        observer(Edge::Begin);
        self.sleep_until(Instant::now() + self.plan.duration);
        self.shared.finish();
        observer(Edge::End);
        self.shared.wake();
        Course { warm_up, steady }
    }

    /// Waits until the warm-up is over: whether answers came steadily then. One that is too short to judge counts as
    /// steady.
    fn warm_up(&self, started: Instant) -> bool {
        let bounds = self.plan.warm_up;
        let width =
            (bounds.at_most / WINDOWS as u32).clamp(Duration::from_millis(10), Duration::from_millis(50));
        let mut counts = Vec::new();
        let mut before = self.shared.answers();
        for window in 1.. {
            let end = started + width * window;
            if end > started + bounds.at_most {
                self.sleep_until(started + bounds.at_most);
                break;
            }
            if !self.sleep_until(end) {
                break;
            }
            let answers = self.shared.answers();
            counts.push(answers - std::mem::replace(&mut before, answers));
            let judged = counts.len() >= WINDOWS && is_steady(&counts);
            if judged && started.elapsed() >= bounds.at_least {
                break;
            }
        }
        is_steady(&counts)
    }

    /// If connections are kept, opening them is not part of the window, however slow the machine is at that moment.
    fn wait_until_used(&self) {
        if self.plan.pace != Pace::Closed || !self.plan.keep_alive {
            return;
        }
        let connections = self.plan.connections as u64;
        let deadline = Instant::now() + OPENING + OPENING_PER_CONNECTION * self.plan.connections as u32;
        let wait =
            || Instant::now() < deadline && self.sleep_until(Instant::now() + Duration::from_millis(1));
        while self.shared.opened() < connections && wait() {}
        self.wait_for_first_answers(connections, wait);
    }

    /// A listener's backlog completes handshakes before the target accepts, so a connection is in use only once it had
    /// an answer. Ends when no further connection gets one, because a target that never answers some is measured as it
    /// is.
    fn wait_for_first_answers(&self, connections: u64, wait: impl Fn() -> bool) {
        let (mut answered, mut since) = (self.shared.answered(), Instant::now());
        while (1..connections).contains(&answered) && since.elapsed() < NO_PROGRESS && wait() {
            let now = self.shared.answered();
            if now > answered {
                (answered, since) = (now, Instant::now());
            }
        }
    }

    /// Whether it was reached, rather than cut short.
    fn sleep_until(&self, end: Instant) -> bool {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            if self.stop.load(Ordering::Relaxed) || self.workers.iter().any(ScopedJoinHandle::is_finished) {
                return false;
            }
            thread::sleep(left.min(TICK));
        }
    }
}

fn outcome(plan: &Plan, shared: &Shared, tallies: &[LoadCounters], course: &Course) -> Outcome {
    let mut all = LoadCounters::new(plan.duration);
    tallies.iter().for_each(|tally| all.merge(tally));
    if plan.pace == Pace::Closed {
        all.latencies.response = all.latencies.service.clone();
    }
    let (begin, end) = shared.window();
    let whole = ((end - begin) / TENTH) as usize;
    all.series.resize(all.series.len().max(whole), 0);
    let mut outcome = Outcome {
        measured: Duration::from_nanos(end - begin),
        warm_up: course.warm_up,
        steady: Some(course.steady && is_steady_throughout(&all.series, whole)),
        answers: all.answers,
        good: all.good,
        bytes: all.bytes,
        statuses: all.statuses(),
        errors: all.errors(),
        latencies: all.latencies,
        lateness: all.lateness,
        connect: all.connect,
        offered: match plan.pace {
            Pace::Closed => None,
            Pace::Constant(rate) | Pace::Poisson(rate) => Some(rate),
        },
        connections_opened: Some(all.opened),
        generator_cpu: all.cpu,
        series: all.series,
        void: None,
        overloaded: false,
    };
    let available = thread::available_parallelism().map_or(1, usize::from);
    let cpus = if plan.cpus.is_empty() { available } else { plan.cpus.len() };
    let evidence =
        Evidence { cpus: cpus.min(tallies.len()), arrivals: all.arrivals, outstanding: all.outstanding };
    judge(&mut outcome, &evidence);
    outcome
}

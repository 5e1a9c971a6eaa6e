//! One block: a load on a cell that is up, and what everything used meanwhile.
use super::action;
use super::parts::{self, Observed};
use super::probe;
use super::profile::Profile;
use super::target_runner::RunningTarget;
use super::telemetry::{self, Recording};
use crate::generator::{Generator, Task};
use crate::host::{HostError, Trees};
use crate::load::{Edge, Outcome, Pace, Plan};
use crate::observe::{self, Layout, MachineSample, Sample};
use crate::result::{ActionSample, Block, Machine, Part, Usage};
use crate::scenario::{CasePlan, Measure};
use crate::telemetry::LiveBlock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

/// The parameters of a block.
pub(crate) struct Setting<'a> {
    pub(crate) case: &'a CasePlan,
    pub(crate) profile: &'a Profile,
    pub(crate) layout: &'a Layout,
    pub(crate) generator: &'a Generator,
    pub(crate) seed: u64,
    /// Instead of the case's.
    pub(crate) pace: Option<Pace>,
    /// Where the load counts for those who watch it.
    pub(crate) recording: Option<Recording<'a>>,
    pub(crate) stop: &'a AtomicBool,
}

/// The resources used until an edge of the window.
struct EdgeSample {
    targets: Vec<Sample>,
    upstream: Sample,
    beside: Vec<Sample>,
    machine: Option<MachineSample>,
}

/// What was done and seen beside the load.
#[derive(Default)]
struct BesideLoad {
    actions: Vec<ActionSample>,
    connections: Vec<u32>,
    mhz: Option<f64>,
}

/// Measures the cell as its case asks. The caller fills in the block's place.
pub(crate) fn measure(setting: &Setting<'_>, open: &RunningTarget) -> Result<Block, String> {
    match setting.case.measure {
        Measure::Load => under_load(setting, open),
        Measure::Start => probe::start(open),
        Measure::Reload => probe::reload(setting, open),
        Measure::IdleConnections => probe::idle_connections(setting, open),
    }
}

/// What is observed of a cell.
struct Observers {
    targets: Box<dyn Trees>,
    upstream: Box<dyn Trees>,
    beside: Vec<Observed>,
}

impl Observers {
    fn new(open: &RunningTarget, pids: &[u32]) -> Result<Observers, String> {
        let message = |error: HostError| error.to_string();
        let mut observers = Observers {
            targets: open.target_host().watch(pids).map_err(message)?,
            upstream: open.hosts.upstream.watch(&[open.upstream_pid]).map_err(message)?,
            beside: parts::beside(open)?,
        };
        // The first look opens files; within the window it would be late.
        observers.sample(open).map_err(message)?;
        Ok(observers)
    }

    fn sample(&mut self, open: &RunningTarget) -> Result<EdgeSample, HostError> {
        Ok(EdgeSample {
            targets: self.targets.sample()?,
            upstream: self.upstream.sample()?.pop().unwrap_or_default(),
            beside: self.beside.iter_mut().map(Observed::sample).collect::<Result<_, _>>()?,
            machine: open.target_host().machine(),
        })
    }
}

/// Loads the cell and observes it.
fn under_load(setting: &Setting<'_>, open: &RunningTarget) -> Result<Block, String> {
    let mut plan = plan(setting, open);
    let live = setting.recording.map(|recording| recording.begin(plan.threads));
    plan.live = live.as_ref().map(LiveBlock::counters);
    let pids = open.pids()?;
    let mut observers = Observers::new(open, &pids)?;
    let mut samples = Vec::with_capacity(2);
    let (begun, begins) = mpsc::channel::<Instant>();
    let done = AtomicBool::new(false);
    let (outcome, observed) = thread::scope(|scope| {
        let done = &done;
        let roots = &pids;
        let observed = scope.spawn(move || observe_and_act(setting, open, roots, &begins, done));
        let mut at_edge = |edge| {
            samples.push(observers.sample(open));
            if edge == Edge::Begin {
                let _ = begun.send(Instant::now());
            }
        };
        let outcome = load(setting, open, &plan, &mut at_edge);
        done.store(true, Ordering::Relaxed);
        drop(begun);
        (outcome, observed.join())
    });
    let outcome = outcome?;
    check_ended(open, &pids)?;
    let observed = observed.unwrap_or_default();
    if observed.actions.is_empty() && !setting.case.actions.is_empty() {
        return Err("none of the case's actions happened within the window".to_owned());
    }
    let samples: Result<Vec<EdgeSample>, HostError> = samples.into_iter().collect();
    let [begin, end] = <[EdgeSample; 2]>::try_from(samples.map_err(|error| error.to_string())?)
        .map_err(|_| "the load ended before it was measured".to_owned())?;
    let mut block = from_outcome(outcome);
    block.target = total(&begin.targets, &end.targets);
    block.upstream_cpu_us = end.upstream.since(&begin.upstream).cpu_us;
    block.parts = parts_of(open, &observers.beside, &begin, &end, block.generator_cpu_us);
    if let (Some(begin), Some(end)) = (&begin.machine, &end.machine) {
        block.machine = Machine { mhz: observed.mhz, ..end.since(begin) };
    }
    block.actions = observed.actions;
    block.connections_per_worker = observed.connections;
    telemetry::finish(live, &block);
    Ok(block)
}

/// Generates the load from its host.
fn load(
    setting: &Setting<'_>,
    open: &RunningTarget,
    plan: &Plan,
    at_edge: &mut dyn FnMut(Edge),
) -> Result<Outcome, String> {
    let task = Task { plan, generator: setting.generator, script: setting.case.load.script.as_ref() };
    open.hosts.generator.load(&task, at_edge, setting.stop).map_err(|error| error.to_string())
}

/// Whether the processes that were observed are still those that run.
fn check_ended(open: &RunningTarget, pids: &[u32]) -> Result<(), String> {
    if !open.hosts.upstream.has(open.upstream_pid) {
        return Err("the upstream ended during the block".to_owned());
    }
    if open.pids()? != pids {
        return Err("the target's main process is another one after the block".to_owned());
    }
    Ok(())
}

/// What each process used; nothing where the block has no others than one gateway, the upstream and the generator.
fn parts_of(
    open: &RunningTarget,
    beside: &[Observed],
    begin: &EdgeSample,
    end: &EdgeSample,
    generator_cpu_us: f64,
) -> Vec<Part> {
    if beside.is_empty() {
        return Vec::new();
    }
    let samples = beside.iter().zip(begin.beside.iter().zip(&end.beside));
    let mut parts: Vec<Part> = samples.map(|(observed, (begin, end))| observed.part(begin, end)).collect();
    parts.extend(parts::gateways(open, &begin.targets, &end.targets));
    parts.push(parts::part("upstream".to_owned(), &begin.upstream, &end.upstream));
    parts.push(Part { name: "generator".to_owned(), cpu_us: generator_cpu_us, rss_kib: 0 });
    parts
}

/// The load of a case, at the cell's address.
pub(crate) fn plan(setting: &Setting<'_>, open: &RunningTarget) -> Plan {
    let load = &setting.case.load;
    let room =
        if setting.profile.source_threads { load.threads } else { setting.layout.generator.len().max(1) };
    Plan {
        addresses: vec![open.address],
        host: open.address.to_string(),
        protocol: load.protocol,
        tls: open.tls,
        connections: load.connections,
        threads: load.threads.min(room).min(load.connections).max(1),
        cpus: setting.layout.generator.clone(),
        keep_alive: load.keep_alive,
        first_byte: load.first_byte,
        pace: setting.pace.unwrap_or(load.pace),
        warm_up: setting.profile.warm_up,
        duration: setting.profile.window(setting.case),
        timeout: load.timeout,
        requests: load.requests.clone(),
        seed: setting.seed,
        live: None,
    }
}

/// Runs beside the load: fires the actions, counts the connections of each worker, and reads the CPUs' frequency.
fn observe_and_act(
    setting: &Setting<'_>,
    open: &RunningTarget,
    pids: &[u32],
    begins: &mpsc::Receiver<Instant>,
    done: &AtomicBool,
) -> BesideLoad {
    // Off the target's CPUs if it is on this machine; if that fails, it costs the target little.
    let _ = observe::pin_current_thread(&setting.layout.generator);
    // Within the warm-up, when connections are open and nothing is measured yet.
    thread::sleep(setting.profile.warm_up.at_least / 2);
    let host = open.target_host();
    let mut observed = BesideLoad {
        connections: host.connections(pids, &open.ports),
        mhz: host.frequency_mhz(),
        actions: Vec::new(),
    };
    let Ok(begin) = begins.recv() else { return observed };
    if setting.case.actions.is_empty() {
        return observed;
    }
    let generator = &*open.hosts.generator;
    let subject =
        action::Subject { listeners: &open.listeners, generator, running: &open.running, tls: open.tls };
    observed.actions = action::fire(&setting.case.actions, &subject, begin, done, setting.seed);
    observed
}

pub(crate) fn total(begin: &[Sample], end: &[Sample]) -> Usage {
    let mut total = Usage::default();
    for (begin, end) in begin.iter().zip(end) {
        let one = end.since(begin);
        total.cpu_us += one.cpu_us;
        total.user_us += one.user_us;
        total.system_us += one.system_us;
        total.rss_kib += one.rss_kib;
        total.rss_peak_kib += one.rss_peak_kib;
        total.voluntary += one.voluntary;
        total.involuntary += one.involuntary;
        total.processes += one.processes;
    }
    total
}

/// The block, as far as the generator knows it.
fn from_outcome(outcome: Outcome) -> Block {
    Block {
        measured_s: outcome.measured.as_secs_f64(),
        warm_up_s: outcome.warm_up.as_secs_f64(),
        steady: outcome.steady,
        void: outcome.void,
        overloaded: outcome.overloaded,
        answers: outcome.answers,
        good: outcome.good,
        bytes: outcome.bytes,
        statuses: outcome.statuses.iter().map(|(status, n)| (status.to_string(), *n)).collect(),
        errors: outcome.errors,
        latencies: outcome.latencies,
        lateness: Some(outcome.lateness).filter(|lateness| lateness.count() > 0),
        offered: outcome.offered,
        series: outcome.series,
        connections_opened: outcome.connections_opened,
        generator_cpu_us: outcome.generator_cpu.as_secs_f64() * 1e6,
        ..Block::default()
    }
}

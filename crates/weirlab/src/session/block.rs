//! One block: a load on a cell that is up, and what everything used meanwhile.
use super::action;
use super::parts::{self, Observed};
use super::probe;
use super::profile::Profile;
use super::target_runner::RunningTarget;
use crate::generator::Generator;
use crate::load::{Edge, Outcome, Pace, Plan};
use crate::observe::procfs::Stat;
use crate::observe::{self, Layout, MachineSample, ProcessTree, Sample};
use crate::result::{ActionSample, Block, Part, Usage};
use crate::scenario::{CasePlan, Measure};
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
    pub(crate) stop: &'a AtomicBool,
}

/// The resources used until an edge of the window.
struct EdgeSample {
    targets: Vec<Sample>,
    upstream: Sample,
    beside: Vec<Sample>,
    machine: Option<MachineSample>,
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

/// Loads the cell and observes it.
fn under_load(setting: &Setting<'_>, open: &RunningTarget) -> Result<Block, String> {
    let plan = plan(setting, open);
    let pids = open.pids()?;
    let mut trees: Vec<ProcessTree> = pids.iter().map(|pid| ProcessTree::new(*pid)).collect();
    let mut upstream = ProcessTree::new(open.upstream_pid);
    let mut beside = parts::beside(open)?;
    // The first look opens files; within the window it would be late.
    for tree in trees.iter_mut().chain([&mut upstream]) {
        tree.sample();
    }
    for observed in &mut beside {
        observed.sample();
    }
    let mut samples = Vec::with_capacity(2);
    let (begun, begins) = mpsc::channel::<Instant>();
    let done = AtomicBool::new(false);
    let (outcome, observed) = thread::scope(|scope| {
        let done = &done;
        let roots = &pids;
        let observed = scope.spawn(move || observe_and_act(setting, open, roots, &begins, done));
        let outcome = setting.generator.run(
            &plan,
            setting.case.load.script.as_ref(),
            &mut |edge| {
                samples.push(EdgeSample {
                    targets: trees.iter_mut().map(ProcessTree::sample).collect(),
                    upstream: upstream.sample(),
                    beside: beside.iter_mut().map(Observed::sample).collect(),
                    machine: MachineSample::now().ok(),
                });
                if edge == Edge::Begin {
                    let _ = begun.send(Instant::now());
                }
            },
            setting.stop,
        );
        done.store(true, Ordering::Relaxed);
        drop(begun);
        (outcome, observed.join())
    });
    let outcome = outcome.map_err(|error| error.to_string())?;
    // Until it is waited for, no other process gets its pid.
    if Stat::of(open.upstream_pid).is_none_or(|stat| stat.ended()) {
        return Err("the upstream ended during the block".to_owned());
    }
    if open.pids()? != pids {
        return Err("the target's main process is another one after the block".to_owned());
    }
    let (actions, connections) = observed.unwrap_or_default();
    if actions.is_empty() && !setting.case.actions.is_empty() {
        return Err("none of the case's actions happened within the window".to_owned());
    }
    let [begin, end] = <[EdgeSample; 2]>::try_from(samples)
        .map_err(|_| "the load ended before it was measured".to_owned())?;
    let mut block = from_outcome(outcome);
    block.target = total(&begin.targets, &end.targets);
    block.upstream_cpu_us = end.upstream.since(&begin.upstream).cpu_us;
    block.parts = parts_of(open, &beside, &begin, &end, block.generator_cpu_us);
    if let (Some(begin), Some(end)) = (&begin.machine, &end.machine) {
        block.machine = end.since(begin);
    }
    block.actions = actions;
    block.connections_per_worker = connections;
    Ok(block)
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
        pace: setting.pace.unwrap_or(load.pace),
        warm_up: setting.profile.warm_up,
        duration: setting.profile.window(setting.case),
        timeout: load.timeout,
        requests: load.requests.clone(),
        seed: setting.seed,
    }
}

/// Runs beside the load: fires the actions, and counts the connections of each worker.
fn observe_and_act(
    setting: &Setting<'_>,
    open: &RunningTarget,
    pids: &[u32],
    begins: &mpsc::Receiver<Instant>,
    done: &AtomicBool,
) -> (Vec<ActionSample>, Vec<u32>) {
    // Off the target's CPUs if there are others; if that fails, it costs the target little.
    let _ = observe::pin_current_thread(&setting.layout.generator);
    // Within the warm-up, when connections are open and nothing is measured yet.
    thread::sleep(setting.profile.warm_up.at_least / 2);
    let family = family(pids);
    let at = |port: &u16| observe::connections_per_worker(&family, *port);
    let connections = open.ports.iter().flat_map(at).filter(|count| *count > 0).collect();
    let Ok(begin) = begins.recv() else { return (Vec::new(), connections) };
    if setting.case.actions.is_empty() {
        return (Vec::new(), connections);
    }
    let subject = action::Subject { listeners: &open.listeners, running: &open.running, tls: open.tls };
    (action::fire(&setting.case.actions, &subject, begin, done, setting.seed), connections)
}

/// These processes and all that they have started.
pub(crate) fn family(roots: &[u32]) -> Vec<u32> {
    let of = |root: &u32| {
        let mut tree = ProcessTree::new(*root);
        tree.sample();
        tree.pids()
    };
    roots.iter().flat_map(of).collect()
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
        lateness: outcome.offered.map(|_| outcome.lateness),
        offered: outcome.offered,
        series: outcome.series,
        connections_opened: outcome.connections_opened,
        generator_cpu_us: outcome.generator_cpu.as_secs_f64() * 1e6,
        ..Block::default()
    }
}

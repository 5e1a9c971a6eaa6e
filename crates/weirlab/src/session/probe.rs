//! Figures that are not of requests under load: how long a start and a reload take, and what an idle connection costs.
use super::block::{self, Setting};
use super::parity::{self, Subject};
use super::target_runner::RunningTarget;
use crate::driver::Running;
use crate::host::{Host, HostError};
use crate::observe;
use crate::result::{Block, Probe, Usage};
use crate::scenario::ParityCheck;
use std::slice;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often a starting target is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// How long after its start a target may take to its first right answer.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Connections that are open before memory is first looked at: what a target sets up once is not theirs.
const WARM_UP: usize = 100;
/// How long a target may still work after an answer.
const SETTLED: Duration = Duration::from_millis(100);

/// Starts a target and polls it from the beginning, so that the answer is seen when it comes rather than when the
/// driver has found the target ready. Returns how long it took, unless no answer was right.
pub(crate) fn first_answer(
    start: impl FnOnce() -> Result<Box<dyn Running>, String>,
    host: &dyn Host,
    subject: &Subject<'_>,
    check: &ParityCheck,
    cpus: &[usize],
) -> Result<(Box<dyn Running>, Option<Duration>), String> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let polling = scope.spawn(|| poll_until_right(host, subject, check, cpus, &over));
        let running = start();
        over.store(running.is_err(), Ordering::Relaxed);
        let answered = polling.join().ok().flatten();
        let running = running?;
        let took = answered.map(|at| at.saturating_duration_since(running.began()));
        Ok((running, took))
    })
}

fn poll_until_right(
    host: &dyn Host,
    subject: &Subject<'_>,
    check: &ParityCheck,
    cpus: &[usize],
    over: &AtomicBool,
) -> Option<Instant> {
    // Where it cannot be pinned it asks from any CPU.
    let _ = observe::pin_current_thread(cpus);
    let deadline = Instant::now() + FIRST_ANSWER_TIMEOUT;
    while !over.load(Ordering::Relaxed) && Instant::now() < deadline {
        if is_right(host, subject, check) {
            return Some(Instant::now());
        }
        thread::sleep(POLL_INTERVAL);
    }
    None
}

fn is_right(host: &dyn Host, subject: &Subject<'_>, check: &ParityCheck) -> bool {
    parity::check(host, subject, slice::from_ref(check)).iter().all(|parity| parity.agrees)
}

/// What the start of the cell has shown.
pub(crate) fn start(open: &RunningTarget) -> Result<Block, String> {
    let took = open.first_answer.ok_or("it gave no right answer after its start")?;
    Ok(block(took, 1, probe("exec to first answer", took.as_secs_f64(), "s")))
}

/// Changes the declarative file where it does not matter, and has the target reload it.
pub(crate) fn reload(setting: &Setting<'_>, open: &RunningTarget) -> Result<Block, String> {
    let changed = format!("{}\n# changed before reload {}\n", open.document.text, setting.seed);
    let mut running = open.running.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(first) = running.first_mut() {
        first.replace("kong.yml", &changed).map_err(|error| error.to_string())?;
    }
    let begun = Instant::now();
    running.iter_mut().try_for_each(|one| one.reload()).map_err(|error| error.to_string())?;
    let took = begun.elapsed();
    let subject = open.subject(setting.case);
    if !is_right(&*open.hosts.generator, &subject, &setting.case.parity[0]) {
        return Err("it gave no right answer after its reload".to_owned());
    }
    Ok(block(took, 1, probe("reload until active", took.as_secs_f64(), "s")))
}

/// Opens connections that idle and looks at how much more memory is resident then.
pub(crate) fn idle_connections(setting: &Setting<'_>, open: &RunningTarget) -> Result<Block, String> {
    let plan = block::plan(setting, open);
    let message = |error: HostError| error.to_string();
    let mut idle = open.hosts.generator.idle(&plan, WARM_UP).map_err(message)?;
    idle.open(WARM_UP, setting.stop).map_err(message)?;
    let mut trees = open.target_host().watch(&open.pids()?).map_err(message)?;
    let mut look = || {
        thread::sleep(SETTLED);
        trees.sample().map_err(message)
    };
    let before = look()?;
    let begun = Instant::now();
    idle.open(plan.connections, setting.stop).map_err(message)?;
    let took = begun.elapsed();
    let after = look()?;
    match idle.ended().map_err(message)? {
        0 => {}
        ended => return Err(format!("the target ended {ended} of {} idle connections", plan.connections)),
    }
    let resident = |usage: Usage| usage.rss_kib as f64;
    let target = block::total(&before, &after);
    let grown = resident(target) - resident(block::total(&before, &before));
    let probe = probe("memory per idle connection", grown / plan.connections as f64, "KiB");
    let void = (grown <= 0.0).then(|| "the target's memory did not grow: open more connections".to_owned());
    Ok(Block { target, void, ..block(took, plan.connections as u64, probe) })
}

fn probe(name: &str, value: f64, unit: &str) -> Probe {
    Probe { name: name.to_owned(), value, unit: unit.to_owned() }
}

fn block(took: Duration, answers: u64, probe: Probe) -> Block {
    Block { measured_s: took.as_secs_f64(), answers, good: answers, probe: Some(probe), ..Block::default() }
}

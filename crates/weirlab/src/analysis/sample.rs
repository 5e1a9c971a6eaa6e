//! Which blocks count, and what one block says.
use crate::result::{Block, Cell, Histogram};
use serde::Serialize;

/// Where something is done to the target during the load, such a share of the answers may fail without spoiling the
/// block: what fails then is a result. Everywhere else one error does.
const ERRORS_UNDER_ACTIONS: f64 = 0.01;

/// Whether a block counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is", content = "why")]
pub enum Usable {
    /// It does.
    Yes,
    /// The load or the machine was at fault.
    Void(String),
    /// Answers were wrong or missing: what was measured is not the case.
    Invalid(String),
}

/// Judges one block.
pub fn usable(block: &Block) -> Usable {
    if let Some(why) = &block.void {
        return Usable::Void(why.clone());
    }
    if block.good == 0 || block.measured_s <= 0.0 {
        return Usable::Invalid(none_right(block));
    }
    if let Some(action) = block.actions.iter().find(|action| action.error.is_some()) {
        let why = action.error.as_deref().unwrap_or_default();
        return Usable::Invalid(format!("the action {} failed: {why}", action.name));
    }
    let errors: u64 = block.errors.values().sum();
    let allowed = if block.actions.is_empty() { 0.0 } else { ERRORS_UNDER_ACTIONS * block.answers as f64 };
    if errors as f64 > allowed { Usable::Invalid(failures(block)) } else { Usable::Yes }
}

/// Why no answer of a block was right.
fn none_right(block: &Block) -> String {
    let what = if block.answers == 0 { "there was no answer" } else { "no answer was right" };
    match failures(block) {
        failures if failures.is_empty() => what.to_owned(),
        failures => format!("{what}: {failures}"),
    }
}

/// Such as `3 closed, 1 timeout`.
fn failures(block: &Block) -> String {
    let classes: Vec<String> = block.errors.iter().map(|(class, count)| format!("{count} {class}")).collect();
    classes.join(", ")
}

/// The blocks under load of a cell that count.
pub(super) fn counted(cell: &Cell) -> impl Iterator<Item = &Block> {
    cell.blocks.iter().filter(|block| block.probe.is_none() && usable(block) == Usable::Yes)
}

/// What one block says, per request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Right answers per second.
    pub rps: f64,
    /// CPU time of the target's process tree per right answer, in microseconds; 0 where there is no such process.
    pub cpu_us: f64,
    /// Of the ratio of user and kernel mode: the part in user mode.
    pub user_us: f64,
    /// The part in the kernel.
    pub system_us: f64,
    /// CPU time of the generator per right answer.
    pub generator_us: f64,
    /// CPU time of the upstream per right answer.
    pub upstream_us: f64,
    /// Context switches of the target per right answer.
    pub switches: f64,
    /// The median response time in milliseconds, with enough answers.
    pub p50_ms: Option<f64>,
    /// The 99th percentile of the response time in milliseconds, with enough answers.
    pub p99_ms: Option<f64>,
    /// Both counted from the instant of sending, which every generator knows.
    #[serde(skip)]
    pub service_ms: [Option<f64>; 2],
    /// Whether the generator knows when each request was due.
    #[serde(skip)]
    pub knows_due: bool,
}

impl Sample {
    /// What a block says. The split of CPU time by ticks is scaled to the scheduler's exact sum.
    pub fn of(block: &Block) -> Sample {
        let good = block.good as f64;
        let usage = &block.target;
        let ticks = usage.user_us + usage.system_us;
        let part = |of: f64| if ticks > 0.0 { usage.cpu_us * of / ticks / good } else { 0.0 };
        Sample {
            rps: good / block.measured_s,
            cpu_us: usage.cpu_us / good,
            user_us: part(usage.user_us),
            system_us: part(usage.system_us),
            generator_us: block.generator_cpu_us / good,
            upstream_us: block.upstream_cpu_us / good,
            switches: (usage.voluntary + usage.involuntary) as f64 / good,
            p50_ms: quantile_ms(block, 0.5),
            p99_ms: quantile_ms(block, 0.99),
            service_ms: [0.5, 0.99].map(|q| in_ms(&block.latencies.service, q)),
            knows_due: !block.latencies.is_without_response(),
        }
    }
}

/// A quantile of a block's response times.
pub(super) fn quantile_ms(block: &Block, q: f64) -> Option<f64> {
    in_ms(block.latencies.shown(), q)
}

fn in_ms(latencies: &Histogram, q: f64) -> Option<f64> {
    Some(latencies.quantile(q)?.as_secs_f64() * 1e3)
}

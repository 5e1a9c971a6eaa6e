//! One sample, and what everything used meanwhile.
use super::{Histogram, Latencies};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One sample: a load on one cell, or a probe of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Block {
    /// Which round; blocks of the same round are compared with each other.
    pub round: u32,
    /// Its place among all blocks of the run.
    pub sequence: u32,
    /// Seconds since the run began.
    pub at_s: f64,
    /// The length of the measured window.
    pub measured_s: f64,
    /// Of the warm-up before it.
    pub warm_up_s: f64,
    /// Whether the rate of answers was steady; none where the generator does not say.
    #[serde(default)]
    pub steady: Option<bool>,
    /// Why the sample does not count, if so.
    pub void: Option<String>,
    /// Whether it is void for the sole reason that too little of what was due was answered: the rate is beyond the
    /// target (open loop).
    #[serde(default)]
    pub overloaded: bool,
    /// Answers, right or wrong.
    pub answers: u64,
    /// Right answers.
    pub good: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Answers by status.
    pub statuses: BTreeMap<String, u64>,
    /// What went wrong, by class.
    pub errors: BTreeMap<String, u64>,
    /// Latencies of right answers.
    pub latencies: Latencies,
    /// How late requests were sent (open loop).
    pub lateness: Option<Histogram>,
    /// Requests per second that were offered (open loop).
    pub offered: Option<f64>,
    /// Answers in each tenth of a second; where the block was measured in slices, one entry for each, at its rate.
    pub series: Vec<u64>,
    /// The target's whole process tree.
    pub target: Usage,
    /// Connections that the generator opened within the window; with kept connections there should be none. Missing where
    /// the generator does not say.
    #[serde(default)]
    pub connections_opened: Option<u64>,
    /// CPU time of the generator, in microseconds.
    pub generator_cpu_us: f64,
    /// CPU time of the upstream, in microseconds.
    pub upstream_cpu_us: f64,
    /// Established connections per process or thread of the target, where the kernel shows it.
    pub connections_per_worker: Vec<u32>,
    /// The machine, meanwhile.
    pub machine: Machine,
    /// What each process used, where there are more than a gateway, the upstream and the generator: the control plane, data
    /// planes and the front.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// What periodic actions measured.
    pub actions: Vec<ActionSample>,
    /// What the gateway's own analytics saw, second by second, of the load with its warm-up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seconds: Vec<Second>,
    /// The figure itself, where it is not one of requests under load.
    pub probe: Option<Probe>,
}

/// A second that the gateway's analytics saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Second {
    /// Its start, in seconds since the run began.
    pub at_s: f64,
    /// Requests per second; the first and the last second of a block are not whole ones.
    pub requests_per_second: f64,
    /// The 99th percentile of their latencies in milliseconds.
    pub p99_ms: Option<f64>,
}

/// A figure that is not one of requests under load. Less is better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// Such as `exec to first answer`.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// Such as `s` or `KiB`.
    pub unit: String,
}

/// What one of the processes of a block used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// Such as `control plane`, `data plane 2`, `front`, `upstream` or `generator`.
    pub name: String,
    /// CPU time, in microseconds.
    pub cpu_us: f64,
    /// Resident memory at the end, in KiB; 0 for the generator, which is the laboratory itself.
    pub rss_kib: u64,
}

/// What a process tree used between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// CPU time, in microseconds, by the scheduler's clock.
    pub cpu_us: f64,
    /// Of which in user mode; the split is of the kernel's accounting in ticks.
    pub user_us: f64,
    /// Of which in the kernel.
    pub system_us: f64,
    /// Resident memory at the end, in KiB.
    pub rss_kib: u64,
    /// The most resident memory so far, in KiB.
    pub rss_peak_kib: u64,
    /// Context switches asked for.
    pub voluntary: u64,
    /// Context switches suffered.
    pub involuntary: u64,
    /// Processes in the tree.
    pub processes: u32,
}

/// What the machine did between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Share of CPU time that the hypervisor gave to others.
    pub steal: f64,
    /// Share of time in which some task waited for a CPU; none if the kernel does not report it.
    pub pressure: Option<f64>,
    /// Share of CPU time that nothing used.
    pub idle: f64,
    /// CPU time that all processes used, in microseconds; none in data of earlier versions.
    #[serde(default)]
    pub busy_us: Option<f64>,
    /// How far apart the moments are, in seconds: the time that `busy_us` is of, which is longer than the measured window
    /// under generators of other makers; none in data of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span_s: Option<f64>,
    /// Frequency of the CPUs in MHz, their mean; none where the kernel does not show it.
    #[serde(default)]
    pub mhz: Option<f64>,
}

/// One firing of a periodic action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ActionSample {
    /// The action's name.
    pub name: String,
    /// Seconds since the measured window began.
    pub at_s: f64,
    /// How long it took, in milliseconds.
    pub took_ms: f64,
    /// The size of the answer.
    pub bytes: u64,
    /// What went wrong.
    pub error: Option<String>,
}

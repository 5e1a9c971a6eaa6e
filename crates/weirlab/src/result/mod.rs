//! What a run leaves behind: `data.json`, typed. Everything a report says is derived from this alone.
mod block;
mod histogram;
pub mod store;

pub use block::{ActionSample, Block, Machine, Part, Probe, Second, Usage};
pub use histogram::{Histogram, Latencies};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the format of `data.json`.
pub const SCHEMA: u32 = 1;

/// A whole run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// The version of this format.
    pub schema: u32,
    /// The name of the run's folder.
    pub id: String,
    /// What kind of run it was: `run`, `gate`, `capacity`.
    pub kind: String,
    /// The profile's name.
    pub profile: String,
    /// The seed of the order of blocks and of every random choice.
    pub seed: u64,
    /// The target that ratios are taken to.
    pub baseline: String,
    /// Whether the run was ended before its plan was.
    pub interrupted: bool,
    /// Where and with what it was measured.
    pub manifest: Manifest,
    /// The cases, in the order of the plan.
    pub cases: Vec<Case>,
    /// One case before one target each.
    pub cells: Vec<Cell>,
    /// Rates that hold a service level, and latency at shares of them.
    pub capacities: Vec<Capacity>,
    /// Flame graphs that lie beside this file.
    pub flames: Vec<Flame>,
    /// What the plugins of a route cost, as targets report it.
    #[serde(default)]
    pub chains: Vec<ChainCost>,
}

/// What a request to a route costs, part by part, as the target itself measured it under load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChainCost {
    /// The target's label.
    pub target: String,
    /// The case's name, or what was asked of which file.
    pub case: String,
    /// The route's name.
    pub route: String,
    /// How many requests to it this is of, as the target estimates.
    pub requests: u64,
    /// The CPU time of the target's workers for each request, in microseconds.
    pub cpu_us: f64,
    /// In the order in which a request meets them; the rest of the CPU time last, where plugins leave any.
    pub parts: Vec<ChainPart>,
}

impl ChainCost {
    /// Whether the plugins took longer than there was CPU time, by the clock on the wall: the machine had more to run
    /// than CPUs, and their times hold what others took.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.plugins_us() > self.cpu_us
    }

    /// The warning for that.
    #[must_use]
    pub fn crowded(&self) -> Option<String> {
        self.is_crowded().then(|| {
            format!(
                "The plugins' times sum to {:.1} µs, more than the {:.1} µs of CPU time: the machine was busy, and their \
                 means include what others took meanwhile. So the engine's part and the shares are unknown. Read p50, or \
                 run again on a quiet machine.",
                self.plugins_us(),
                self.cpu_us
            )
        })
    }

    fn plugins_us(&self) -> f64 {
        let plugins = self.parts.iter().filter(|part| part.is_cpu() && part.phase != "engine");
        plugins.map(|part| part.mean_us).sum()
    }
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChainPart {
    /// `access`, `wait`, `upstream`, `response`, `response_body`, `log` or `engine`.
    pub phase: String,
    /// The plugin.
    pub name: String,
    /// Microseconds for each request.
    pub mean_us: f64,
    /// The median of those that it ran for.
    pub p50_us: Option<f64>,
    /// Their 99th percentile.
    pub p99_us: Option<f64>,
    /// Which part of the CPU time it is; none for what only waits, and where plugins took longer than there was CPU time.
    pub cpu_share: Option<f64>,
}

impl ChainPart {
    /// Whether it takes CPU time: what waits takes none.
    #[must_use]
    pub fn is_cpu(&self) -> bool {
        !matches!(self.phase.as_str(), "wait" | "upstream")
    }
}

/// A scenario with its variables set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// Such as `kong/plain-1 https` or `weir/response-size[bytes=1024] http`.
    pub name: String,
    /// The scenario's name: its folder below `scenarios/`.
    pub scenario: String,
    /// What the scenario calls itself.
    pub title: String,
    /// `http` or `https`.
    pub scheme: String,
    /// The variables that a sweep has set.
    pub variables: BTreeMap<String, String>,
    /// Connections, threads and pace, in words.
    pub load: String,
    /// The sweep's axis, if it is one.
    pub axis: Option<Axis>,
    /// The waterfall it is a step of.
    pub step: Option<Step>,
    /// The row of Kong's published figures it corresponds to.
    pub published: Option<String>,
}

/// Where a case lies on the axis of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Axis {
    /// The variable.
    pub name: String,
    /// Its value, if it is a number.
    pub value: f64,
}

/// A step of a waterfall: what is added to the step before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// The waterfall's name, the same for all of its steps.
    pub waterfall: String,
    /// From 0 on.
    pub index: u32,
    /// Such as `+ key-auth`.
    pub label: String,
}

/// One case before one target.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The case's name.
    pub case: String,
    /// The target's label, such as `nginx`, `weir@git:main`; the control is the baseline's label with ` (again)`.
    pub target: String,
    /// Whether this is the A/A control.
    pub control: bool,
    /// What came of it.
    pub status: Status,
    /// Why it was measured no further, if it was not to the end.
    #[serde(default)]
    pub cut_short: Option<String>,
    /// What the parity check saw.
    pub parity: Vec<Parity>,
    /// The samples.
    pub blocks: Vec<Block>,
}

/// What came of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "is", content = "why")]
pub enum Status {
    /// It has samples.
    Measured,
    /// The target lacks what the case needs, or this version of the laboratory does: not an easier case instead.
    Skipped(String),
    /// The target's answers are not what the case asks for, so it is not measured.
    Different(String),
    /// It could not be started, or failed.
    Failed(String),
    /// The target is not on this machine.
    Unmeasured(String),
}

/// One request of a parity check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Parity {
    /// Method and path.
    pub request: String,
    /// What was to come.
    pub expected: String,
    /// What came.
    pub got: String,
    /// Whether they agree.
    pub agrees: bool,
}

/// The rate that holds a service level.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Capacity {
    /// The case's name.
    pub case: String,
    /// The target's label.
    pub target: String,
    /// Such as `p99=5ms`.
    pub slo: String,
    /// How many workers (or cores) the target had.
    pub workers: u32,
    /// Requests per second; 0 where no rate held the service level.
    pub rate: f64,
    /// Whether the rate held in at least two of three probes.
    #[serde(default)]
    pub confirmed: bool,
    /// What kept the search from higher rates, if not the target: then the capacity is at least the rate.
    #[serde(default)]
    pub limited_by: Option<String>,
    /// What the search tried, and the curve below the capacity.
    pub points: Vec<CapacityPoint>,
}

/// One offered rate.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CapacityPoint {
    /// Requests per second offered.
    pub offered: f64,
    /// Requests per second answered.
    pub achieved: f64,
    /// Share of the capacity, for points of the curve.
    pub share: Option<f64>,
    /// Whether it held the service level.
    pub holds: bool,
    /// Latencies.
    pub latencies: Latencies,
    /// CPU per request, in microseconds.
    pub cpu_us_per_request: f64,
    /// Why the sample does not count, if so.
    pub void: Option<String>,
}

/// A flame graph beside the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Flame {
    /// The file's name.
    pub file: String,
    /// What it shows.
    pub title: String,
}

/// Where and with what a run was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// When it began, RFC 3339, UTC.
    pub started: String,
    /// When it ended.
    pub ended: String,
    /// The command line.
    pub command: Vec<String>,
    /// The laboratory's own version and commit.
    pub laboratory: String,
    /// Kernel release and build.
    pub kernel: String,
    /// The CPU's model.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Names and values: governor, turbo, SMT, mitigations, limits, sysctls, hypervisor; as far as they can be read.
    pub machine: BTreeMap<String, String>,
    /// Share of the ten seconds before the run in which some task waited for a CPU; none if the kernel does not report it.
    #[serde(default)]
    pub pressure_before: Option<f64>,
    /// The compiler.
    pub rustc: String,
    /// Whether target, upstream and generator had to share CPUs.
    pub cpu_sharing: bool,
    /// Which CPUs each was given, in words.
    pub pinning: String,
    /// The targets.
    pub targets: BTreeMap<String, TargetManifest>,
    /// Hashes (SHA-256) of the rendered configurations, by `case / target`.
    pub configurations: BTreeMap<String, String>,
    /// The machines of a run over several, by name; what stands above of a machine is of the target's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, HostManifest>,
}

/// One machine of a run over several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostManifest {
    /// What runs there: `target`, `upstream`, `generator`, `database`.
    pub roles: Vec<String>,
    /// Kernel release and build.
    pub kernel: String,
    /// The CPU's model.
    pub cpu: String,
    /// CPUs that the laboratory may use.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Names and values, as those of the manifest; once it was prepared.
    pub machine: BTreeMap<String, String>,
    /// What was set for the measurement and put back after it, as `before → after`; or why it could not be.
    pub prepared: BTreeMap<String, String>,
    /// The load average of one minute for each core when the measurement began.
    pub load_average: f64,
    /// By how much its clock is ahead of that of the machine that `weirlab` was called on, in microseconds.
    pub clock_offset_us: f64,
    /// The shortest round trip to it over ssh, in microseconds.
    pub round_trip_us: f64,
}

/// What a target was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetManifest {
    /// What it says of its version.
    pub version: String,
    /// The binary's path, below home directories shortened.
    pub binary: String,
    /// SHA-256 of the binary.
    pub sha256: String,
    /// The commit, for versions built from one.
    pub commit: Option<String>,
    /// Whether the work tree had changes.
    pub dirty: bool,
    /// How it was run: `process` or `docker`.
    pub driver: String,
}

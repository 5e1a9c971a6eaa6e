//! Metrics that do not come from requests: the node, its connections, its targets.

use super::process;
use std::time::Duration;
use weir_plugin::{BodyMemoryUsage, Cost, Document};

/// What a scrape reports about the node.
pub struct NodeFacts<'a> {
    /// The node's id.
    pub node_id: &'a str,
    /// The version that it reports.
    pub version: &'a str,
    /// The process as the system sees it.
    pub process: process::Process,
    /// The clients' connections.
    pub connections: Connections,
    /// The same for streams, if there are stream listeners.
    pub streams: Option<Connections>,
    /// Requests since the start.
    pub total_requests: u64,
    /// Requests over HTTP/2.
    pub http2_requests: u64,
    /// Requests over HTTP/3.
    pub http3_requests: u64,
    /// Whether the configuration's store is reachable.
    pub datastore_reachable: bool,
    /// The active configuration.
    pub document: &'a Document,
    /// The costs of plugins.
    pub costs: &'a [Cost],
    /// Retried requests, by upstream.
    pub retries: &'a [UpstreamRetries],
    /// How often each limit of the node acted, by its name.
    pub limits: &'a [(&'static str, u64)],
    /// The upstreams that have limits.
    pub upstream_loads: &'a [UpstreamLoad],
    /// The targets that may be ejected.
    pub ejected_targets: &'a [EjectedTarget],
    /// The CPU time of all workers.
    pub worker_cpu: Duration,
    /// The memory of bodies that plugins read.
    pub body_memory_usage: BodyMemoryUsage,
    /// How many lines each access log dropped, by the setting that names it.
    pub lost_log_lines: [(&'static str, u64); 2],
    /// The targets of all upstreams.
    pub targets: &'a [TargetHealth],
    /// How many bytes the VMs of all workers hold.
    pub lua_vms_bytes: usize,
    /// The shared dictionaries of Lua.
    pub shared_dicts: &'a [SharedStore],
}

/// A store of bounded size that all workers share.
#[derive(Debug, Clone)]
pub struct SharedStore {
    /// Its name.
    pub name: String,
    /// The bytes that it holds.
    pub bytes: usize,
    /// The bytes that it may hold.
    pub max_bytes: usize,
}

/// Connections of clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Connections {
    /// Accepted since the start.
    pub accepted: u64,
    /// Of those, the ones that were served.
    pub handled: u64,
    /// Open now.
    pub active: u64,
    /// Of the open ones, those whose request is being read.
    pub reading: u64,
    /// Of the open ones, those whose response is being written.
    pub writing: u64,
    /// Of the open ones, those that wait for their next request.
    pub waiting: u64,
}

impl Connections {
    /// From the number accepted since the start and the number open now.
    pub fn of(accepted: u64, active: usize) -> Self {
        Self { accepted, handled: accepted, active: active as u64, ..Self::default() }
    }
}

/// One address of an upstream's target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetHealth {
    /// The upstream's name.
    pub upstream: String,
    /// The target as configured, `host:port`.
    pub target: String,
    /// The resolved `ip:port`; empty if the name could not be resolved.
    pub address: String,
    /// Its state.
    pub state: TargetState,
}

/// The state of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetState {
    /// Health checks are off.
    HealthchecksOff,
    /// Requests are sent there.
    Healthy,
    /// No requests are sent there.
    Unhealthy,
    /// Its name could not be resolved.
    DnsError,
}

/// What the limits of an upstream count.
#[derive(Debug, Clone)]
pub struct UpstreamLoad {
    /// The upstream's name, or the host and port of a service, and its name.
    pub upstream: Box<str>,
    /// The requests that may be in flight, if they are limited together.
    pub limit: Option<usize>,
    /// Those that are.
    pub in_flight: usize,
    /// Those that wait.
    pub waiting: usize,
    /// Those that were shed, by the limit.
    pub shed: Vec<(&'static str, u64)>,
}

/// A target that may be ejected.
#[derive(Debug, Clone)]
pub struct EjectedTarget {
    /// The upstream's name.
    pub upstream: String,
    /// The target as configured, `host:port`.
    pub target: String,
    /// Whether it is ejected now.
    pub is_ejected: bool,
    /// How often it was, by what it did.
    pub ejections: Vec<(&'static str, u64)>,
}

/// The retries of an upstream since the start.
#[derive(Debug, Clone)]
pub struct UpstreamRetries {
    /// The upstream's name, or the host and port of a service.
    pub upstream: Box<str>,
    /// The number of retries, by reason.
    pub retries: Vec<(&'static str, u64)>,
    /// The number of retries that the budget did not allow.
    pub exhausted: u64,
}

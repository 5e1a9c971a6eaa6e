//! What plugins cost, as it is reported.

use super::durations::Spread;
use std::time::{Duration, SystemTime};
use weir_model::Uuid;

/// What of a request is measured: a plugin's hook, by when it runs, or all of the request and what is no plugin's of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Before the route is found.
    Rewrite,
    /// Before the upstream is asked.
    Access,
    /// Before the response's head goes to the client.
    Response,
    /// Then, with the whole body.
    ResponseBody,
    /// After the last byte.
    Log,
    /// The rest of the total: what the gateway does itself, and what it waits for while bodies pass.
    Rest,
    /// From the moment that the upstream is asked to the head of its response.
    Upstream,
    /// From the request's head to the response's last byte.
    Total,
}

impl Phase {
    /// All, those of plugins first, in the order in which a request meets them.
    pub const ALL: [Phase; 8] = [
        Phase::Rewrite,
        Phase::Access,
        Phase::Response,
        Phase::ResponseBody,
        Phase::Log,
        Phase::Rest,
        Phase::Upstream,
        Phase::Total,
    ];

    /// Its name in metrics and in the Admin API.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Rewrite => "rewrite",
            Phase::Access => "access",
            Phase::Response => "response",
            Phase::ResponseBody => "response_body",
            Phase::Log => "log",
            Phase::Rest => "rest",
            Phase::Upstream => "upstream",
            Phase::Total => "total",
        }
    }
}

/// What one plugin has cost on one route, or what requests to the route took.
#[derive(Debug, Clone)]
pub struct Cost {
    /// The plugin's entity; none for what is no plugin's of the route's requests.
    pub plugin: Option<Uuid>,
    /// The route. None for requests that matched none, and for those of routes that there was no more room for.
    pub route: Option<Uuid>,
    /// Since when it is counted.
    pub since: SystemTime,
    /// The CPU time that all workers have used since then.
    pub cpu: Duration,
    /// What was measured, by the phases that the plugin has hooks for.
    pub phases: Vec<PhaseCost>,
    /// Runs that waited, as estimated.
    pub waits: u64,
    /// How long they waited together, as estimated.
    pub waited: Duration,
    /// Requests that it answered in the place of the upstream.
    pub answers: u64,
    /// Of these, the ones with a status of 500 or more; and panics.
    pub errors: u64,
}

/// What the runs of one hook took.
#[derive(Debug, Clone)]
pub struct PhaseCost {
    /// When it runs.
    pub phase: Phase,
    /// How long.
    pub spread: Spread,
}

impl Cost {
    /// The requests that it ran for, as estimated.
    pub fn calls(&self) -> u64 {
        self.phases.iter().map(|phase| phase.spread.calls()).max().unwrap_or(0)
    }

    /// What all its hooks took together, as estimated.
    pub fn spent(&self) -> Duration {
        Duration::from_nanos(self.phases.iter().map(|phase| phase.spread.nanos).sum())
    }

    /// What part of the workers' CPU time that is.
    pub fn cpu_share(&self) -> f64 {
        if self.cpu.is_zero() { 0.0 } else { self.spent().as_secs_f64() / self.cpu.as_secs_f64() }
    }
}

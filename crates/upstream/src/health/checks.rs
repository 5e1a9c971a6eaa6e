//! `healthchecks`, compiled: which outcomes count as a success or a failure, and the thresholds for a change of health.

use super::counters::Counter;
use weir_model::entity::{ActiveChecks, Failures, PassiveChecks, Upstream};

/// The outcome of a request to a target, or of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It responded with this status; 0 stands for an invalid response.
    Status(u16),
    /// It accepted a connection, and the check required no more.
    Connected,
    /// It could not be connected to, or broke the connection.
    TcpFailure,
    /// It took too long.
    Timeout,
}

/// The health checks of one upstream.
pub struct Checks {
    /// The upstream's name, for the log.
    pub upstream: Box<str>,
    pub passive: Limits,
    pub active: Limits,
}

/// Whether anything is asked of the targets: Kong's condition for keeping their health.
pub fn are_used(upstream: &Upstream) -> bool {
    let (active, against) = (&upstream.healthchecks.active, upstream.healthchecks.passive.unhealthy.most);
    active.healthy.interval > 0.0
        || active.unhealthy.interval > 0.0
        || against.tcp_failures > 0
        || against.timeouts > 0
        || against.http_failures > 0
}

impl Checks {
    /// The checks of an upstream that has any.
    pub fn of(upstream: &Upstream) -> Option<Checks> {
        are_used(upstream).then(|| Checks {
            upstream: upstream.name.as_str().into(),
            passive: Limits::passive(&upstream.healthchecks.passive),
            active: Limits::active(&upstream.healthchecks.active),
        })
    }
}

/// The statuses that count, and the thresholds.
pub struct Limits {
    healthy: Statuses,
    unhealthy: Statuses,
    successes: u16,
    failures: Failures,
}

impl Limits {
    fn passive(PassiveChecks { healthy, unhealthy, .. }: &PassiveChecks) -> Limits {
        let statuses = [&healthy.http_statuses, &unhealthy.http_statuses];
        Limits::of(statuses, healthy.successes, unhealthy.most)
    }

    fn active(ActiveChecks { healthy, unhealthy, .. }: &ActiveChecks) -> Limits {
        let statuses = [&healthy.http_statuses, &unhealthy.http_statuses];
        Limits::of(statuses, healthy.successes, unhealthy.most)
    }

    fn of([healthy, unhealthy]: [&Vec<u16>; 2], successes: u16, failures: Failures) -> Limits {
        Limits { healthy: Statuses::of(healthy), unhealthy: Statuses::of(unhealthy), successes, failures }
    }

    /// What an outcome counts as, and how many of it are enough; a status that is in neither list says nothing.
    pub(super) fn judge(&self, outcome: Outcome) -> Option<(Counter, u16)> {
        Some(match outcome {
            Outcome::Status(status) if self.healthy.contains(status) => (Counter::Successes, self.successes),
            Outcome::Status(status) if status == 0 || self.unhealthy.contains(status) => {
                (Counter::HttpFailures, self.failures.http_failures)
            }
            Outcome::Status(_) => return None,
            Outcome::Connected => (Counter::Successes, self.successes),
            Outcome::TcpFailure => (Counter::TcpFailures, self.failures.tcp_failures),
            Outcome::Timeout => (Counter::Timeouts, self.failures.timeouts),
        })
    }
}

/// A set of statuses below 1024.
struct Statuses([u64; 16]);

impl Statuses {
    fn of(statuses: &[u16]) -> Statuses {
        let mut set = [0; 16];
        for status in statuses.iter().filter(|status| **status < 1024) {
            set[usize::from(status / 64)] |= 1 << (status % 64);
        }
        Statuses(set)
    }

    fn contains(&self, status: u16) -> bool {
        self.0.get(usize::from(status / 64)).is_some_and(|word| word >> (status % 64) & 1 == 1)
    }
}

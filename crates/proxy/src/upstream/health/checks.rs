//! What speaks for a target and what against it, and how much of it makes a change: `healthchecks`, compiled.

use super::tally::Counter;
use weir_model::entity::{ActiveChecks, PassiveChecks, Upstream};

/// What came of asking a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It answered so; 0 stands for an answer that is none.
    Status(u16),
    /// It took a connection, and more was not asked for.
    Connected,
    /// It could not be connected to, or broke the connection.
    TcpFailure,
    /// It took too long.
    Timeout,
}

/// How the targets of one upstream are judged.
pub(crate) struct Checks {
    /// The upstream's name, for the log.
    pub(crate) upstream: Box<str>,
    pub(crate) passive: Limits,
    pub(crate) active: Limits,
}

/// Whether anything is asked of the targets: Kong's condition for keeping their health.
pub fn are_used(upstream: &Upstream) -> bool {
    let (active, against) = (&upstream.healthchecks.active, &upstream.healthchecks.passive.unhealthy);
    active.healthy.interval > 0.0
        || active.unhealthy.interval > 0.0
        || against.tcp_failures > 0
        || against.timeouts > 0
        || against.http_failures > 0
}

impl Checks {
    /// The checks of an upstream that has any.
    pub(crate) fn of(upstream: &Upstream) -> Option<Checks> {
        are_used(upstream).then(|| Checks {
            upstream: upstream.name.as_str().into(),
            passive: Limits::passive(&upstream.healthchecks.passive),
            active: Limits::active(&upstream.healthchecks.active),
        })
    }
}

/// Which outcomes count, and up to where.
pub(crate) struct Limits {
    healthy: Statuses,
    unhealthy: Statuses,
    successes: u16,
    http_failures: u16,
    tcp_failures: u16,
    timeouts: u16,
}

impl Limits {
    fn passive(checks: &PassiveChecks) -> Limits {
        let PassiveChecks { healthy, unhealthy, .. } = checks;
        Limits {
            healthy: Statuses::of(&healthy.http_statuses),
            unhealthy: Statuses::of(&unhealthy.http_statuses),
            successes: healthy.successes,
            http_failures: unhealthy.http_failures,
            tcp_failures: unhealthy.tcp_failures,
            timeouts: unhealthy.timeouts,
        }
    }

    fn active(checks: &ActiveChecks) -> Limits {
        let ActiveChecks { healthy, unhealthy, .. } = checks;
        Limits {
            healthy: Statuses::of(&healthy.http_statuses),
            unhealthy: Statuses::of(&unhealthy.http_statuses),
            successes: healthy.successes,
            http_failures: unhealthy.http_failures,
            tcp_failures: unhealthy.tcp_failures,
            timeouts: unhealthy.timeouts,
        }
    }

    /// What an outcome counts as, and how many of it are enough; a status that is in neither list says nothing.
    pub(super) fn judge(&self, outcome: Outcome) -> Option<(Counter, u16)> {
        Some(match outcome {
            Outcome::Status(status) if self.healthy.contains(status) => (Counter::Successes, self.successes),
            Outcome::Status(status) if status == 0 || self.unhealthy.contains(status) => {
                (Counter::HttpFailures, self.http_failures)
            }
            Outcome::Status(_) => return None,
            Outcome::Connected => (Counter::Successes, self.successes),
            Outcome::TcpFailure => (Counter::TcpFailures, self.tcp_failures),
            Outcome::Timeout => (Counter::Timeouts, self.timeouts),
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

//! The last change of an address's health: when it was, and what decided it.

use super::counters::Counter;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// What decided the health of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthSource {
    /// The target was configured, or its health checks were removed.
    Configuration,
    /// Its name was resolved to the address.
    Dns,
    /// Probes.
    Active,
    /// Requests.
    Passive,
    /// The Admin API.
    Operator,
    /// The process that this one has replaced.
    Predecessor,
}

impl HealthSource {
    /// The name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Dns => "dns",
            Self::Active => "active",
            Self::Passive => "passive",
            Self::Operator => "operator",
            Self::Predecessor => "predecessor",
        }
    }
}

/// Since when an address is healthy or unhealthy, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthChange {
    /// When the health changed; when the address was first known if it never did.
    pub at: SystemTime,
    /// What decided it.
    pub source: HealthSource,
    /// How many outcomes of a kind were enough.
    outcomes: Option<(u16, Counter)>,
}

impl HealthChange {
    /// A change that happens now.
    pub(super) fn now(source: HealthSource) -> HealthChange {
        HealthChange { at: SystemTime::now(), source, outcomes: None }
    }

    /// A change that happens now, because of so many outcomes of a kind.
    pub(super) fn by_outcomes(source: HealthSource, limit: u16, counter: Counter) -> HealthChange {
        HealthChange { outcomes: Some((limit, counter)), ..HealthChange::now(source) }
    }

    /// Which outcomes decided it, such as `3 HTTP failures`; none if none did.
    pub fn reason(&self) -> Option<String> {
        self.outcomes.map(|(limit, counter)| format!("{limit} {}", counter.as_str()))
    }
}

/// The last change of an address. It is locked while it changes, which is rare, and while it is shown.
#[derive(Debug)]
pub(super) struct LastChange(Mutex<HealthChange>);

impl LastChange {
    pub(super) fn new(first: HealthChange) -> LastChange {
        LastChange(Mutex::new(first))
    }

    pub(super) fn get(&self) -> HealthChange {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, change: HealthChange) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = change;
    }
}

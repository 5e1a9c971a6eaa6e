//! What all workers have written down, added up.

use super::Phase;
use super::account::{Account, Key};
use super::durations::Spread;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_model::Uuid;

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

/// Adds accounts up; `cpu` is the CPU time that all workers have used so far.
pub(super) fn report(accounts: &[Arc<Account>], cpu: Duration) -> Vec<Cost> {
    let mut by_key: BTreeMap<Key, Vec<&Account>> = BTreeMap::new();
    for account in accounts {
        by_key.entry(account.key).or_default().push(account);
    }
    by_key.into_iter().map(|(key, accounts)| cost(key, &accounts, cpu)).collect()
}

fn cost(key: Key, accounts: &[&Account], cpu: Duration) -> Cost {
    let first = accounts.iter().map(|account| (account.since, account.cpu_before)).min();
    let (since, cpu_before) = first.unwrap_or((SystemTime::UNIX_EPOCH, Duration::ZERO));
    let phases = Phase::ALL.into_iter().filter_map(|phase| {
        let mut measured = accounts.iter().filter_map(|account| account.measured(phase)).peekable();
        measured.peek()?;
        let mut spread = Spread::default();
        measured.for_each(|durations| spread.add(durations));
        Some(PhaseCost { phase, spread })
    });
    let sum = |of: fn(&Account) -> u64| accounts.iter().map(|account| of(account)).sum();
    Cost {
        plugin: key.plugin,
        route: key.route,
        since,
        cpu: cpu.saturating_sub(cpu_before),
        phases: phases.collect(),
        waits: sum(|account| account.waits.get()),
        waited: Duration::from_nanos(sum(|account| account.waited.get())),
        answers: sum(|account| account.answers.get()),
        errors: sum(|account| account.errors.get()),
    }
}

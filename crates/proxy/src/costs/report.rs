//! Sums up the costs that all workers have recorded.

use super::account::{Key, PluginCost};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_plugin::{Cost, Phase, PhaseCost, Spread};

/// Adds accounts up; `cpu` is the CPU time that all workers have used so far.
pub(super) fn report(accounts: &[Arc<PluginCost>], cpu: Duration) -> Vec<Cost> {
    let mut by_key: BTreeMap<Key, Vec<&PluginCost>> = BTreeMap::new();
    for account in accounts {
        by_key.entry(account.key).or_default().push(account);
    }
    by_key.into_iter().map(|(key, accounts)| cost(key, &accounts, cpu)).collect()
}

fn cost(key: Key, accounts: &[&PluginCost], cpu: Duration) -> Cost {
    let first = accounts.iter().map(|account| (account.since, account.cpu_before)).min();
    let (since, cpu_before) = first.unwrap_or((SystemTime::UNIX_EPOCH, Duration::ZERO));
    let phases = Phase::ALL.into_iter().filter_map(|phase| {
        let mut measured = accounts.iter().filter_map(|account| account.measured(phase)).peekable();
        measured.peek()?;
        let mut spread = Spread::default();
        measured.for_each(|durations| spread.add(durations));
        Some(PhaseCost { phase, spread })
    });
    let sum = |of: fn(&PluginCost) -> u64| accounts.iter().map(|account| of(account)).sum();
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

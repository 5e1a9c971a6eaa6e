//! The costs that one worker records, and the sampling of its requests.

use super::Costs;
use super::account::{Key, PluginCost};
use crate::activity::Activity;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How many pairs of plugin and route have an account of their own, and how many plugins have another for all other routes.
const MAX_ROUTE_COSTS: usize = 1024;

/// The costs that one worker records.
pub(crate) struct CostShard {
    costs: Arc<Costs>,
    worker: usize,
    /// What the worker does now.
    pub(crate) activity: Arc<Activity>,
    accounts: RefCell<HashMap<Key, Arc<PluginCost>, foldhash::fast::RandomState>>,
    /// Requests until the next sample, itself included.
    due: Cell<u32>,
    /// How many requests that sample stands for: those since the previous one.
    stands_for: Cell<u32>,
    measured: Cell<u32>,
    /// How many accounts had been given up when it last looked for its own among them.
    given_up: Cell<usize>,
}

impl CostShard {
    pub(crate) fn new(costs: Arc<Costs>, worker: usize) -> Self {
        let first = if costs.every == 0 { u32::MAX } else { 1 };
        Self {
            activity: costs.activities[worker].clone(),
            costs,
            worker,
            accounts: RefCell::default(),
            due: Cell::new(first),
            stands_for: Cell::new(first),
            measured: Cell::new(0),
            given_up: Cell::new(0),
        }
    }

    /// For how many requests the one that begins stands; 0 if it is not measured.
    #[inline]
    pub(crate) fn next(&self, random: impl FnOnce() -> u64) -> u32 {
        match self.due.get() {
            due @ 2.. => {
                self.due.set(due - 1);
                0
            }
            _ => self.measure(random()),
        }
    }

    /// The first requests of a worker are measured more often than those that follow, so that there is something to see
    /// soon. The distance to the next is drawn anew each time, so that no rhythm of the traffic meets it.
    #[cold]
    fn measure(&self, random: u64) -> u32 {
        if self.costs.every == 0 {
            self.due.set(u32::MAX);
            return 0;
        }
        let measured = self.measured.get().saturating_add(1);
        let mean = u64::from(self.costs.every.min(measured));
        let distance = (1 + random % (2 * mean - 1)) as u32;
        self.measured.set(measured);
        self.due.set(distance);
        self.stands_for.replace(distance)
    }

    /// Whether anything is written down at all.
    pub(crate) fn is_kept(&self) -> bool {
        self.costs.every > 0
    }

    /// What it takes to look at the clock.
    pub(crate) fn overhead(&self) -> Duration {
        self.costs.overhead
    }

    /// Says that the worker makes progress, and how much CPU time it has used.
    pub(crate) fn tick(&self) {
        self.activity.beat();
        self.costs.clocks[self.worker].tick();
    }

    /// Writes something down: in the plugin's account of all other routes where there is no room for another.
    pub(crate) fn with(&self, key: Key, write: impl FnOnce(&PluginCost)) {
        let is_kept = |account: &&Arc<PluginCost>| !account.retired.load(Relaxed);
        if let Some(account) = self.accounts.borrow().get(&key).filter(is_kept) {
            return write(account);
        }
        if self.open(key) {
            self.with(key, write);
        } else if key.route.is_some() {
            self.with(Key { route: None, ..key }, write);
        }
    }

    /// Opens an account, if there is room for it.
    #[cold]
    fn open(&self, key: Key) -> bool {
        let mut accounts = self.accounts.borrow_mut();
        let given_up = self.costs.given_up.load(Relaxed);
        if self.given_up.replace(given_up) != given_up {
            accounts.retain(|_, account| !account.retired.load(Relaxed));
        }
        let most = if key.route.is_some() { MAX_ROUTE_COSTS } else { 2 * MAX_ROUTE_COSTS };
        let has_room = accounts.len() < most;
        if has_room {
            self.tick();
            let cpu_before = self.costs.clocks.iter().map(|clock| clock.said()).sum();
            let account = Arc::new(PluginCost::new(key, cpu_before));
            // The other end of the channel is held by the same owner: it cannot be gone.
            let _ = self.costs.announce.send(account.clone());
            accounts.insert(key, account);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::Uuid;

    fn ledger(every: u32) -> CostShard {
        CostShard::new(Arc::new(Costs::new(1, every)), 0)
    }

    fn weights(ledger: &CostShard, requests: usize) -> Vec<u32> {
        let mut random = fastrand::Rng::with_seed(7);
        (0..requests).map(|_| ledger.next(|| random.u64(..))).collect()
    }

    #[test]
    fn the_measured_requests_stand_for_all() {
        let weights = weights(&ledger(64), 1_000_000);
        let last = weights.iter().rposition(|weight| *weight > 0).unwrap();
        assert_eq!(weights.iter().map(|weight| *weight as usize).sum::<usize>(), last + 1);
        let measured = weights.iter().filter(|weight| **weight > 0).count();
        assert!((14_000..18_000).contains(&measured), "{measured}: about one in 64, and more at first");
    }

    #[test]
    fn no_request_of_a_periodic_traffic_is_passed_over() {
        let weights = weights(&ledger(64), 1_000_000);
        let steady = &weights[100_000..];
        let mut of_each = [0u64; 64];
        steady.iter().enumerate().for_each(|(at, weight)| of_each[at % 64] += u64::from(*weight));
        let expected = steady.len() as u64 / 64;
        assert!(of_each.iter().all(|sum| sum.abs_diff(expected) < expected / 2), "{of_each:?}");
    }

    #[test]
    fn one_measures_all_and_0_none() {
        assert!(weights(&ledger(1), 1_000).iter().all(|weight| *weight == 1));
        assert!(weights(&ledger(0), 1_000).iter().all(|weight| *weight == 0));
        let off = ledger(0);
        off.due.set(1);
        assert_eq!(weights(&off, 3), [0; 3], "after billions too");
    }

    #[test]
    fn what_there_is_no_room_for_is_written_down_without_its_route() {
        let ledger = ledger(1);
        let plugin = Some(Uuid::from_u128(1));
        let write = |route: Option<u128>| {
            ledger.with(Key { plugin, route: route.map(Uuid::from_u128) }, |account| account.answers.add(1));
        };
        (0..MAX_ROUTE_COSTS as u128 + 10).for_each(|route| write(Some(route)));
        let accounts = ledger.accounts.borrow();
        assert_eq!(accounts.len(), MAX_ROUTE_COSTS + 1);
        assert_eq!(accounts[&Key { plugin, route: None }].answers.get(), 10);
    }

    #[test]
    fn there_is_no_end_of_plugins() {
        let ledger = ledger(1);
        (0..3 * MAX_ROUTE_COSTS as u128).for_each(|plugin| {
            ledger.with(Key { plugin: Some(Uuid::from_u128(plugin)), route: None }, |account| {
                account.answers.add(1)
            });
        });
        assert_eq!(ledger.accounts.borrow().len(), 2 * MAX_ROUTE_COSTS);
    }
}

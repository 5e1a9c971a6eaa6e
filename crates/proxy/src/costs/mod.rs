//! The costs of plugins, sampled continuously: for one request in N, the time that each hook takes.
//!
//! A request that is not sampled pays a count and, before each hook, a branch. Each worker records samples in its own
//! `CostShard`; a reader sums up the shards of all workers.

mod account;
mod clock;
mod ledger;
mod report;

pub use weir_plugin::{BOUNDS, Cost, Phase, PhaseCost, Spread};

pub(crate) use account::{Key, PluginCost};
pub(crate) use ledger::CostShard;

use crate::activity::Activity;
use clock::ThreadClock;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use weir_model::{Document, Uuid};

/// What the plugins of a node have cost so far.
pub struct Costs {
    /// Of how many requests one is measured; 0 measures none.
    every: u32,
    /// What it takes to look at the clock, which is in everything that is measured.
    overhead: Duration,
    /// The CPU time of each worker.
    clocks: Box<[ThreadClock]>,
    /// What each worker does now.
    activities: Box<[Arc<Activity>]>,
    announce: Sender<Arc<PluginCost>>,
    /// How many accounts were given up.
    given_up: AtomicUsize,
    collector: Mutex<Collector>,
}

struct Collector {
    announced: Receiver<Arc<PluginCost>>,
    known: Vec<Known>,
}

struct Known {
    account: Arc<PluginCost>,
    /// Its plugin or its route was gone when somebody last asked.
    was_missing: bool,
}

impl Costs {
    pub(crate) fn new(workers: usize, every: u32) -> Self {
        let (announce, announced) = channel();
        Self {
            every,
            overhead: overhead(),
            clocks: (0..workers).map(|_| ThreadClock::default()).collect(),
            activities: (0..workers).map(|_| Arc::default()).collect(),
            announce,
            given_up: AtomicUsize::new(0),
            collector: Mutex::new(Collector { announced, known: Vec::new() }),
        }
    }

    /// What each worker does now.
    pub(crate) fn activities(&self) -> &[Arc<Activity>] {
        &self.activities
    }

    /// The CPU time that the workers have used so far.
    pub fn worker_cpu(&self) -> Duration {
        self.clocks.iter().map(ThreadClock::read).sum()
    }

    /// What each plugin of the document has cost on each of its routes, and what requests to these took.
    pub fn of(&self, document: &Document) -> Vec<Cost> {
        report::report(&self.collect(document), self.worker_cpu())
    }

    /// The accounts of what there still is. Those of what was gone the last time too are given up.
    fn collect(&self, document: &Document) -> Vec<Arc<PluginCost>> {
        let plugins: HashSet<Uuid> = document.plugins.iter().map(|plugin| plugin.id).collect();
        let routes: HashSet<Uuid> = document.routes.iter().map(|route| route.id).collect();
        let is_live = |account: &PluginCost| {
            let key = account.key;
            key.plugin.is_none_or(|plugin| plugins.contains(&plugin))
                && key.route.is_none_or(|route| routes.contains(&route))
        };
        let mut collector = self.collector.lock().unwrap_or_else(PoisonError::into_inner);
        let announced: Vec<_> = collector.announced.try_iter().collect();
        collector.known.extend(announced.into_iter().map(|account| Known { account, was_missing: false }));
        collector.known.retain_mut(|known| {
            let is_missing = !is_live(&known.account);
            let given_up = is_missing && known.was_missing;
            known.was_missing = is_missing;
            known.account.retired.store(given_up, Relaxed);
            self.given_up.fetch_add(usize::from(given_up), Relaxed);
            !given_up
        });
        let present = collector.known.iter().filter(|known| !known.was_missing);
        present.map(|known| known.account.clone()).collect()
    }
}

/// The least that two looks at the clock are apart.
fn overhead() -> Duration {
    let looks = std::iter::repeat_with(|| Instant::now().elapsed());
    looks.take(64).min().unwrap_or_default()
}

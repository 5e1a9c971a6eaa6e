//! A snapshot as one worker holds it.

use crate::costs::{CostShard, Costs};
use crate::snapshot::{ServiceTls, Snapshot};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use weir_model::Uuid;
use weir_model::entity::{Protocol, Service};
use weir_plugin::engine::{BodyMemory, Configuration, TrustedIps, WorkerBodyMemory};
use weir_upstream::balance::Balancer;

/// A worker's hold on the snapshot: its requests count their references to it without touching memory that other workers
/// touch.
pub(crate) struct WorkerSnapshot {
    snapshot: Arc<Snapshot>,
    /// Where the worker writes down what its plugins cost.
    pub(crate) ledger: Rc<CostShard>,
    /// What plugins see of the snapshot.
    pub(crate) configuration: Rc<Configuration>,
    /// Over upstreams that plugins have chosen for services.
    balancers: RefCell<HashMap<(Uuid, Protocol, String), Arc<Balancer>>>,
}

impl WorkerSnapshot {
    /// `bodies` is where the worker takes memory for bodies that plugins read; `trusted` says whose forwarded headers are
    /// believed.
    pub(crate) fn new(
        snapshot: Arc<Snapshot>,
        ledger: Rc<CostShard>,
        bodies: Rc<WorkerBodyMemory>,
        trusted: Rc<TrustedIps>,
    ) -> Self {
        let configuration = Configuration::new(snapshot.clone(), snapshot.consumers.clone(), bodies, trusted);
        Self { snapshot, ledger, configuration: Rc::new(configuration), balancers: RefCell::default() }
    }

    /// What balances requests to a service that a plugin has changed, where its host names an upstream. It is made once.
    pub(crate) fn balancer(&self, service: &Service, tls: Option<&ServiceTls>) -> Option<Arc<Balancer>> {
        if !self.upstreams.contains(&service.host) {
            return None;
        }
        let key = (service.id, service.protocol, service.host.clone());
        if let Some(known) = self.balancers.borrow().get(&key) {
            return Some(known.clone());
        }
        let made = self.upstreams.balancer_of(service, tls)?;
        self.balancers.borrow_mut().insert(key, made.clone());
        Some(made)
    }

    /// A snapshot outside the workers, which records no costs.
    pub(crate) fn apart(snapshot: Arc<Snapshot>) -> Self {
        let ledger = CostShard::new(Arc::new(Costs::new(1, 0)), 0);
        let bodies = Rc::new(WorkerBodyMemory::new(Arc::new(BodyMemory::new(0, 1)), 0));
        Self::new(snapshot, Rc::new(ledger), bodies, Rc::new(|_| false))
    }
}

impl Deref for WorkerSnapshot {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}

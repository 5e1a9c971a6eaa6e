//! A snapshot as one worker holds it.

use crate::observe::costs::{CostShard, Costs};
use crate::snapshot::Snapshot;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use weir_plugin::engine::{BodyMemory, Configuration, WorkerBodyMemory};

/// A worker's hold on the snapshot: its requests count their references to it without touching memory that other workers
/// touch.
pub(crate) struct WorkerSnapshot {
    snapshot: Arc<Snapshot>,
    /// Where the worker writes down what its plugins cost.
    pub(crate) ledger: Rc<CostShard>,
    /// What plugins see of the snapshot.
    pub(crate) configuration: Rc<Configuration>,
}

impl WorkerSnapshot {
    /// `bodies` is where the worker takes memory for bodies that plugins read.
    pub(crate) fn new(snapshot: Arc<Snapshot>, ledger: Rc<CostShard>, bodies: Rc<WorkerBodyMemory>) -> Self {
        let configuration = Configuration::new(snapshot.clone(), snapshot.consumers.clone(), bodies);
        Self { snapshot, ledger, configuration: Rc::new(configuration) }
    }

    /// A snapshot outside the workers, which records no costs.
    pub(crate) fn apart(snapshot: Arc<Snapshot>) -> Self {
        let ledger = CostShard::new(Arc::new(Costs::new(1, 0)), 0);
        Self::new(
            snapshot,
            Rc::new(ledger),
            Rc::new(WorkerBodyMemory::new(Arc::new(BodyMemory::new(0, 1)), 0)),
        )
    }
}

impl Deref for WorkerSnapshot {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}

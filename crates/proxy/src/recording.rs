//! Where the workers of a node record their requests for analytics.

use std::sync::{Arc, Mutex, PoisonError};
use weir_analytics::entities::Entities;
use weir_analytics::ring::Producer;

/// The rings of the workers and the numbers of entities. Without them, which is the default, nothing is recorded.
///
/// Provide it in [`Retained`](crate::Retained) before the first snapshot is compiled.
#[derive(Debug, Default)]
pub struct Recording {
    entities: Option<Arc<Entities>>,
    producers: Mutex<Vec<Producer>>,
}

impl Recording {
    /// Records into these rings, one for each worker.
    pub fn new(entities: Arc<Entities>, producers: Vec<Producer>) -> Self {
        Self { entities: Some(entities), producers: Mutex::new(producers) }
    }

    /// The numbers of entities; none if nothing is recorded.
    pub(crate) fn entities(&self) -> Option<&Arc<Entities>> {
        self.entities.as_ref()
    }

    /// A ring for a worker that starts.
    pub(crate) fn take_producer(&self) -> Option<Producer> {
        self.producers.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

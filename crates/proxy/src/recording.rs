//! Where the workers of a node record their requests for analytics.

use std::sync::{Arc, Mutex, PoisonError};
use weir_analytics::entities::Entities;
use weir_analytics::ring::Producer;
use weir_analytics::samples::SampleSender;

/// The rings of the workers and the numbers of entities. Without them, which is the default, nothing is recorded.
///
/// Provide it in [`Retained`](crate::Retained) before the first snapshot is compiled.
#[derive(Debug, Default)]
pub struct Recording {
    entities: Option<Arc<Entities>>,
    producers: Mutex<Vec<Producer>>,
    sampling: Option<Sampling>,
}

/// Where samples of requests go, and the names of headers whose values they keep.
type Sampling = (SampleSender, Arc<[String]>);

impl Recording {
    /// Records into these rings, one for each worker.
    pub fn new(entities: Arc<Entities>, producers: Vec<Producer>) -> Self {
        Self { entities: Some(entities), producers: Mutex::new(producers), sampling: None }
    }

    /// Also samples requests. Of headers it keeps the values of these names alone.
    pub fn with_samples(self, sender: SampleSender, plain_headers: &[String]) -> Self {
        Self { sampling: Some((sender, plain_headers.into())), ..self }
    }

    /// How requests are sampled; none if they are not.
    pub(crate) fn sampling(&self) -> Option<&Sampling> {
        self.sampling.as_ref()
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

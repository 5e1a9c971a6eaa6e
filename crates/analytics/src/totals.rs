//! Latencies by route since somebody first asked for them: what monitoring reads as counters that only grow.
use crate::aggregate::Latency;
use crate::entities::{Entity, Kind, OTHERS};
use crate::histogram::Histogram;
use crate::slot::Slot;
use std::collections::BTreeMap;

/// The latencies of a route, by [`Latency`].
pub type Latencies = [Histogram; 3];

/// The latencies of every route. As many routes have their own as are counted one by one at a time.
#[derive(Debug, Default)]
pub struct LatencyTotals {
    routes: BTreeMap<u32, Latencies>,
}

impl LatencyTotals {
    /// Adds what was counted in an interval.
    pub(crate) fn add(&mut self, slot: &Slot) {
        for (route, aggregate) in slot.of_kind(Kind::Route) {
            let has_place = self.routes.len() <= Kind::Route.limit() || self.routes.contains_key(&route.id);
            let sums = self.routes.entry(if has_place { route.id } else { OTHERS }).or_default();
            for latency in Latency::ALL {
                sums[latency as usize].merge(aggregate.latency(latency));
            }
        }
    }

    /// Each route and its latencies.
    pub fn routes(&self) -> impl Iterator<Item = (Entity, &Latencies)> {
        self.routes.iter().map(|(id, latencies)| (Entity::new(Kind::Route, *id), latencies))
    }

    /// The memory beyond the struct itself, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        let histograms: usize = self.routes.values().flatten().map(Histogram::heap_bytes).sum();
        histograms + self.routes.len() * size_of::<(u32, Latencies)>()
    }
}

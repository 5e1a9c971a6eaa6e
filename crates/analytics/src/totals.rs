//! What was counted by route since somebody first asked for it: what monitoring reads as counters that only grow.
use crate::aggregate::Aggregate;
use crate::entities::{Entity, Kind, OTHERS};
use crate::slot::Slot;
use std::collections::BTreeMap;

/// The counts and latencies of every route. As many routes have their own as are counted one by one at a time.
#[derive(Debug)]
pub struct Totals {
    /// When counting began, in milliseconds since 1970.
    pub since: u64,
    routes: BTreeMap<u32, Aggregate>,
}

impl Totals {
    /// No counts yet.
    pub(crate) fn new(since: u64) -> Totals {
        Totals { since, routes: BTreeMap::new() }
    }

    /// Adds what was counted in an interval.
    pub(crate) fn add(&mut self, slot: &Slot) {
        for (route, aggregate) in slot.of_kind(Kind::Route) {
            let has_place = self.routes.len() <= Kind::Route.limit() || self.routes.contains_key(&route.id);
            self.routes.entry(if has_place { route.id } else { OTHERS }).or_default().merge(&aggregate);
        }
    }

    /// Each route and what was counted of it.
    pub fn routes(&self) -> impl Iterator<Item = (Entity, &Aggregate)> {
        self.routes.iter().map(|(id, aggregate)| (Entity::new(Kind::Route, *id), aggregate))
    }

    /// The memory beyond the struct itself, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        let counts: usize = self.routes.values().map(Aggregate::heap_bytes).sum();
        counts + self.routes.len() * size_of::<(u32, Aggregate)>()
    }
}

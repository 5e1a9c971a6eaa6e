//! What the last second has added to the counts of the node and of a few routes.
use crate::aggregate::Aggregate;
use crate::entities::{Entity, Kind};
use crate::slot::{Slot, SlotWriter};
use std::collections::BTreeMap;

/// The counts as they were when the last second ended.
#[derive(Debug, Default)]
pub(super) struct Seconds {
    pub(super) node: Aggregate,
    /// Routes that had counts and were asked for, by id.
    routes: BTreeMap<u32, Aggregate>,
}

impl Seconds {
    /// The slot of what has been added; none if nothing has. Routes are in ascending order. One that was not asked for
    /// before had no counts before.
    pub(super) fn next<'a>(
        &mut self,
        node: Aggregate,
        routes: impl Iterator<Item = (u32, &'a Aggregate)>,
        (start, dropped): (u64, u64),
    ) -> Option<Slot> {
        let before = std::mem::replace(&mut self.node, node);
        let added = self.node.since(&before);
        if added.requests() == 0 && dropped == 0 {
            return None;
        }
        let mut writer = SlotWriter::default();
        writer.push(Entity::NODE, &added);
        for (route, aggregate) in routes {
            let before = self.routes.insert(route, aggregate.clone()).unwrap_or_default();
            let added = aggregate.since(&before);
            if added.requests() > 0 {
                writer.push(Entity::new(Kind::Route, route), &added);
            }
        }
        Some(writer.finish(start, dropped))
    }

    /// Begins anew, because the counts do. Returns those of the node.
    pub(super) fn reset(&mut self) -> Aggregate {
        std::mem::take(self).node
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let routes = self.routes.values().map(|aggregate| size_of::<Aggregate>() + aggregate.heap_bytes());
        self.node.heap_bytes() + routes.sum::<usize>()
    }
}

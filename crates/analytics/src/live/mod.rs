//! What has been counted since the last slot was made.
//!
//! A request is counted of its route, its upstream and its consumer. For each of these that is a few additions to arrays,
//! which are kept from slot to slot. What they mean is worked out when a slot is made.
use crate::aggregate::{Aggregate, Keep};
use crate::entities::{Entities, Entity, Kind};
use crate::record::Packed;
use crate::slot::{Slot, SlotWriter};
use classes::Classes;
use row::Request;
use table::Table;

mod classes;
mod row;
mod table;

/// One table for each kind of entity.
#[derive(Debug)]
pub(crate) struct Live {
    classes: Classes,
    routes: Table,
    services: Table,
    upstreams: Table,
    consumers: Table,
}

impl Live {
    pub(crate) fn new() -> Live {
        Live {
            classes: Classes::new(),
            routes: Table::new(Kind::Route),
            services: Table::new(Kind::Service),
            upstreams: Table::new(Kind::Upstream),
            consumers: Table::new(Kind::Consumer),
        }
    }

    /// Counts a request. What the node and the services count is added up from the routes later.
    #[inline]
    pub(crate) fn record(&mut self, record: &Packed, entities: &Entities) {
        let request = Request::new(record, &mut self.classes);
        if !self.routes.record(record.route(), &request, Keep::All) {
            self.services.record(entities.service_of(record.route()), &request, Keep::All);
        }
        self.upstreams.record(record.upstream(), &request, Keep::Upstream);
        self.consumers.record(record.consumer(), &request, Keep::Total);
    }

    /// Whether nothing has been counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Makes the counts ready to be taken. Call it before a slot is made and before the busiest entities are asked for.
    pub(crate) fn settle(&mut self) {
        let classes = std::mem::replace(&mut self.classes, Classes::new());
        self.tables().for_each(|table| table.settle(&classes));
    }

    /// Moves the counts, which are settled, into a slot.
    pub(crate) fn take(&mut self, entities: &Entities, start: u64, dropped: u64) -> Slot {
        let mut node = Aggregate::default();
        for (route, aggregate) in self.routes.active() {
            node.merge(aggregate);
            self.services.merge(entities.service_of(route), aggregate);
        }
        node.merge(self.routes.others());
        let mut writer = SlotWriter::default();
        writer.push(Entity::NODE, &node);
        self.tables().for_each(|table| table.take(&mut writer));
        writer.finish(start, dropped)
    }

    /// Decides anew which entities are counted one by one. The tables must be empty.
    pub(crate) fn rank(&mut self) {
        self.tables().for_each(Table::rank);
    }

    /// The routes with the most requests lately.
    pub(crate) fn busiest_routes(&self, count: usize) -> Vec<u32> {
        self.routes.busiest(count)
    }

    /// The memory of the tables, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        [&self.routes, &self.services, &self.upstreams, &self.consumers].iter().map(|t| t.heap_bytes()).sum()
    }

    /// The tables in the order in which a slot has their entities.
    fn tables(&mut self) -> impl Iterator<Item = &mut Table> {
        [&mut self.routes, &mut self.services, &mut self.upstreams, &mut self.consumers].into_iter()
    }
}

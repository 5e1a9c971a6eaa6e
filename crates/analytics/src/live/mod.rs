//! What has been counted since the last slot was made.
use crate::aggregate::{Aggregate, Keep};
use crate::entities::{Entities, Entity, Kind};
use crate::record::Record;
use crate::slot::{Slot, SlotWriter};
use table::Table;

mod table;

/// One table for each kind of entity.
#[derive(Debug)]
pub(crate) struct Live {
    routes: Table,
    services: Table,
    upstreams: Table,
    consumers: Table,
}

impl Live {
    pub(crate) fn new() -> Live {
        Live {
            routes: Table::new(Kind::Route, Keep::All),
            services: Table::new(Kind::Service, Keep::All),
            upstreams: Table::new(Kind::Upstream, Keep::Upstream),
            consumers: Table::new(Kind::Consumer, Keep::Total),
        }
    }

    /// Counts a request. What the node and the services count is added up from the routes later.
    #[inline]
    pub(crate) fn record(&mut self, record: &Record, entities: &Entities) {
        if !self.routes.record(record.route, record) {
            self.services.record(entities.service_of(record.route), record);
        }
        self.upstreams.record(record.upstream, record);
        self.consumers.record(record.consumer, record);
    }

    /// Whether nothing has been counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Moves the counts into a slot.
    pub(crate) fn take(&mut self, entities: &Entities, start: u64, dropped: u64) -> Slot {
        let mut node = Aggregate::default();
        for (route, aggregate) in self.routes.active() {
            node.merge(aggregate);
            self.services.merge(entities.service_of(route), aggregate);
        }
        node.merge(self.routes.others());
        let mut writer = SlotWriter::default();
        writer.push(Entity::NODE, &node);
        for table in [&mut self.routes, &mut self.services, &mut self.upstreams, &mut self.consumers] {
            table.take(&mut writer);
        }
        writer.finish(start, dropped)
    }

    /// Decides anew which entities are counted one by one. The tables must be empty.
    pub(crate) fn rank(&mut self) {
        for table in [&mut self.routes, &mut self.services, &mut self.upstreams, &mut self.consumers] {
            table.rank();
        }
    }

    /// The routes with the most requests lately.
    pub(crate) fn busiest_routes(&self, count: usize) -> Vec<u32> {
        self.routes.busiest(count)
    }

    /// The memory of the tables, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        [&self.routes, &self.services, &self.upstreams, &self.consumers].iter().map(|t| t.heap_bytes()).sum()
    }
}

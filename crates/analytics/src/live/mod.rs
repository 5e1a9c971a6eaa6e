//! What has been counted since the last slot was made.
//!
//! A request is counted of its route, its upstream, its consumer and the pair of consumer and route. For each of these that is a few additions to arrays,
//! which are kept from slot to slot. What they mean is worked out when a slot is made: of everything after ten seconds, of
//! the node and the busiest routes each second.
use crate::aggregate::Keep;
use crate::entities::{Entities, Entity, Kind, NONE};
use crate::model::ModelCall;
use crate::record::Packed;
use crate::slot::{Slot, SlotWriter};
use classes::Classes;
use row::Request;
use seconds::Seconds;
use table::Table;

mod classes;
mod row;
mod seconds;
mod table;

/// One table for each kind of entity.
#[derive(Debug)]
pub(crate) struct Live {
    classes: Classes,
    seconds: Seconds,
    routes: Table,
    services: Table,
    upstreams: Table,
    consumers: Table,
    pairs: Table,
    models: Table,
}

impl Live {
    pub(crate) fn new() -> Live {
        Live {
            classes: Classes::new(),
            seconds: Seconds::default(),
            routes: Table::new(Kind::Route),
            services: Table::new(Kind::Service),
            upstreams: Table::new(Kind::Upstream),
            consumers: Table::new(Kind::Consumer),
            pairs: Table::new(Kind::Pair),
            models: Table::new(Kind::Model),
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
        if record.consumer() != NONE {
            let pair = entities.intern_pair(record.consumer(), record.route());
            self.pairs.record(pair, &request, Keep::Total);
        }
    }

    /// Counts a call of a model, of this alone.
    pub(crate) fn record_model(&mut self, call: &ModelCall<'_>, entities: &Entities) {
        let request = Request::of_model(call, &mut self.classes);
        self.models.record(call.number(entities), &request, Keep::All);
    }

    /// Whether nothing has been counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.models.is_empty()
    }

    /// Makes the counts ready to be taken. Call it before a slot is made and before the busiest entities are asked for.
    pub(crate) fn settle(&mut self) {
        let classes = std::mem::replace(&mut self.classes, Classes::new());
        self.tables().for_each(|table| table.settle(&classes));
    }

    /// The slot of what has been counted since the last one, of the node and these routes, which ascend. None if nothing
    /// has. The counts, which are settled, stay.
    pub(crate) fn second(&mut self, routes: &[u32], start_and_dropped: (u64, u64)) -> Option<Slot> {
        let mut node = self.routes.others().clone();
        self.routes.active().for_each(|(_, aggregate)| node.merge(aggregate));
        let table = &self.routes;
        let routes = routes.iter().filter_map(|route| Some((*route, table.get(*route)?)));
        self.seconds.next(node, routes, start_and_dropped)
    }

    /// Moves the counts into a slot. The last second must have been taken before.
    pub(crate) fn take(&mut self, entities: &Entities, start: u64, dropped: u64) -> Slot {
        for (route, aggregate) in self.routes.active() {
            self.services.merge(entities.service_of(route), aggregate);
        }
        let mut writer = SlotWriter::default();
        writer.push(Entity::NODE, &self.seconds.reset());
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
        let Live { routes, services, upstreams, consumers, pairs, models, .. } = self;
        let tables = [routes, services, upstreams, consumers, pairs, models];
        self.seconds.heap_bytes() + tables.iter().map(|table| table.heap_bytes()).sum::<usize>()
    }

    /// The tables in the order in which a slot has their entities.
    fn tables(&mut self) -> impl Iterator<Item = &mut Table> {
        let Live { routes, services, upstreams, consumers, pairs, models, .. } = self;
        [routes, services, upstreams, consumers, pairs, models].into_iter()
    }
}

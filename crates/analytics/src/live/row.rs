//! What is counted of one entity until the next slot is made.
use super::classes::{Classes, MAX_CLASSES};
use crate::aggregate::{Aggregate, Keep};
use crate::bucket::Bucket;
use crate::model::ModelCall;
use crate::record::{Class, Packed};

/// A request, as every table counts it.
pub(super) struct Request {
    class: Class,
    /// The number of the class, if it has one.
    number: usize,
    bytes: [u64; 2],
    latencies: [Bucket; 3],
}

impl Request {
    #[inline]
    pub(super) fn new(record: &Packed, classes: &mut Classes) -> Request {
        let class = record.class();
        let (number, bytes, latencies) = (classes.number(class), record.bytes(), record.latencies());
        Request { class, number, bytes, latencies }
    }

    /// A call of a model, as its table counts it.
    pub(super) fn of_model(call: &ModelCall<'_>, classes: &mut Classes) -> Request {
        let class = Class::of_status(call.status);
        Request { class, number: classes.number(class), bytes: call.tokens, latencies: call.measures() }
    }
}

/// The counts of an entity. Requests of numbered classes are in `by_class` until they are settled.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) id: u32,
    /// Whether anything has been counted.
    pub(super) is_active: bool,
    /// The memory that it keeps while it is empty, in bytes.
    pub(super) kept: usize,
    by_class: [u32; MAX_CLASSES],
    /// How many requests had been counted when the counts were last settled.
    settled: u64,
    pub(super) aggregate: Aggregate,
}

impl Row {
    pub(super) fn new(id: u32) -> Row {
        Row {
            id,
            is_active: false,
            kept: 0,
            by_class: [0; MAX_CLASSES],
            settled: 0,
            aggregate: Aggregate::default(),
        }
    }

    /// Counts a request.
    #[inline]
    pub(super) fn record(&mut self, request: &Request, keep: Keep) {
        match self.by_class.get_mut(request.number) {
            Some(count) => *count += 1,
            None => self.aggregate.add_requests(request.class, 1),
        }
        self.aggregate.add_measures(request.bytes, request.latencies, keep);
    }

    /// Moves the counts by class into the aggregate. Returns how many requests have been counted since the last time.
    pub(super) fn settle(&mut self, classes: &Classes) -> u64 {
        for (class, count) in classes.iter().zip(&mut self.by_class).filter(|(_, count)| **count > 0) {
            self.aggregate.add_requests(class, u64::from(std::mem::take(count)));
        }
        let requests = self.aggregate.requests();
        requests - std::mem::replace(&mut self.settled, requests)
    }

    /// Removes all counts. Keeps the memory for the next ones if it is not more than this.
    pub(super) fn clear(&mut self, most: usize) {
        let bytes = self.aggregate.heap_bytes();
        (self.is_active, self.settled) = (false, 0);
        if bytes <= most {
            self.kept = bytes;
            self.aggregate.clear();
        } else {
            self.kept = 0;
            self.aggregate = Aggregate::default();
        }
    }
}

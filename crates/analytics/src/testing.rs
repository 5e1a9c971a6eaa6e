//! Records for tests.
use crate::aggregate::{Aggregate, Keep};
use crate::bucket::Bucket;
use crate::cause::Cause;
use crate::record::{ByteCount, Protocol, Record, Tick, Traits};

/// A request of a route, to an upstream of the same id, that took a millisecond.
pub(crate) fn record(route: u32) -> Record {
    Record {
        route,
        upstream: route,
        consumer: 0,
        time: Tick::at(0),
        status: 200,
        traits: Traits::new(Protocol::Http1).reused(true),
        cause: Cause::Response,
        total: Bucket::of_nanos(1_000_000),
        gateway: Bucket::of_nanos(20_000),
        waited: Bucket::of_nanos(980_000),
        bytes_in: ByteCount::new(100),
        bytes_out: ByteCount::new(1_000),
    }
}

/// Counts a request.
pub(crate) fn count(aggregate: &mut Aggregate, record: &Record) {
    let record = record.pack();
    aggregate.add_requests(record.class(), 1);
    aggregate.add_measures(record.bytes(), record.latencies(), Keep::All);
}

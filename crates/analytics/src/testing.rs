//! Records for tests.
use crate::bucket::Bucket;
use crate::cause::Cause;
use crate::record::{ByteCount, Protocol, Record, Tick, Traits};
use std::net::{IpAddr, Ipv4Addr};

/// The client of a request.
pub(crate) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

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

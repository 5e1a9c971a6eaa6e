//! Records and slots for tests.
use crate::aggregate::{Aggregate, Keep};
use crate::bucket::Bucket;
use crate::cause::Cause;
use crate::entities::{Entities, Entity, Kind};
use crate::frame::{Frame, FrameError, FrameReader};
use crate::record::{ByteCount, Protocol, Record, Tick, Traits};
use crate::slot::{Slot, SlotWriter};
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

/// The slot of a node that has served one of its routes some times, and has refused as many by a plugin.
pub(crate) fn frame_slot(entities: &Entities, start: u64, route: &str, times: u64) -> Slot {
    let route = entities.intern(Kind::Route, route);
    let plugin = Cause::Plugin(entities.intern(Kind::Plugin, "key-auth") as u16);
    let mut aggregate = Aggregate::default();
    for _ in 0..times {
        count(&mut aggregate, &record(route));
        count(&mut aggregate, &Record { status: 401, cause: plugin, ..record(route) });
    }
    let mut writer = SlotWriter::default();
    writer.push(Entity::NODE, &aggregate);
    writer.push(Entity::new(Kind::Route, route), &aggregate);
    writer.finish(start, 0)
}

/// A frame that a connection has brought.
pub(crate) fn read_frame(
    reader: &mut FrameReader,
    bytes: &[u8],
    entities: &Entities,
) -> Result<Frame, FrameError> {
    let received = reader.parse(bytes)?;
    reader.accept(&received, entities, usize::MAX).map(|(frame, _)| frame)
}

/// Counts a request.
pub(crate) fn count(aggregate: &mut Aggregate, record: &Record) {
    let record = record.pack();
    aggregate.add_requests(record.class(), 1);
    aggregate.add_measures(record.bytes(), record.latencies(), Keep::All);
}

use super::*;
use crate::aggregate::Aggregate;
use crate::cause::Cause;
use crate::entities::Entity;
use crate::record::Record;
use crate::slot::SlotWriter;
use crate::testing::{count, record};

/// The slot of a node that has served one of its routes some times, and has refused as many by a plugin.
fn slot(entities: &Entities, start: u64, route: &str, times: u64) -> Slot {
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

fn requests(view: &View, of: Entity) -> u64 {
    view.slots.iter().filter_map(|slot| slot.get(of)).map(|aggregate| aggregate.requests()).sum()
}

#[test]
fn numbers_are_translated_and_names_sent_once() {
    let (theirs, ours) = (Entities::default(), Entities::default());
    theirs.intern(Kind::Plugin, "cors");
    ours.intern(Kind::Route, "another");
    let (mut writer, mut reader) = (FrameWriter::default(), FrameReader::default());
    let slot = slot(&theirs, 10, "orders", 3);
    let (first, second) = (writer.write(&slot, &theirs), writer.write(&slot, &theirs));
    assert!(first.len() > second.len() + "orders".len());
    let read = reader.read(&first, &ours).unwrap();
    assert_eq!(reader.read(&second, &ours), Ok(read.clone()));
    let orders = Entity::new(Kind::Route, ours.find(Kind::Route, "orders").unwrap());
    let plugin = Cause::Plugin(ours.find(Kind::Plugin, "key-auth").unwrap() as u16);
    let aggregate = read.get(orders).unwrap();
    assert_eq!(aggregate.requests_with(|outcome| outcome.cause == plugin), 3);
    assert_eq!(aggregate.requests(), 6);
}

#[test]
fn damaged_frames_are_errors() {
    let theirs = Entities::default();
    let frame = FrameWriter::default().write(&slot(&theirs, 10, "orders", 3), &theirs);
    for length in 0..frame.len() {
        let read = FrameReader::default().read(&frame[..length], &Entities::default());
        // A frame may be cut between two entries.
        assert!(
            read.is_err() || read.is_ok_and(|slot| slot.of_kind(Kind::Route).count() == 0),
            "at {length}"
        );
    }
    for place in 0..frame.len() * 8 {
        let mut flipped = frame.clone();
        flipped[place / 8] ^= 1 << (place % 8);
        // It may be another valid frame; it must not panic.
        let _ = FrameReader::default().read(&flipped, &Entities::default());
    }
    let later = [&[FORMAT as u8 + 1], &frame[1..]].concat();
    assert_eq!(FrameReader::default().read(&later, &theirs), Err(DecodeError::Format(2)));
}

#[test]
fn a_fleet_is_the_sum_of_its_nodes_also_late() {
    let ours = Entities::default();
    let mut fleet = Fleet::default();
    let (mut now, mut sent) = (1_790_000_000, 0);
    let mut late = Vec::new();
    for round in 0..800u64 {
        for node in 0..5u64 {
            let theirs = Entities::default();
            let slot = slot(&theirs, now - 10, &format!("route-{}", (round + node) % 3), node + 1);
            let frame = FrameWriter::default().write(&slot, &theirs);
            let slot = FrameReader::default().read(&frame, &ours).unwrap();
            sent += 2 * (node + 1);
            // One node is away for almost two hours.
            if node == 4 && round < 700 {
                late.push(slot);
            } else {
                fleet.add(&node.to_string(), &slot, now).unwrap();
            }
        }
        if round == 700 {
            late.drain(..).for_each(|slot| fleet.add("4", &slot, now).unwrap());
        }
        now += 10;
        fleet.close(now, 64 << 20).unwrap();
    }
    for step in [60, 3_600, 86_400] {
        let all = fleet.view(0, now, step);
        assert_eq!(requests(&all, Entity::NODE), sent, "step {step}");
        assert_eq!(
            all.slots
                .iter()
                .flat_map(|slot| slot.of_kind(Kind::Route))
                .map(|(_, a)| a.requests())
                .sum::<u64>(),
            sent
        );
        let nodes = fleet.nodes().map(|node| fleet.node_view(node, 0, now, step).unwrap());
        assert_eq!(nodes.map(|view| requests(&view, Entity::NODE)).sum::<u64>(), sent);
    }
}

#[test]
fn a_frame_from_the_future_is_refused() {
    let entities = Entities::default();
    let slot = slot(&entities, 1_000, "orders", 1);
    assert_eq!(Fleet::default().add("a", &slot, 900), Err(DecodeError::OutOfRange));
}

use super::*;
use crate::cause::Cause;
use crate::dictionary::{Dictionary, Named};
use crate::entities::{Entities, Kind};
use crate::frame::{FrameReader, FrameWriter};
use crate::record::Record;
use crate::testing::{count, frame_slot, read_frame, record};

const START: u64 = 1_790_000_000;

fn node(entities: &Entities, name: &str) -> Entity {
    Entity::new(Kind::Node, entities.intern(Kind::Node, name))
}

/// A frame of two requests.
fn frame(ours: &Entities, start: u64, part: u64) -> Frame {
    let theirs = Entities::default();
    let head = FrameHead { id: FrameId { start, part }, until: start + 10, pending: 0, lost: 0 };
    let bytes = FrameWriter::default().write(head, &frame_slot(&theirs, start, "orders", 1), &theirs);
    read_frame(&mut FrameReader::default(), &bytes, ours).unwrap()
}

/// Takes a frame as it comes from a connection.
fn take(inbox: &mut Inbox, node: Entity, frame: &Frame, now: u64) -> Result<(), FrameError> {
    check_time(frame.head.id, now)?;
    inbox.take((node, "data-plane"), frame, 0, now)
}

fn requests(batch: &Batch, of: Entity) -> u64 {
    batch.slots.iter().filter_map(|slot| slot.get(of)).map(|aggregate| aggregate.requests()).sum()
}

#[test]
fn a_frame_counts_once_for_the_fleet_and_for_its_data_plane() {
    let ours = Entities::default();
    let (a, b) = (node(&ours, "a"), node(&ours, "b"));
    let mut inbox = Inbox::default();
    for (node, part) in [(a, 0), (b, 0), (a, 0), (a, 1), (b, 0)] {
        take(&mut inbox, node, &frame(&ours, START, part), START + 10).unwrap();
    }
    let batch = inbox.take_batch(START + 10);
    assert_eq!([Entity::NODE, a, b].map(|of| requests(&batch, of)), [6, 4, 2]);
    assert_eq!(batch.frames.len(), 3);
    take(&mut inbox, a, &frame(&ours, START, 1), START + 10).unwrap();
    assert!(inbox.take_batch(START + 10).frames.is_empty(), "it came before");
    let mut restarted = Inbox::default();
    restarted.restore(batch.frames.into_iter());
    take(&mut restarted, b, &frame(&ours, START, 0), START + 10).unwrap();
    assert!(restarted.take_batch(START + 10).frames.is_empty(), "it came before the restart");
}

#[test]
fn an_interval_that_is_not_over_waits() {
    let ours = Entities::default();
    let a = node(&ours, "a");
    let mut inbox = Inbox::default();
    take(&mut inbox, a, &frame(&ours, START, 0), START).unwrap();
    assert!(inbox.take_batch(START).slots.is_empty());
    assert_eq!(requests(&inbox.take_batch(START + 10), Entity::NODE), 2);
}

#[test]
fn frames_of_a_wrong_time_are_refused() {
    let ours = Entities::default();
    let (a, mut inbox) = (node(&ours, "a"), Inbox::default());
    let early = take(&mut inbox, a, &frame(&ours, START + 100, 0), START).unwrap_err();
    assert!(early.to_string().contains("begins in 100 s; set the clocks"), "{early}");
    let late = take(&mut inbox, a, &frame(&ours, START, 0), START + 10_000).unwrap_err();
    assert_eq!(late, FrameError::Late(10_000));
    assert_eq!(inbox.arrival(a), None);
}

#[test]
fn what_is_too_old_to_come_again_is_forgotten() {
    let ours = Entities::default();
    let (a, mut inbox) = (node(&ours, "a"), Inbox::default());
    take(&mut inbox, a, &frame(&ours, START, 0), START).unwrap();
    inbox.trim(START + 1_000);
    assert_eq!(inbox.arrival(a), Some(Arrival { until: START + 10, pending: 0, lost: 0 }));
    inbox.trim(START + 10_000);
    assert_eq!((inbox.arrival(a), inbox.data_planes.len()), (None, 0));
}

#[test]
fn outcomes_of_a_sum_are_bounded_and_its_plugins_named() {
    let ours = Entities::default();
    let (a, mut inbox) = (node(&ours, "a"), Inbox::default());
    let names: Vec<u32> = (0..3 * 512).map(|n| ours.intern(Kind::Plugin, &n.to_string())).collect();
    for (part, plugins) in names.chunks(512).enumerate() {
        let mut aggregate = Aggregate::default();
        for plugin in plugins {
            let cause = Cause::Plugin(*plugin as u16);
            count(&mut aggregate, &Record { cause, ..record(1) });
        }
        let mut writer = SlotWriter::default();
        writer.push(Entity::NODE, &aggregate);
        writer.push(Entity::new(Kind::Route, ours.intern(Kind::Route, &part.to_string())), &aggregate);
        let id = FrameId { start: START, part: part as u64 };
        let head = FrameHead { id, until: START + 10, pending: 0, lost: 0 };
        take(&mut inbox, a, &Frame { head, slot: writer.finish(START, 0) }, START + 10).unwrap();
    }
    let batch = inbox.take_batch(START + 10);
    for of in [Entity::NODE, a] {
        let sum = batch.slots[0].get(of).unwrap();
        assert_eq!((sum.outcomes().count(), sum.requests()), (MAX_OUTCOMES, names.len() as u64));
    }
    let text = Named::default().missing(&batch.slots[0], &ours);
    let mut dictionary = Dictionary::default();
    dictionary.learn(&text, &Entities::default()).unwrap();
    dictionary.translate(&batch.slots[0]).unwrap();
}

#[test]
fn another_frame_of_the_same_name_is_refused_also_after_a_restart() {
    let ours = Entities::default();
    let (a, mut inbox) = (node(&ours, "a"), Inbox::default());
    let first = frame(&ours, START, 0);
    take(&mut inbox, a, &first, START).unwrap();
    take(&mut inbox, a, &first, START).unwrap();
    let clone = |ours: &Entities| Frame {
        slot: frame_slot(ours, START, "orders", 7),
        head: FrameHead { pending: 99, ..first.head },
    };
    let error = take(&mut inbox, a, &clone(&ours), START).unwrap_err();
    assert!(error.to_string().contains("was taken of data-plane; if two data planes"), "{error}");
    assert_eq!(inbox.arrival(a).map(|it| it.pending), Some(0), "a clone says nothing of it");
    let batch = inbox.take_batch(START + 10);
    assert_eq!(requests(&batch, Entity::NODE), 2);

    let ours = Entities::default();
    (0..5).for_each(|n| assert!(node(&ours, &n.to_string()).is_named()));
    ours.intern(Kind::Plugin, "shifts the numbers");
    let mut restarted = Inbox::default();
    restarted.restore(batch.frames.into_iter());
    take(&mut restarted, a, &frame(&ours, START, 0), START).unwrap();
    let error = take(&mut restarted, a, &clone(&ours), START).unwrap_err();
    assert_eq!(error, FrameError::Different("data-plane".to_owned()));
    assert!(restarted.take_batch(START + 10).frames.is_empty());
}

#[test]
fn a_frame_makes_the_time_known_since_the_one_before() {
    let ours = Entities::default();
    let (a, mut inbox) = (node(&ours, "a"), Inbox::default());
    let now = START + 100;
    take(&mut inbox, a, &frame(&ours, START, 0), now).unwrap();
    take(&mut inbox, a, &frame(&ours, START + 50, 0), now).unwrap();
    let known = inbox.take_batch(now).known;
    assert!(known.overlaps(START + 20, START + 21), "the data plane had nothing then");
    assert!(!known.overlaps(START - 10, START) && !known.overlaps(START + 60, now));
}

use super::*;
use crate::frame::FrameReader;
use crate::testing::{frame_slot, read_frame};

const START: u64 = 1_790_000_000;

/// An outbox with a frame of two requests for each of these intervals.
fn outbox(entities: &Entities, intervals: u64) -> Outbox {
    let mut outbox = Outbox::default();
    for n in 0..intervals {
        outbox.push(Arc::new(frame_slot(entities, START + 10 * n, "orders", 1)));
    }
    outbox
}

fn head(bytes: &[u8]) -> FrameHead {
    read_frame(&mut FrameReader::default(), bytes, &Entities::default()).unwrap().head
}

#[test]
fn the_oldest_is_sent_until_it_is_taken() {
    let entities = Entities::default();
    let mut outbox = outbox(&entities, 2);
    let closed = START + 20;
    for _ in 0..2 {
        outbox.begin();
        let first = head(&outbox.next(&entities, closed).unwrap());
        assert_eq!((first.id.start, first.pending, first.until), (START, 1, START));
    }
    assert_eq!(outbox.taken(), Some(FrameId { start: START, part: 0 }));
    outbox.begin();
    let second = head(&outbox.next(&entities, closed).unwrap());
    assert_eq!((second.id.start, second.pending, second.until), (START + 10, 0, closed));
    assert_eq!(outbox.taken(), Some(FrameId { start: START + 10, part: 0 }));
    assert_eq!(outbox.next(&entities, closed), None);
}

#[test]
fn an_idle_data_plane_says_once_in_each_interval_that_there_is_nothing() {
    let entities = Entities::default();
    let mut outbox = Outbox::default();
    for closed in [START, START + 10] {
        let empty = head(&outbox.next(&entities, closed).unwrap());
        assert_eq!((empty.until, empty.pending), (closed, 0));
        assert_eq!(outbox.taken(), None);
        assert_eq!(outbox.next(&entities, closed), None);
    }
    outbox.begin();
    assert!(outbox.next(&entities, START + 10).is_some(), "another control plane does not know it");
}

#[test]
fn what_comes_late_is_another_part() {
    let entities = Entities::default();
    let mut outbox = outbox(&entities, 1);
    outbox.push(Arc::new(frame_slot(&entities, START, "orders", 7)));
    outbox.next(&entities, START + 10);
    outbox.taken();
    outbox.begin();
    let late = head(&outbox.next(&entities, START + 10).unwrap());
    assert_eq!(late.id, FrameId { start: START, part: 1 });
}

#[test]
fn what_is_refused_or_too_old_is_lost_and_counted() {
    let entities = Entities::default();
    let mut outbox = outbox(&entities, 3);
    outbox.next(&entities, START + 30);
    assert_eq!(outbox.refused(), Some(FrameId { start: START, part: 0 }));
    assert_eq!((outbox.len(), outbox.lost()), (2, 2));
    let next = outbox.next(&entities, START + 30).unwrap();
    assert_eq!(head(&next).lost, 2, "it has its names");
    outbox.trim(START + 10 + KEEP + 1, usize::MAX);
    assert_eq!((outbox.len(), outbox.lost()), (1, 4));
}

#[test]
fn memory_is_bounded_unless_the_history_has_the_slots_too() {
    let entities = Entities::default();
    let mut outbox = outbox(&entities, 10);
    let shared = Arc::new(frame_slot(&entities, START + 200, "orders", 1));
    outbox.push(Arc::clone(&shared));
    let each = shared.heap_bytes();
    assert_eq!(outbox.own_bytes(), 10 * each);
    outbox.trim(START + 300, 4 * each);
    assert_eq!((outbox.len(), outbox.own_bytes(), outbox.lost()), (5, 4 * each, 12));
}

#[test]
fn a_frame_for_which_it_is_too_early_is_kept_and_sent_again() {
    let entities = Entities::default();
    let mut outbox = outbox(&entities, 2);
    outbox.next(&entities, START + 20);
    outbox.postponed(START + 20);
    assert_eq!(outbox.next(&entities, START + 29), None);
    let again = head(&outbox.next(&entities, START + 30).unwrap());
    assert_eq!((again.id.start, again.lost, outbox.len()), (START, 0, 2));
    outbox.postponed(START + 30);
    outbox.begin();
    assert!(outbox.next(&entities, START + 31).is_some(), "another control plane may take it");
}

#[test]
fn without_a_disk_names_differ_from_process_to_process() {
    let entities = Entities::default();
    let mut outbox = Outbox::new(7);
    let push = |outbox: &mut Outbox| outbox.push(Arc::new(frame_slot(&entities, START, "orders", 1)));
    push(&mut outbox);
    assert_eq!(head(&outbox.next(&entities, START + 10).unwrap()).id.part, 7);
    let mut outbox = Outbox::new(7);
    outbox.restore(&[], std::iter::empty(), &HashSet::new());
    push(&mut outbox);
    assert_eq!(head(&outbox.next(&entities, START + 10).unwrap()).id.part, 0, "the disk has an order");
}

#[test]
fn what_has_no_memory_at_the_start_is_lost_and_keeps_its_name() {
    let entities = Entities::default();
    let mut outbox = Outbox::default();
    let handed = HashSet::from([FrameId { start: START, part: 0 }]);
    let slots = [START, START + 10].map(|start| frame_slot(&entities, start, "orders", 1));
    outbox.restore(&[(START, 5), (START, 3)], slots.into_iter(), &handed);
    assert_eq!((outbox.len(), outbox.lost()), (2, 3));
    assert_eq!(head(&outbox.next(&entities, START + 20).unwrap()).id, FrameId { start: START, part: 2 });
}

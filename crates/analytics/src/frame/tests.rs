use super::*;
use crate::cause::Cause;
use crate::entities::Entity;
use crate::testing::{frame_slot, read_frame};

const HEAD: FrameHead = FrameHead { id: FrameId { start: 10, part: 2 }, until: 20, pending: 3, lost: 4 };

#[test]
fn numbers_are_translated_and_names_sent_once() {
    let (theirs, ours) = (Entities::default(), Entities::default());
    theirs.intern(Kind::Plugin, "cors");
    ours.intern(Kind::Route, "another");
    let (mut writer, mut reader) = (FrameWriter::default(), FrameReader::default());
    let slot = frame_slot(&theirs, 10, "orders", 3);
    let mut write = || writer.write(HEAD, &slot, &theirs);
    let (first, second) = (write(), write());
    assert!(first.len() > second.len() + "orders".len());
    let read = read_frame(&mut reader, &first, &ours).unwrap();
    assert_eq!(read.head, HEAD);
    assert_eq!(read_frame(&mut reader, &second, &ours), Ok(read.clone()));
    let orders = Entity::new(Kind::Route, ours.find(Kind::Route, "orders").unwrap());
    let plugin = Cause::Plugin(ours.find(Kind::Plugin, "key-auth").unwrap() as u16);
    let aggregate = read.slot.get(orders).unwrap();
    assert_eq!(aggregate.requests_with(|outcome| outcome.cause == plugin), 3);
    assert_eq!(aggregate.requests(), 6);
}

#[test]
fn damaged_frames_are_errors() {
    let theirs = Entities::default();
    let frame = FrameWriter::default().write(HEAD, &frame_slot(&theirs, 10, "orders", 3), &theirs);
    for length in 0..frame.len() {
        let read = read_frame(&mut FrameReader::default(), &frame[..length], &Entities::default());
        // A frame may be cut between two entries.
        assert!(
            read.is_err() || read.is_ok_and(|frame| frame.slot.of_kind(Kind::Route).count() == 0),
            "at {length}"
        );
    }
    for place in 0..frame.len() * 8 {
        let mut flipped = frame.clone();
        flipped[place / 8] ^= 1 << (place % 8);
        // It may be another valid frame; it must not panic.
        let _ = read_frame(&mut FrameReader::default(), &flipped, &Entities::default());
    }
    let later = [&[FORMAT as u8 + 1], &frame[1..]].concat();
    let error = read_frame(&mut FrameReader::default(), &later, &theirs).unwrap_err();
    assert_eq!(error.to_string(), "a later release wrote the data, in format 2");
}

#[test]
fn what_no_data_plane_counts_is_refused() {
    let theirs = Entities::default();
    let read = |slot: &Slot| {
        let frame = FrameWriter::default().write(HEAD, slot, &theirs);
        read_frame(&mut FrameReader::default(), &frame, &Entities::default()).unwrap_err()
    };
    let other = Entity::new(Kind::Node, theirs.intern(Kind::Node, "another"));
    let mut writer = crate::slot::SlotWriter::default();
    writer.push(other, &Default::default());
    assert_eq!(read(&writer.finish(10, 0)), FrameError::OtherNodes);
    let mut writer = crate::slot::SlotWriter::default();
    for id in 1..=MAX_ENTITIES as u32 + 1 {
        writer
            .push(Entity::new(Kind::Route, theirs.intern(Kind::Route, &id.to_string())), &Default::default());
    }
    assert_eq!(read(&writer.finish(10, 0)), FrameError::TooMany("entities"));
    let long = vec![0; MAX_FRAME_LEN + 1];
    let error = read_frame(&mut FrameReader::default(), &long, &theirs);
    assert_eq!(error, Err(FrameError::TooLong(MAX_FRAME_LEN + 1)));
    let part = FrameHead { id: FrameId { start: 10, part: MAX_PARTS }, ..HEAD };
    let frame = FrameWriter::default().write(part, &Slot::default(), &theirs);
    assert_eq!(read_frame(&mut FrameReader::default(), &frame, &theirs), Err(FrameError::TooMany("parts")));
}

#[test]
fn after_an_error_names_begin_anew() {
    let (theirs, ours) = (Entities::default(), Entities::default());
    let slot = frame_slot(&theirs, 10, "orders", 1);
    let (mut writer, mut reader) = (FrameWriter::default(), FrameReader::default());
    read_frame(&mut reader, &writer.write(HEAD, &slot, &theirs), &ours).unwrap();
    read_frame(&mut reader, &[9], &ours).unwrap_err();
    reader.begin();
    assert!(
        read_frame(&mut reader, &writer.write(HEAD, &slot, &theirs), &ours).is_err(),
        "it lacks the names"
    );
    read_frame(&mut reader, &FrameWriter::default().write(HEAD, &slot, &theirs), &ours).unwrap();
}

/// A frame of bytes, as no data plane writes it.
fn crafted(names: &[(Entity, &str)], slot: &Slot) -> Vec<u8> {
    let mut text = Vec::new();
    for (entity, name) in names {
        varint::put(&mut text, entity.key());
        varint::put_text(&mut text, name);
    }
    let mut bytes = Vec::new();
    let numbers = [FORMAT, 10, 0, 20, 0, 0, 0, text.len() as u64];
    numbers.into_iter().for_each(|number| varint::put(&mut bytes, number));
    [bytes, text, slot.bytes().to_vec()].concat()
}

#[test]
fn names_of_a_refused_frame_get_no_number() {
    let [route, node] = [Kind::Route, Kind::Node].map(|kind| Entity::new(kind, 1));
    let mut writer = crate::slot::SlotWriter::default();
    writer.push(route, &Default::default());
    let slot = writer.finish(10, 0);
    let unknown = FrameError::Decode(DecodeError::OutOfRange);
    type Names<'a> = &'a [(Entity, &'a str)];
    let cases: [(Names<'_>, &Slot, FrameError); 4] = [
        (&[(route, "a")], &Slot::default(), FrameError::UnusedName),
        (&[(route, "a"), (route, "b")], &slot, FrameError::UnusedName),
        (&[(route, "a"), (node, "b")], &slot, FrameError::OtherNodes),
        (&[], &slot, unknown),
    ];
    for (names, slot, error) in cases {
        let ours = Entities::default();
        assert_eq!(
            read_frame(&mut FrameReader::default(), &crafted(names, slot), &ours),
            Err(error),
            "{names:?}"
        );
        assert_eq!(ours.heap_bytes(), 0, "{names:?}");
    }
    read_frame(&mut FrameReader::default(), &crafted(&[(route, "a")], &slot), &Entities::default()).unwrap();
}

#[test]
fn statuses_and_traits_that_no_request_has_are_refused() {
    let read = |status: u64, traits: u64| {
        let aggregate = [1, status << 16, 1, 1, traits, 1, 0, 0, 0, 0, 0];
        let mut bytes = Vec::new();
        aggregate.into_iter().for_each(|number| varint::put(&mut bytes, number));
        let mut entry = vec![0, bytes.len() as u8];
        entry.extend(bytes);
        let slot = Slot::decode(10, 0, &entry).unwrap();
        read_frame(&mut FrameReader::default(), &crafted(&[], &slot), &Entities::default()).map(drop)
    };
    assert_eq!(read(1_023, 63), Ok(()));
    let refused = Err(FrameError::Decode(DecodeError::OutOfRange));
    assert_eq!([read(1_024, 0), read(200, 64)], [refused.clone(), refused]);
}

#[test]
fn a_name_without_room_is_counted_among_the_others() {
    let (theirs, ours) = (Entities::default(), Entities::default());
    ours.intern(Kind::Plugin, "key-auth");
    let mut reader = FrameReader::default();
    let bytes = FrameWriter::default().write(HEAD, &frame_slot(&theirs, 10, "orders", 3), &theirs);
    let received = reader.parse(&bytes).unwrap();
    assert_eq!(ours.find(Kind::Route, "orders"), None, "it is not accepted yet");
    let (frame, added) = reader.accept(&received, &ours, 0).unwrap();
    let others = frame.slot.get(Entity::new(Kind::Route, crate::entities::OTHERS)).unwrap();
    assert_eq!((others.requests(), added, ours.find(Kind::Route, "orders")), (6, 0, None));
    let (_, added) = reader.accept(&received, &ours, 9).unwrap();
    assert_eq!((added, ours.find(Kind::Route, "orders").is_some()), (1, true));
}

#[test]
fn what_passes_is_taken_later() {
    let passing = [FrameError::Early(100), FrameError::TooManyNames];
    assert!(passing.iter().all(FrameError::passes));
    let lasting = [FrameError::Late(9_999), FrameError::Different("a".to_owned()), FrameError::NoNumber];
    assert!(!lasting.iter().any(FrameError::passes));
}

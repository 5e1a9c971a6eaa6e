use super::*;
use crate::cause::Cause;
use crate::entities::Entity;
use crate::testing::frame_slot;

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
    let read = reader.read(&first, &ours).unwrap();
    assert_eq!(read.head, HEAD);
    assert_eq!(reader.read(&second, &ours), Ok(read.clone()));
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
        let read = FrameReader::default().read(&frame[..length], &Entities::default());
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
        let _ = FrameReader::default().read(&flipped, &Entities::default());
    }
    let later = [&[FORMAT as u8 + 1], &frame[1..]].concat();
    let error = FrameReader::default().read(&later, &theirs).unwrap_err();
    assert_eq!(error.to_string(), "a later release wrote the data, in format 2");
}

#[test]
fn what_no_data_plane_counts_is_refused() {
    let theirs = Entities::default();
    let read = |slot: &Slot| {
        let frame = FrameWriter::default().write(HEAD, slot, &theirs);
        FrameReader::default().read(&frame, &Entities::default()).unwrap_err()
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
    let error = FrameReader::default().read(&long, &theirs);
    assert_eq!(error, Err(FrameError::TooLong(MAX_FRAME_LEN + 1)));
    let part = FrameHead { id: FrameId { start: 10, part: MAX_PARTS }, ..HEAD };
    let frame = FrameWriter::default().write(part, &Slot::default(), &theirs);
    assert_eq!(FrameReader::default().read(&frame, &theirs), Err(FrameError::TooMany("parts")));
}

#[test]
fn after_an_error_names_begin_anew() {
    let (theirs, ours) = (Entities::default(), Entities::default());
    let slot = frame_slot(&theirs, 10, "orders", 1);
    let (mut writer, mut reader) = (FrameWriter::default(), FrameReader::default());
    reader.read(&writer.write(HEAD, &slot, &theirs), &ours).unwrap();
    reader.read(&[9], &ours).unwrap_err();
    assert!(reader.read(&writer.write(HEAD, &slot, &theirs), &ours).is_err(), "it lacks the names");
    reader.read(&FrameWriter::default().write(HEAD, &slot, &theirs), &ours).unwrap();
}

//! Messages as bytes.
use super::{consumer, entity, route, service};
use crate::sync::identity::{Digest, Identity};
use crate::sync::inventory::BUCKETS;
use crate::sync::message::*;
use crate::sync::record::{Record, body_of};
use crate::sync::transfer::{Encoder, Receiver, TransferError};
use crate::sync::{Refusal, Update};
use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;
use weir_model::entity::{Entity, EntityKind};
use weir_model::{Change, Uuid};

fn identity() -> Identity {
    Identity { epoch: u64::MAX, sequence: 7, digest: Digest::of_entity("routes", Uuid::nil(), b"{}") }
}

fn every_message() -> Vec<Message> {
    let plugins = (0..80).map(|number| format!("plugin-{number}")).collect();
    let hello = Hello { protocol: 1, plugins, credit: 16, identity: identity(), ..Hello::default() };
    let header = TransferHeader { to: identity(), from: Some(Digest::default()), chunks: 2, deflate: true };
    let error = Refusal { entity: "route `a`".into(), field: Some("paths[0]".into()), message: "no".into() };
    let bucket = BucketMembers { kind: "routes".into(), number: 5, members: vec![(Uuid::max(), 9)] };
    vec![
        Message::Hello(hello),
        Message::Welcome(Welcome { identity: identity(), ..Welcome::default() }),
        Message::Compare(Compare { kinds: [("routes".to_owned(), identity().digest)].into() }),
        Message::Buckets(vec![("routes".into(), (0..BUCKETS as u64).collect())]),
        Message::Wanted(Wanted { buckets: [("routes".to_owned(), vec![0, 1023])].into() }),
        Message::Members(Members { buckets: vec![bucket] }),
        Message::Transfer(header, Bytes::from_static(b"chunk")),
        Message::Chunk(Bytes::from_static(b"another")),
        Message::Credit(8),
        Message::Applied(Applied { identity: identity(), cache_error: Some("no room".into()) }),
        Message::Refused(Refused { identity: identity(), errors: vec![error] }),
        Message::Diverged,
        Message::Goodbye(Goodbye {
            reason: "draining".into(),
            retry_after: Some(3),
            drain: true,
            spread: 20,
        }),
        Message::Analytics(Bytes::from_static(b"frame")),
        Message::AnalyticsTaken(AnalyticsTaken { refused: Some("early".into()), later: true }),
        Message::Unknown(99),
    ]
}

#[test]
fn each_message_is_read_as_it_was_written() {
    for message in every_message() {
        assert_eq!(Message::decode(message.encode()), Ok(message));
    }
}

#[test]
fn a_message_that_is_cut_is_an_error_or_another_message_and_never_a_panic() {
    for message in every_message() {
        let bytes = message.encode();
        (0..bytes.len()).for_each(|length| drop(Message::decode(bytes.slice(..length))));
    }
    assert_eq!(Message::decode(Bytes::new()), Err(MessageError::Truncated));
}

#[test]
fn fields_of_the_next_release_are_ignored() {
    let header = br#"{"chunks":3,"colour":"blue"}"#;
    let bytes = [&[9, 0, 0, 0, header.len() as u8], &header[..]].concat();
    assert_eq!(Message::decode(bytes.into()), Ok(Message::Credit(3)));
}

#[test]
fn a_message_that_grows_beyond_its_bound_is_refused() {
    for size in [MAX_INFLATED_LEN + 1, 2 * MAX_INFLATED_LEN] {
        let mut compress = Compress::new(Compression::best(), false);
        let mut bomb = Vec::with_capacity(1 << 20);
        bomb.push(0x80 | 1);
        compress.compress_vec(&vec![b' '; size], &mut bomb, FlushCompress::Finish).unwrap();
        assert!(bomb.len() < 20_000);
        assert_eq!(Message::decode(bomb.into()), Err(MessageError::Deflate), "{size}");
    }
}

/// Every built-in kind, with fields set and unset.
fn entities() -> Vec<Entity> {
    let upstream = Uuid::from_u128(1).to_string();
    vec![
        service(1, "orders"),
        entity(
            EntityKind::Services,
            2,
            &json!({ "host": "h", "protocol": "https", "tls_verify": false, "tags": ["a"] }),
        ),
        route(3, "orders", 1),
        entity(EntityKind::Routes, 4, &json!({ "paths": ["/"], "protocols": ["grpc"] })),
        consumer(5, "anna"),
        entity(EntityKind::Upstreams, 6, &json!({ "name": "u", "hash_on": "header", "hash_on_header": "x" })),
        entity(EntityKind::Targets, 7, &json!({ "target": "10.0.0.1:80", "upstream": { "id": upstream } })),
        entity(EntityKind::ConsumerGroups, 8, &json!({ "name": "gold" })),
        entity(EntityKind::KeySets, 9, &json!({ "name": "set" })),
        entity(
            EntityKind::Vaults,
            10,
            &json!({ "prefix": "env-1", "name": "env", "config": { "prefix": "A_" } }),
        ),
    ]
}

#[test]
fn an_entity_is_read_as_it_was_written_and_so_is_its_body() {
    for entity in entities() {
        let body = body_of(&entity);
        let record = Record { kind: entity.kind().as_str(), id: entity.id(), body: Some(&body) };
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        let (parsed, length) = Record::parse(&bytes).unwrap().unwrap();
        assert_eq!((parsed, length), (record, bytes.len()));
        assert_eq!(parsed.read(&[]), Ok(Some(Change::put(entity.clone()))));
        let reread = parsed.read(&[]).unwrap().unwrap().entity.unwrap();
        assert_eq!(body_of(&reread), body);
        assert!((0..bytes.len()).all(|length| Record::parse(&bytes[..length]) == Ok(None)));
    }
}

#[test]
fn what_this_node_cannot_read_is_refused_with_entity_and_field() {
    let read = |kind: &'static str, body: &'static [u8]| {
        let record = Record { kind, id: Uuid::nil(), body: Some(body) };
        record.read(&[]).unwrap_err().iter().map(Refusal::to_string).collect::<Vec<_>>().join("; ")
    };
    let nil = Uuid::nil();
    assert_eq!(
        read("routes", br#"{"name":"orders","paths":["no-slash"]}"#).split(": ").take(2).collect::<Vec<_>>(),
        [format!("route `orders` (id {nil})").as_str(), "paths[0]"],
    );
    assert!(
        read("toasters", b"{}").starts_with(&format!("toaster `{nil}`: this version knows no such kind"))
    );
    assert!(read("routes", b"{\"secret").ends_with("it is not JSON"));
}

fn transfer(entities: &[Entity]) -> (TransferHeader, Vec<Bytes>) {
    let mut encoder = Encoder::new(entities.len());
    for entity in entities {
        let body = body_of(entity);
        encoder.push(&Record { kind: entity.kind().as_str(), id: entity.id(), body: Some(&body) });
    }
    let mut chunks = Vec::new();
    let mut header = None;
    for message in encoder.finish(None, identity()).messages {
        match Message::decode(message).unwrap() {
            Message::Transfer(first, chunk) => (header, chunks) = (Some(first), vec![chunk]),
            Message::Chunk(chunk) => chunks.push(chunk),
            other => panic!("{other:?}"),
        }
    }
    (header.unwrap(), chunks)
}

fn receive(header: TransferHeader, chunks: &[Bytes]) -> Result<Update, TransferError> {
    let mut receiver = Receiver::new(header, Arc::new([]));
    chunks.iter().try_for_each(|chunk| receiver.chunk(chunk))?;
    receiver.finish().map(|received| received.update)
}

#[test]
fn a_transfer_of_many_chunks_is_read_as_it_was_written() {
    let mut entities: Vec<_> = (0..30_000).map(|id| consumer(id, &format!("{:032x}", id * 7919))).collect();
    // Longer than several chunks.
    entities.push(consumer(30_000, &"long ".repeat(100_000)));
    let (header, chunks) = transfer(&entities);
    assert!(header.deflate && chunks.len() > 2);
    assert_eq!(receive(header.clone(), &chunks), Ok(Update::Whole(super::document(entities).into())));
    assert_eq!(receive(header, &chunks[1..]), Err(TransferError::Damaged("it cannot be decompressed")));
}

#[test]
fn a_transfer_is_whole_whatever_is_left_for_its_end() {
    // Compresses well, so that the end is as long as it is before it is compressed.
    let entities: Vec<_> = (0..1_000).map(|id| consumer(id, &format!("consumer-{id}"))).collect();
    for count in (100..=entities.len()).step_by(25) {
        let (header, chunks) = transfer(&entities[..count]);
        let document = super::document(entities[..count].iter().cloned());
        assert_eq!(receive(header, &chunks), Ok(Update::Whole(document.into())), "{count} consumers");
    }
}

#[test]
fn a_transfer_too_short_to_compress_is_sent_as_it_is() {
    let (header, chunks) = transfer(&[]);
    assert!(!header.deflate);
    assert_eq!(receive(header, &chunks), Ok(Update::Whole(super::document([]).into())));
}

proptest! {
    #[test]
    fn a_damaged_transfer_is_an_error_or_refused_by_its_digest(at in 0..1_000_usize, flip in 1..=255_u8) {
        let (header, chunks) = transfer(&entities());
        let mut chunk = chunks[0].to_vec();
        let at = at % chunk.len();
        chunk[at] ^= flip;
        let mut receiver = Receiver::new(header, Arc::new([]));
        if receiver.chunk(&chunk).is_ok() && let Ok(received) = receiver.finish() {
            prop_assert!(!received.staged.fits(&Default::default()));
        }
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(Message::decode(bytes.into()));
    }
}

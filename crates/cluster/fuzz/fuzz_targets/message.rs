//! Both sides take any messages in any order without panicking, and what they read they write again.
#![no_main]
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use serde_json::json;
use std::sync::Arc;
use weir_cluster::sync::message::{Hello, Message, Welcome};
use weir_cluster::sync::{Cohort, ControlSession, Follower, Step};
use weir_model::entity::{Entity, EntityKind};
use weir_model::{Document, ReadOptions, Uuid};

fn cohort() -> Cohort {
    let mut document = Document::default();
    for id in 0..3 {
        let written = json!({ "username": format!("consumer-{id}") });
        let reading = ReadOptions { plugins: &[], references: &(), hash_passwords: false };
        let id = Uuid::from_u128(id);
        let entity = Entity::read(EntityKind::Consumers, &written, &[("id", id)], reading);
        document.push(entity.expect("a consumer needs a name alone"));
    }
    Cohort::new(Arc::new([]), 1, 1, Arc::new(document))
}

/// The messages in the input: each has its length before it.
fn messages(mut data: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        messages.extend(Message::decode(Bytes::copy_from_slice(&rest[..length])));
        data = &rest[length..];
    }
    messages
}

fuzz_target!(|data: &[u8]| {
    let messages = messages(data);
    for message in &messages {
        assert_eq!(Message::decode(message.encode()).as_ref(), Ok(message));
    }
    let mut follower = Follower::new(Arc::new([]));
    for message in messages.clone() {
        match follower.receive(message) {
            Ok(Step::Apply(received, _)) => drop(follower.applied(received.staged, None)),
            Ok(_) => {}
            Err(_) => drop(follower.hello(Hello::default())),
        }
    }
    let mut cohort = cohort();
    let hello = Hello { credit: 2, ..Hello::default() };
    let (mut session, _) = ControlSession::new(&hello, &cohort, Welcome::default());
    for message in messages {
        session.poll(&mut cohort);
        if session.receive(message, &cohort).is_err() {
            return;
        }
    }
});

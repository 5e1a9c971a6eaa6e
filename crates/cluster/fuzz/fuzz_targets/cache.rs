//! A cache that is damaged anywhere opens with something that was committed, or with nothing.
#![no_main]
use libfuzzer_sys::fuzz_target;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use weir_cluster::cache::Cache;
use weir_cluster::sync::identity::Digest;
use weir_cluster::sync::message::Message;
use weir_cluster::sync::{Cohort, Next, digests};
use weir_model::entity::{Entity, EntityKind};
use weir_model::{Change, ReadOptions, Uuid};

/// A generation with changes, and the digest of each state of it.
struct Original {
    bytes: Vec<u8>,
    states: BTreeSet<Digest>,
}

static ORIGINAL: LazyLock<Original> = LazyLock::new(original);

fn consumer(id: u128) -> Entity {
    let reading = ReadOptions { plugins: &[], references: &(), hash_passwords: false };
    let written = json!({ "username": format!("consumer-{id}") });
    let id = Uuid::from_u128(id);
    Entity::read(EntityKind::Consumers, &written, &[("id", id)], reading).expect("a name is enough")
}

fn original() -> Original {
    let folder = tempfile::tempdir().expect("a folder");
    let mut cache = Cache::open(folder.path(), Arc::new([])).expect("a new cache").cache;
    let mut cohort = Cohort::new(Arc::new([]), 1, 1, Arc::default());
    let mut states = BTreeSet::new();
    for id in 0..5_u128 {
        let held = cohort.identity();
        let changes = [Change::put(consumer(id))];
        cohort.apply(held.sequence + 1, &changes, digests(&changes));
        let Next::Draft(draft) = cohort.next(held.digest) else { unreachable!("it has changed") };
        let transfer = draft.encode();
        match Message::decode(transfer.messages[0].clone()) {
            Ok(Message::Transfer(header, chunk)) => {
                cache.begin(&header);
                cache.chunk(&chunk);
            }
            other => unreachable!("{other:?}"),
        }
        cache.commit().expect("there is room");
        states.insert(cohort.identity().digest);
    }
    Original { bytes: fs::read(path(folder.path())).expect("the generation"), states }
}

fn path(folder: &Path) -> std::path::PathBuf {
    folder.join("generation-1.cache")
}

fuzz_target!(|input: (u16, Vec<(u16, u8)>, &[u8])| {
    let (length, flips, tail) = input;
    let mut bytes = ORIGINAL.bytes.clone();
    bytes.truncate(usize::from(length));
    let end = bytes.len().max(1);
    for (at, flip) in flips {
        bytes.get_mut(usize::from(at) % end).into_iter().for_each(|byte| *byte ^= flip);
    }
    bytes.extend_from_slice(tail);
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(path(folder.path()), bytes).expect("there is room");
    let opened =
        Cache::open(folder.path(), Arc::new([])).expect("a cache never fails to open for its content");
    match opened.loaded {
        Some(loaded) => assert!(ORIGINAL.states.contains(&loaded.identity.digest)),
        None => assert!(!opened.warnings.is_empty()),
    }
});

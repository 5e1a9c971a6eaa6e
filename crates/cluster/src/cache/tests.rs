//! What a start finds after whatever happened to the files.
use super::block::BlockWriter;
use super::{Cache, CacheError, CacheWarning, Opened};
use crate::sync::message::Message;
use crate::sync::tests::{consumer, document, route, service};
use crate::sync::transfer::Transfer;
use crate::sync::{Cohort, Next, digests};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_model::entity::EntityKind;
use weir_model::{Change, Document, Uuid};

fn open(folder: &Path) -> Opened {
    Cache::open(folder, Arc::new([])).unwrap()
}

fn cohort() -> Cohort {
    let document = document([service(1, "orders"), route(2, "orders", 1), consumer(3, "anna")]);
    Cohort::new(Arc::new([]), 1, 1, Arc::new(document))
}

/// Commits changes, and returns the transfer of them.
fn commit(cohort: &mut Cohort, changes: &[Change]) -> Transfer {
    let held = cohort.identity();
    cohort.apply(held.sequence + 1, changes, digests(changes));
    encoded(cohort.next(held.digest))
}

fn encoded(next: Next) -> Transfer {
    match next {
        Next::Draft(draft) => draft.encode(),
        other => panic!("{other:?}"),
    }
}

/// Writes a transfer without committing it.
fn write(cache: &mut Cache, transfer: &Transfer) {
    for message in &transfer.messages {
        match Message::decode(message.clone()).unwrap() {
            Message::Transfer(header, chunk) => {
                cache.begin(&header);
                cache.chunk(&chunk);
            }
            Message::Chunk(chunk) => cache.chunk(&chunk),
            other => panic!("{other:?}"),
        }
    }
}

fn record(cache: &mut Cache, transfer: &Transfer) {
    write(cache, transfer);
    cache.commit().unwrap();
}

fn assert_holds(folder: &Path, cohort: &Cohort) {
    let opened = open(folder);
    assert_eq!(opened.warnings, []);
    let loaded = opened.loaded.unwrap();
    assert_eq!(loaded.document, **cohort.document());
    assert_eq!(loaded.identity, cohort.identity());
    assert_eq!(&loaded.inventory, cohort.inventory());
}

/// Two generations: everything three times, each but the first with two changes behind it. Returns what the newest holds at
/// which length, and what the one before holds.
fn two_generations(folder: &Path) -> (PathBuf, Vec<(u64, Document)>, Document) {
    let (mut cohort, mut cache) = (cohort(), open(folder).cache);
    record(&mut cache, &encoded(cohort.whole()));
    let rename = |version: u128| Change::put(service(1, &format!("version-{version}")));
    record(&mut cache, &commit(&mut cohort, &[rename(1)]));
    let previous = Document::clone(cohort.document());
    let newest = folder.join("generation-2.cache");
    let mut states = Vec::new();
    let length = || fs::metadata(&newest).unwrap().len();
    commit(&mut cohort, &[rename(2), Change::delete(EntityKind::Consumers, Uuid::from_u128(3))]);
    record(&mut cache, &encoded(cohort.whole()));
    states.push((length(), Document::clone(cohort.document())));
    for version in 3..5 {
        record(&mut cache, &commit(&mut cohort, &[rename(version), Change::put(consumer(version, "new"))]));
        states.push((length(), Document::clone(cohort.document())));
    }
    (newest, states, previous)
}

#[test]
fn a_start_finds_what_was_committed_last() {
    let folder = tempfile::tempdir().unwrap();
    let mut cohort = cohort();
    let Opened { mut cache, loaded, warnings } = open(folder.path());
    assert!(loaded.is_none() && warnings.is_empty());
    record(&mut cache, &encoded(cohort.whole()));
    record(&mut cache, &commit(&mut cohort, &[Change::delete(EntityKind::Routes, Uuid::from_u128(2))]));
    drop(cache);
    assert_holds(folder.path(), &cohort);

    let mut cache = open(folder.path()).cache;
    record(&mut cache, &commit(&mut cohort, &[Change::put(service(9, "nine"))]));
    write(&mut cache, &commit(&mut cohort, &[Change::put(service(9, "refused"))]));
    cache.abort();
    drop(cache);
    let loaded = open(folder.path()).loaded.unwrap();
    let name = loaded.document.find(EntityKind::Services, Uuid::from_u128(9)).unwrap();
    assert_eq!(name.name(), Some("nine"));
}

#[test]
fn only_the_owner_may_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let cache_folder = folder.path().join("a/b");
    record(&mut open(&cache_folder).cache, &encoded(cohort().whole()));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = cache_folder.join("generation-1.cache");
    assert_eq!((mode(&cache_folder), mode(&file)), (0o700, 0o600));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    drop(open(&cache_folder));
    assert_eq!(mode(&file), 0o600);
}

#[test]
fn the_generation_before_is_kept_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (cohort, mut cache) = (cohort(), open(folder.path()).cache);
    for _ in 0..4 {
        record(&mut cache, &encoded(cohort.whole()));
    }
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["generation-3.cache", "generation-4.cache", "lock"]);
}

/// Opens a copy of the cache in which the newest generation is `bytes`.
fn open_damaged(original: &Path, copy: &Path, bytes: &[u8]) -> Opened {
    fs::copy(original.join("generation-1.cache"), copy.join("generation-1.cache")).unwrap();
    fs::write(copy.join("generation-2.cache"), bytes).unwrap();
    open(copy)
}

/// Damages the newest generation so many times, in turn at each length, then anywhere.
fn damage(original: &Path, rounds: std::ops::Range<usize>, states: &[(u64, Document)], previous: &Document) {
    let copy = tempfile::tempdir().unwrap();
    let bytes = fs::read(original.join("generation-2.cache")).unwrap();
    let mut random = fastrand::Rng::with_seed(rounds.start as u64);
    for round in rounds {
        let is_cut = round < bytes.len();
        let at = if is_cut { round } else { random.usize(..bytes.len()) };
        let mut damaged = bytes.clone();
        match is_cut {
            true => damaged.truncate(at),
            false => damaged[at] ^= random.u8(1..),
        }
        let opened = open_damaged(original, copy.path(), &damaged);
        // A block that begins before the damage and ends behind it does not count.
        let intact = states.iter().rfind(|(length, _)| *length <= at as u64);
        let expected = intact.map_or(previous, |(_, document)| document);
        assert_eq!(opened.loaded.unwrap().document, *expected, "round {round}, at {at}");
        let is_between_changes = is_cut && states.iter().any(|(length, _)| *length == at as u64);
        assert_eq!(opened.warnings.is_empty(), is_between_changes, "round {round}, at {at}");
    }
}

#[test]
fn ten_thousand_cuts_and_flips_end_with_a_generation_before_and_a_message() {
    const ROUNDS: usize = 10_000;
    const THREADS: usize = 4;
    let original = tempfile::tempdir().unwrap();
    let (newest, states, previous) = two_generations(original.path());
    assert!(fs::metadata(newest).unwrap().len() < ROUNDS as u64, "there are rounds for flips as well");
    let share = ROUNDS / THREADS;
    std::thread::scope(|scope| {
        for first in (0..ROUNDS).step_by(share) {
            let (original, states, previous) = (original.path(), &states, &previous);
            scope.spawn(move || damage(original, first..first + share, states, previous));
        }
    });
}

#[test]
fn a_change_can_follow_what_was_torn() {
    let folder = tempfile::tempdir().unwrap();
    let mut cohort = cohort();
    let mut cache = open(folder.path()).cache;
    record(&mut cache, &encoded(cohort.whole()));
    write(&mut cache, &commit(&mut cohort, &[Change::put(service(9, "nine"))]));
    drop(cache);
    let path = folder.path().join("generation-1.cache");
    let mut opened = open(folder.path());
    assert_eq!(opened.warnings, [CacheWarning::Torn { path, sequence: 1 }]);
    record(&mut opened.cache, &encoded(cohort.whole()));
    drop(opened);
    assert_holds(folder.path(), &cohort);
}

#[test]
fn what_is_of_something_else_is_set_aside() {
    let later = [&b"weirsync"[..], &2_u16.to_be_bytes(), b"unknown"].concat();
    for (content, why) in [
        (&b"#!/bin/sh"[..], "it is not a cache of weir"),
        (&[], "it is not a cache of weir"),
        (&later, "a later version of weir wrote it (format 2)"),
        (&later[..9], "it is not a cache of weir"),
        (b"weirsync\0\x01", "it is damaged, and holds nothing that is complete"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("generation-7.cache");
        fs::write(&path, content).unwrap();
        let opened = open(folder.path());
        assert!(opened.loaded.is_none());
        let renamed = folder.path().join("set-aside");
        assert_eq!(fs::read(&renamed).unwrap(), content);
        assert_eq!(opened.warnings, [CacheWarning::SetAside { path, renamed, why: why.to_owned() }]);
        let (cohort, mut cache) = (cohort(), opened.cache);
        record(&mut cache, &encoded(cohort.whole()));
        drop(cache);
        assert_holds(folder.path(), &cohort);
    }
}

#[test]
fn blocks_of_the_next_release_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let mut cohort = cohort();
    record(&mut open(folder.path()).cache, &encoded(cohort.whole()));
    let path = folder.path().join("generation-1.cache");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let end = file.metadata().unwrap().len();
    let mut writer = BlockWriter::continuing(path, file, end).unwrap();
    writer.write(99, b"of the next release").unwrap();
    writer.sync().unwrap();
    let mut opened = open(folder.path());
    assert_eq!(opened.loaded.as_ref().unwrap().document, **cohort.document());
    record(&mut opened.cache, &commit(&mut cohort, &[Change::put(service(9, "nine"))]));
    drop(opened);
    assert_holds(folder.path(), &cohort);
}

#[test]
fn a_second_process_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    let refused = Cache::open(folder.path(), Arc::new([])).unwrap_err();
    assert!(matches!(&refused, CacheError::Locked(path) if path == folder.path()), "{refused}");
    drop(first);
    drop(open(folder.path()));
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (mut cohort, mut cache) = (cohort(), open(folder.path()).cache);
    record(&mut cache, &encoded(cohort.whole()));
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let path = folder.path().join("generation-1.cache");
    cache.current.as_mut().unwrap().writer = BlockWriter::create(path.clone(), full).unwrap();
    let before = Document::clone(cohort.document());
    let transfer = commit(&mut cohort, &[Change::put(service(9, "nine"))]);
    write(&mut cache, &transfer);
    let error = cache.commit().unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot write {}: No space left", path.display())), "{error}");
    assert!(error.ends_with("make room on this file system"), "{error}");
    drop(cache);
    let mut opened = open(folder.path());
    assert_eq!(opened.loaded.unwrap().document, before);
    record(&mut opened.cache, &transfer);
    drop(opened.cache);
    assert_holds(folder.path(), &cohort);
}

#[test]
fn after_a_missed_change_everything_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let (mut cohort, mut cache) = (cohort(), open(folder.path()).cache);
    record(&mut cache, &encoded(cohort.whole()));
    commit(&mut cohort, &[Change::put(service(9, "missed"))]);
    write(&mut cache, &commit(&mut cohort, &[Change::put(service(9, "next"))]));
    assert!(matches!(cache.commit(), Err(CacheError::Behind(_))));
    cache.store(cohort.identity(), cohort.document()).unwrap();
    record(&mut cache, &commit(&mut cohort, &[Change::put(service(9, "last"))]));
    drop(cache);
    assert_holds(folder.path(), &cohort);
}

#[test]
fn a_compaction_keeps_what_is_committed_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let (mut cohort, mut cache) = (cohort(), open(folder.path()).cache);
    record(&mut cache, &encoded(cohort.whole()));
    assert!(cache.compaction().is_none(), "nothing to gain");
    let mut random = fastrand::Rng::with_seed(3);
    let compaction = loop {
        let name: String = (0..60_000).map(|_| random.alphanumeric()).collect();
        let new = Change::put(consumer(random.u128(100..110), &name));
        record(&mut cache, &commit(&mut cohort, &[new]));
        if let Some(compaction) = cache.compaction() {
            break compaction;
        }
    };
    record(&mut cache, &commit(&mut cohort, &[Change::delete(EntityKind::Routes, Uuid::from_u128(2))]));
    let length =
        |number| fs::metadata(folder.path().join(format!("generation-{number}.cache"))).unwrap().len();
    cache.finish_compaction(compaction.run().unwrap()).unwrap();
    assert!(length(2) < length(1), "{} {}", length(2), length(1));
    record(&mut cache, &commit(&mut cohort, &[Change::put(service(9, "nine"))]));
    drop(cache);
    assert_holds(folder.path(), &cohort);
}

#[test]
fn a_folder_that_cannot_be_used_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    drop(File::create(&file).unwrap());
    let error = Cache::open(&file.join("cache"), Arc::new([])).unwrap_err().to_string();
    assert!(error.contains(&file.display().to_string()), "{error}");
}

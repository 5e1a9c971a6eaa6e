use super::*;
use crate::aggregate::Aggregate;
use crate::entities::{Entity, Kind};
use crate::slot::SlotWriter;
use crate::testing::{count, record};
use proptest::prelude::*;
use std::path::Path;
use tempfile::TempDir;

const TENS: usize = 1;
const BUDGET: u64 = 64 << 20;

fn slot(entities: &Entities, start: u64, route: &str) -> Slot {
    let route = entities.intern(Kind::Route, route);
    let mut aggregate = Aggregate::default();
    count(&mut aggregate, &record(route));
    let mut writer = SlotWriter::default();
    writer.push(Entity::NODE, &aggregate);
    writer.push(Entity::new(Kind::Route, route), &aggregate);
    writer.finish(start, 7)
}

fn open(folder: &Path, entities: &Entities) -> Disk {
    Disk::open(folder.join("analytics"), BUDGET, entities).unwrap()
}

/// The starts and the names of the routes that a disk has.
fn content(folder: &Path) -> Vec<(u64, String)> {
    let entities = Entities::default();
    entities.intern(Kind::Route, "shifts the numbers");
    let slots = open(folder, &entities).newest(TENS, 0, usize::MAX, &entities).slots;
    let routes =
        slots.iter().flat_map(|slot| slot.of_kind(Kind::Route).map(|(route, _)| (slot.start, route)));
    let mut content: Vec<_> =
        routes.map(|(start, route)| (start, entities.name(route).unwrap().to_string())).collect();
    content.sort();
    content
}

fn segment(folder: &Path) -> PathBuf {
    folder.join("analytics/10s-1.weirstat")
}

/// A folder with five slots.
fn written() -> TempDir {
    let folder = TempDir::new().unwrap();
    let entities = Entities::default();
    let mut disk = open(folder.path(), &entities);
    for n in 0..5 {
        disk.append(TENS, &slot(&entities, n * 10, &format!("route-{}", n % 2)), &entities);
    }
    assert!(disk.take_error().is_none());
    folder
}

#[test]
fn another_process_reads_and_continues() {
    let folder = written();
    let entities = Entities::default();
    let mut disk = open(folder.path(), &entities);
    disk.append(TENS, &slot(&entities, 50, "route-9"), &entities);
    let expected = [(0, "0"), (10, "1"), (20, "0"), (30, "1"), (40, "0"), (50, "9")];
    assert_eq!(content(folder.path()), expected.map(|(start, route)| (start, format!("route-{route}"))));
    assert_eq!(fs::read_dir(folder.path().join("analytics")).unwrap().count(), 1, "one segment");
}

#[test]
fn a_torn_end_is_cut_off() {
    let folder = written();
    let whole = fs::read(segment(folder.path())).unwrap();
    fs::write(segment(folder.path()), &whole[..whole.len() - 3]).unwrap();
    let entities = Entities::default();
    open(folder.path(), &entities).append(TENS, &slot(&entities, 50, "route-9"), &entities);
    let starts: Vec<_> = content(folder.path()).into_iter().map(|(start, _)| start).collect();
    assert_eq!(starts, [0, 10, 20, 30, 50]);
}

#[test]
fn a_segment_of_a_later_release_is_left_alone() {
    let folder = written();
    let mut bytes = fs::read(segment(folder.path())).unwrap();
    bytes[9] = 99;
    fs::write(segment(folder.path()), &bytes).unwrap();
    let entities = Entities::default();
    open(folder.path(), &entities).append(TENS, &slot(&entities, 50, "route-9"), &entities);
    assert_eq!(content(folder.path()).len(), 1);
    assert_eq!(fs::read(segment(folder.path())).unwrap(), bytes);
}

#[test]
fn the_disk_is_bounded() {
    let folder = TempDir::new().unwrap();
    let entities = Entities::default();
    let mut disk = Disk::open(folder.path().to_owned(), 4 << 20, &entities).unwrap();
    for start in 0..40_000 {
        disk.append(TENS, &slot(&entities, start * 10, "route"), &entities);
    }
    let share = (4 << 20) * SPECS[TENS].disk_share / 100;
    assert!((share / 2..=share).contains(&disk.bytes()), "{} of {share}", disk.bytes());
    let files = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    assert_eq!(files.sum::<u64>(), disk.bytes());
    assert!(disk.oldest()[TENS] > Some(0));
}

#[test]
fn a_disk_that_fails_costs_history_alone() {
    let folder = TempDir::new().unwrap();
    let entities = Entities::default();
    let mut disk = open(folder.path(), &entities);
    fs::remove_dir(folder.path().join("analytics")).unwrap();
    disk.append(TENS, &slot(&entities, 0, "route"), &entities);
    assert_eq!(disk.lost_slots(), 1);
    let message = disk.take_error().unwrap().to_string();
    assert!(message.contains("10s-1.weirstat") && message.contains("analytics_disk=0"), "{message}");
    fs::create_dir(folder.path().join("analytics")).unwrap();
    disk.append(TENS, &slot(&entities, 10, "route"), &entities);
    assert_eq!(content(folder.path()).len(), 1, "the next slot is tried again");
}

#[test]
fn a_file_in_the_place_of_the_folder_is_an_error() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(Disk::open(file, BUDGET, &Entities::default()).is_err());
}

#[test]
fn messages_name_the_setting() {
    for (kind, hint) in [
        (std::io::ErrorKind::StorageFull, "store less with analytics_disk"),
        (std::io::ErrorKind::ReadOnlyFilesystem, "analytics_disk=0"),
    ] {
        let error = DiskError::new(Path::new("/var/x"), "writing", kind.into());
        assert!(error.to_string().contains(hint) && error.to_string().contains("writing /var/x"), "{error}");
        assert_eq!(error.kind(), kind);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn damage_never_panics_and_what_is_read_was_written(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u8), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let folder = written();
        let before = content(folder.path());
        let mut bytes = fs::read(segment(folder.path())).unwrap();
        bytes.truncate(cut.index(bytes.len()) + 1);
        for (place, bit) in flips {
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
        }
        fs::write(segment(folder.path()), &bytes).unwrap();
        let after = content(folder.path());
        prop_assert!(after.iter().all(|slot| before.contains(slot)));
    }
}

#[test]
fn what_was_exchanged_is_read_also_where_there_is_no_memory_for_slots() {
    let folder = TempDir::new().unwrap();
    let entities = Entities::default();
    let mut disk = Disk::open(folder.path().to_owned(), 16 << 20, &entities).unwrap();
    let node = Entity::new(Kind::Node, entities.intern(Kind::Node, "a"));
    let id = FrameId { start: 0, part: 3 };
    disk.append_taken(&[slot(&entities, 0, "route")], &[TakenFrame { node, id, checksum: 17 }], &entities);
    disk.note_handed(id);
    let mut start = 0;
    while fs::read_dir(folder.path()).unwrap().count() < 3 {
        start += 10;
        disk.append(TENS, &slot(&entities, start, "route"), &entities);
    }
    let entities = Entities::default();
    let disk = Disk::open(folder.path().to_owned(), 16 << 20, &entities).unwrap();
    let content = disk.newest(TENS, 0, 500, &entities);
    assert_eq!(content.handed, [id]);
    let [taken] = content.taken[..] else { panic!("{:?}", content.taken) };
    assert_eq!((taken.id, taken.checksum, entities.name(taken.node).as_deref()), (id, 17, Some("a")));
    assert_eq!(
        (content.older[0], content.older.len() + content.slots.len()),
        ((0, 1), start as usize / 10 + 1)
    );
    assert_eq!(content.slots.last().map(|slot| slot.start), Some(start));
}

#[test]
fn what_is_known_is_written_as_a_whole() {
    let folder = written();
    let entities = Entities::default();
    let mut disk = open(folder.path(), &entities);
    assert_eq!(disk.known(), Known::default());
    let mut known = Known::default();
    known.add(10, 20);
    disk.note_known(&known);
    known.add(30, 40);
    disk.note_known(&known);
    assert!(disk.take_error().is_none());
    assert_eq!(open(folder.path(), &entities).known(), known);
    let path = folder.path().join("analytics").join(KNOWN);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(disk.known(), Known::default(), "it is damaged");
}

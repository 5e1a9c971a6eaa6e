//! The segments of one tier.
use super::block::{self, Content};
use super::error::DiskError;
use crate::dictionary::Named;
use crate::entities::{Entities, Entity};
use crate::frame::{FrameId, TakenFrame};
use crate::slot::Slot;
use crate::tiers::Spec;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::slice;

/// A tier has about so many segments, so that deleting one loses little.
const SEGMENTS: u64 = 8;
/// No segment is smaller when the next one begins.
const MIN_SEGMENT_LEN: u64 = 64 << 10;
const SUFFIX: &str = "weirstat";

/// A file and the time it covers.
#[derive(Debug)]
struct Segment {
    number: u64,
    bytes: u64,
    /// The starts of the first and the last slot.
    covers: Option<(u64, u64)>,
}

impl Segment {
    fn cover(&mut self, start: u64) {
        let (first, last) = self.covers.unwrap_or((start, start));
        self.covers = Some((first.min(start), last.max(start)));
    }
}

#[derive(Debug)]
pub(super) struct Segments {
    folder: PathBuf,
    spec: &'static Spec,
    limit: u64,
    /// By number, so the oldest is first.
    segments: Vec<Segment>,
    /// The last segment, if it is open for writing.
    file: Option<File>,
    named: Named,
}

impl Segments {
    /// Finds the segments of a tier. The last one is cut after its last good block and continued.
    pub(super) fn open(
        folder: PathBuf,
        spec: &'static Spec,
        budget: u64,
        entities: &Entities,
    ) -> Result<Segments, DiskError> {
        let limit = budget * spec.disk_share / 100;
        let mut segments =
            Segments { folder, spec, limit, segments: Vec::new(), file: None, named: Named::default() };
        let listing = fs::read_dir(&segments.folder);
        let listing = listing.map_err(|error| DiskError::new(&segments.folder, "listing", error))?;
        let mut numbers: Vec<u64> =
            listing.flatten().filter_map(|file| segments.number(&file.path())).collect();
        numbers.sort_unstable();
        for number in numbers {
            segments.find(number, entities);
        }
        segments.trim();
        Ok(segments)
    }

    /// The number of a segment of this tier: `1m-7.weirstat`.
    fn number(&self, path: &Path) -> Option<u64> {
        let stem = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?.strip_suffix('.')?;
        stem.strip_prefix(self.spec.name)?.strip_prefix('-')?.parse().ok()
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{}-{number}.{SUFFIX}", self.spec.name))
    }

    /// Notes a segment that exists. One that cannot be read stays until it is the oldest.
    fn find(&mut self, number: u64, entities: &Entities) {
        let path = self.path(number);
        let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let mut segment = Segment { number, bytes, covers: None };
        self.file = None;
        if let Some(content) = self.read(number, entities) {
            content.slots.iter().for_each(|slot| segment.cover(slot.start));
            self.file = continued(&path, content.good_len).ok();
            segment.bytes = content.good_len + block::reset().len() as u64;
        }
        self.segments.push(segment);
    }

    fn read(&self, number: u64, entities: &Entities) -> Option<Content> {
        block::read(&fs::read(self.path(number)).ok()?, entities).ok()
    }

    /// Appends a slot. After an error the segment is left alone, because its end may be torn.
    pub(super) fn append(&mut self, slot: &Slot, entities: &Entities) -> Result<(), DiskError> {
        self.write(slice::from_ref(slot), |named| block::slot(slot, &named.missing(slot, entities)))
    }

    /// Notes that the control plane has this frame.
    pub(super) fn note_handed(&mut self, id: FrameId) -> Result<(), DiskError> {
        self.write(&[], |_| block::handed(id))
    }

    /// Appends slots together with the frames that they are made of, in one write.
    pub(super) fn append_taken(
        &mut self,
        slots: &[Slot],
        frames: &[TakenFrame],
        entities: &Entities,
    ) -> Result<(), DiskError> {
        self.write(slots, |named| {
            let blocks = slots.iter().map(|slot| block::slot(slot, &named.missing(slot, entities)));
            let mut bytes: Vec<u8> = blocks.flatten().collect();
            let mut names = Vec::new();
            frames.iter().for_each(|frame| named.name(frame.node, entities, &mut names));
            bytes.extend(block::taken(frames, &names));
            bytes
        })
    }

    /// Writes blocks that have these slots.
    fn write(&mut self, slots: &[Slot], blocks: impl FnOnce(&mut Named) -> Vec<u8>) -> Result<(), DiskError> {
        if self.limit == 0 {
            return Ok(());
        }
        let written = self.try_write(slots, blocks);
        if written.is_err() {
            self.file = None;
        }
        self.trim();
        written
    }

    fn try_write(
        &mut self,
        slots: &[Slot],
        blocks: impl FnOnce(&mut Named) -> Vec<u8>,
    ) -> Result<(), DiskError> {
        let is_long = |segment: &Segment| segment.bytes >= (self.limit / SEGMENTS).max(MIN_SEGMENT_LEN);
        if self.file.is_none() || self.segments.last().is_none_or(is_long) {
            self.begin()?;
        }
        let bytes = blocks(&mut self.named);
        let (Some(file), Some(segment)) = (&mut self.file, self.segments.last_mut()) else { return Ok(()) };
        let written = file.write_all(&bytes);
        segment.bytes += bytes.len() as u64;
        slots.iter().for_each(|slot| segment.cover(slot.start));
        let number = segment.number;
        written.map_err(|error| DiskError::new(&self.path(number), "writing", error))
    }

    fn begin(&mut self) -> Result<(), DiskError> {
        let number = self.segments.last().map_or(1, |segment| segment.number + 1);
        let path = self.path(number);
        let failed = |error| DiskError::new(&path, "creating", error);
        let mut file = File::create(&path).map_err(failed)?;
        let header = block::header();
        file.write_all(&header).map_err(failed)?;
        self.segments.push(Segment { number, bytes: header.len() as u64, covers: None });
        self.file = Some(file);
        self.named.clear();
        Ok(())
    }

    /// Deletes the oldest segments while the tier is larger than its share.
    fn trim(&mut self) {
        while self.bytes() > self.limit && self.segments.len() > 1 {
            let segment = self.segments.remove(0);
            // If it cannot be deleted, it is found again at the next start.
            fs::remove_file(self.path(segment.number)).ok();
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    pub(super) fn oldest(&self) -> Option<u64> {
        self.segments.iter().filter_map(|segment| Some(segment.covers?.0)).min()
    }

    /// The slots that begin in a frame, in any order.
    pub(super) fn between(&self, from: u64, until: u64, entities: &Entities) -> Vec<Slot> {
        let from = from / self.spec.width * self.spec.width;
        let overlaps =
            |segment: &&Segment| segment.covers.is_some_and(|(first, last)| first < until && last >= from);
        let contents = self.segments.iter().filter(overlaps).filter_map(|s| self.read(s.number, entities));
        contents
            .flat_map(|content| content.slots)
            .filter(|slot| (from..until).contains(&slot.start))
            .collect()
    }

    /// The slots from a time on that were written last, in that order and as many as fit into this memory. Of the others it
    /// has what of them must be known.
    pub(super) fn newest(&self, from: u64, memory: usize, entities: &Entities) -> Content {
        let mut newest = Content::default();
        let mut bytes = 0;
        let requests = |slot: &Slot| slot.get(Entity::NODE).map_or(0, |node| node.requests());
        for segment in self.segments.iter().rev() {
            let Some(content) = self.read(segment.number, entities) else { continue };
            newest.handed.extend(content.handed);
            newest.taken.extend(content.taken);
            for slot in content.slots.into_iter().rev().filter(|slot| slot.start >= from) {
                bytes += slot.heap_bytes();
                if bytes <= memory {
                    newest.slots.push(slot);
                } else {
                    newest.older.push((slot.start, requests(&slot)));
                }
            }
        }
        newest.slots.reverse();
        newest.older.reverse();
        newest
    }
}

/// Cuts a segment and opens it for writing at its end.
fn continued(path: &Path, length: u64) -> std::io::Result<File> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.set_len(length)?;
    file.seek(SeekFrom::Start(length))?;
    file.write_all(&block::reset())?;
    Ok(file)
}

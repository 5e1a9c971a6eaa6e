//! The history on a disk: for each tier a series of segments, to which slots are appended as they close.
//!
//! A slot is written when it closes rather than in blocks of many, so that a crash loses ten seconds at most. The oldest
//! segment is deleted when a tier exceeds its share. Whatever the disk does costs history and nothing else.
use crate::entities::Entities;
use crate::frame::{FrameId, TakenFrame};
use crate::known::Known;
use crate::slot::Slot;
use crate::tiers::{SPECS, TENS, View};
use segments::Segments;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

mod block;
mod error;
mod segments;
pub(crate) use block::{CHECKSUM, Content};
pub use error::DiskError;

/// The file that says of which time something is known.
const KNOWN: &str = "known.weirstat";

/// The files of all tiers.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
    tiers: Vec<Segments>,
    error: Option<DiskError>,
    lost_slots: u64,
}

impl Disk {
    /// Opens a folder, which is created if there is none. `budget` is in bytes: the setting `analytics_disk`.
    pub fn open(folder: PathBuf, budget: u64, entities: &Entities) -> Result<Disk, DiskError> {
        fs::create_dir_all(&folder).map_err(|error| DiskError::new(&folder, "creating", error))?;
        let open = |spec| Segments::open(folder.clone(), spec, budget, entities);
        let tiers = SPECS.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Disk { folder, tiers, error: None, lost_slots: 0 })
    }

    /// Appends a slot. If this fails, the slot is lost and counted, and the next one is tried again.
    pub(crate) fn append(&mut self, tier: usize, slot: &Slot, entities: &Entities) {
        if let Err(error) = self.tiers[tier].append(slot, entities) {
            self.lost_slots += 1;
            self.error = Some(error);
        }
    }

    /// Notes that the control plane has this frame.
    pub(crate) fn note_handed(&mut self, id: FrameId) {
        if let Err(error) = self.tiers[TENS].note_handed(id) {
            self.error = Some(error);
        }
    }

    /// Appends slots together with the frames that they are made of, and which are not to be added again.
    pub(crate) fn append_taken(&mut self, slots: &[Slot], frames: &[TakenFrame], entities: &Entities) {
        if let Err(error) = self.tiers[TENS].append_taken(slots, frames, entities) {
            self.lost_slots += slots.len() as u64;
            self.error = Some(error);
        }
    }

    /// The time that is known, as it was noted last. Nothing is if that cannot be read.
    pub(crate) fn known(&self) -> Known {
        let bytes = fs::read(self.folder.join(KNOWN)).unwrap_or_default();
        block::read_known(&bytes).unwrap_or_default()
    }

    /// Notes the time that is known, all at once or not at all.
    pub(crate) fn note_known(&mut self, known: &Known) {
        let (path, new) = (self.folder.join(KNOWN), self.folder.join("known.new"));
        let written = fs::write(&new, block::known(known)).and_then(|()| fs::rename(&new, &path));
        if let Err(error) = written {
            self.error = Some(DiskError::new(&path, "writing", error));
        }
    }

    /// The last error since the previous call.
    pub fn take_error(&mut self) -> Option<DiskError> {
        self.error.take()
    }

    /// The slots that could not be written.
    pub fn lost_slots(&self) -> u64 {
        self.lost_slots
    }

    /// The size of all files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.tiers.iter().map(Segments::bytes).sum()
    }

    /// The slots of a tier from a time on in the order in which they were written, the newest of them if there are more
    /// than fit into this memory.
    pub(crate) fn newest(&self, tier: usize, from: u64, memory: usize, entities: &Entities) -> Content {
        self.tiers[tier].newest(from, memory, entities)
    }

    /// The slots of a tier that begin in a frame, in any order.
    pub(crate) fn between(&self, tier: usize, from: u64, until: u64, entities: &Entities) -> Vec<Slot> {
        self.tiers[tier].between(from, until, entities)
    }

    /// The start of the oldest slot of each tier.
    pub(crate) fn oldest(&self) -> [Option<u64>; SPECS.len()] {
        [0, 1, 2, 3, 4].map(|tier| self.tiers[tier].oldest())
    }

    /// Puts older slots, which are on the disk alone, before those of a view.
    pub(crate) fn extend(&self, tier: usize, from: u64, view: &mut View, entities: &Entities) {
        let until = view.oldest.unwrap_or(u64::MAX);
        let oldest = self.tiers[tier].oldest();
        if from >= until || oldest.is_none_or(|oldest| oldest >= until) {
            return;
        }
        let mut slots = self.between(tier, from, until, entities);
        slots.sort_by_key(|slot| slot.start);
        view.slots.splice(..0, slots.into_iter().map(Arc::new));
        view.oldest = oldest;
    }
}

#[cfg(test)]
mod tests;

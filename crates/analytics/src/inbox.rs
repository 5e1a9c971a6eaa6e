//! What a control plane gets from its data planes: each frame is added once, and the counts of several frames are added to
//! the history together.
//!
//! Every entity is counted for the fleet, and of each data plane its totals: it is an entity of the kind
//! [`Kind::Node`](crate::entities::Kind::Node).
use crate::aggregate::Aggregate;
use crate::entities::Entity;
use crate::frame::{Frame, FrameError, FrameHead, FrameId, MAX_OUTCOMES};
use crate::outbox::{KEEP, WIDTH};
use crate::slot::{Slot, SlotWriter};
use foldhash::HashMap;
use foldhash::quality::FixedState;
use std::collections::BTreeMap;
use std::hash::BuildHasher;

/// A frame from further in the future is refused, in seconds.
const MAX_AHEAD: u64 = 60;
/// A frame is taken for so long after data planes have given it up, because clocks differ, in seconds.
const GRACE: u64 = 10 * 60;

/// How far the control plane knows a data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Everything that the data plane recorded before has arrived, in seconds since 1970.
    pub until: u64,
    /// The frames that it still has.
    pub pending: u64,
    /// The requests that it could not hand in since it started.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct DataPlane {
    /// What it has said last; none since this process has started.
    arrival: Option<Arrival>,
    /// The frames that were taken, as sorted numbers, with the hashes of their counts. A frame has no hash if it was
    /// taken before this process started.
    taken: Vec<(u64, Option<u32>)>,
}

/// Counts of an interval that are not in the history yet.
#[derive(Debug, Default)]
struct Sums {
    entities: BTreeMap<Entity, Aggregate>,
    dropped: u64,
    frames: Vec<(Entity, FrameId)>,
}

/// Slots for the history, and the frames that they are made of.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) slots: Vec<Slot>,
    pub(crate) frames: Vec<(Entity, FrameId)>,
}

/// Frames of all data planes.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    data_planes: HashMap<Entity, DataPlane>,
    sums: BTreeMap<u64, Sums>,
}

/// A frame's id as one number, in the same order.
fn packed(id: FrameId) -> u64 {
    id.start << 16 | id.part
}

/// Distinguishes the counts of two frames apart.
fn hash(slot: &Slot) -> u32 {
    FixedState::default().hash_one((slot.dropped, slot.bytes())) as u32
}

impl DataPlane {
    /// Notes a frame; false if it was taken before.
    fn take(&mut self, id: FrameId, hash: Option<u32>) -> Result<bool, FrameError> {
        match self.taken.binary_search_by_key(&packed(id), |(id, _)| *id) {
            Ok(place) => match self.taken[place].1.zip(hash) {
                Some((taken, hash)) if taken != hash => Err(FrameError::Different),
                _ => Ok(false),
            },
            Err(place) => {
                self.taken.insert(place, (packed(id), hash));
                Ok(true)
            }
        }
    }

    fn forget_before(&mut self, time: u64) {
        let gone = self.taken.partition_point(|(id, _)| id >> 16 < time);
        self.taken.drain(..gone);
    }
}

impl Inbox {
    /// Notes frames that were taken before this process started.
    pub(crate) fn restore(&mut self, frames: impl Iterator<Item = (Entity, FrameId)>) {
        for (node, id) in frames {
            // Without a hash it differs from none.
            self.data_planes.entry(node).or_default().take(id, None).ok();
        }
    }

    /// Takes a frame of a data plane, unless it has been taken. `now` is in seconds since 1970.
    pub(crate) fn take(&mut self, node: Entity, frame: &Frame, now: u64) -> Result<(), FrameError> {
        let FrameHead { id, until, pending, lost } = frame.head;
        if id.start > now + MAX_AHEAD {
            return Err(FrameError::Early(id.start - now));
        }
        if id.start + KEEP + GRACE < now {
            return Err(FrameError::Late(now - id.start));
        }
        let data_plane = self.data_planes.entry(node).or_default();
        data_plane.arrival = Some(Arrival { until, pending, lost });
        let is_empty = frame.slot.bytes().is_empty() && frame.slot.dropped == 0;
        if !is_empty && data_plane.take(id, Some(hash(&frame.slot)))? {
            let sums = self.sums.entry(id.start / WIDTH * WIDTH).or_default();
            sums.add(node, &frame.slot)?;
            sums.frames.push((node, id));
        }
        Ok(())
    }

    /// The counts of intervals that ended by now.
    pub(crate) fn take_batch(&mut self, now: u64) -> Batch {
        let open = self.sums.split_off(&(now.saturating_sub(WIDTH) + 1));
        let mut batch = Batch::default();
        for (start, sums) in std::mem::replace(&mut self.sums, open) {
            let mut writer = SlotWriter::default();
            sums.entities.iter().for_each(|(entity, aggregate)| writer.push(*entity, aggregate));
            batch.slots.push(writer.finish(start, sums.dropped));
            batch.frames.extend(sums.frames);
        }
        batch
    }

    /// Forgets frames that are too old to come again, and data planes that have none.
    pub(crate) fn trim(&mut self, now: u64) {
        let oldest = now.saturating_sub(KEEP + GRACE);
        for data_plane in self.data_planes.values_mut() {
            data_plane.forget_before(oldest);
        }
        let is_known =
            |it: &DataPlane| !it.taken.is_empty() || it.arrival.is_some_and(|it| it.until >= oldest);
        self.data_planes.retain(|_, data_plane| is_known(data_plane));
    }

    /// How far a data plane is known; none if it has sent nothing since this process has started.
    pub(crate) fn arrival(&self, node: Entity) -> Option<Arrival> {
        self.data_planes.get(&node)?.arrival
    }

    /// The memory of what was taken, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let taken: usize =
            self.data_planes.values().map(|it| it.taken.capacity() * size_of::<(u64, Option<u32>)>()).sum();
        taken + self.data_planes.capacity() * size_of::<(Entity, DataPlane)>()
    }
}

impl Sums {
    fn add(&mut self, node: Entity, slot: &Slot) -> Result<(), FrameError> {
        self.dropped = self.dropped.saturating_add(slot.dropped);
        for entry in slot.entries() {
            let (entity, bytes) = entry?;
            let sum = self.entities.entry(entity).or_default();
            sum.merge_encoded(bytes, &mut Ok)?;
            sum.fold_outcomes(MAX_OUTCOMES);
            if entity == Entity::NODE {
                let totals = Aggregate::decode(bytes)?.totals();
                let sum = self.entities.entry(node).or_default();
                sum.merge(&totals);
                sum.fold_outcomes(MAX_OUTCOMES);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

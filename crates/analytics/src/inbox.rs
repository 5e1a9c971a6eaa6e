//! What a control plane gets from its data planes: each frame is added once, and the counts of several frames are added to
//! the history together.
//!
//! Every entity is counted for the fleet, and of each data plane its totals: it is an entity of the kind
//! [`Kind::Node`](crate::entities::Kind::Node).
use crate::aggregate::Aggregate;
use crate::cause::Cause;
use crate::disk::CHECKSUM;
use crate::entities::Entity;
use crate::frame::{Frame, FrameError, FrameHead, FrameId, MAX_OUTCOMES, TakenFrame};
use crate::known::Known;
use crate::outbox::{KEEP, WIDTH};
use crate::slot::{Slot, SlotWriter};
use crate::varint::DecodeError;
use foldhash::HashMap;
use std::collections::BTreeMap;

/// A frame from further in the future is refused, in seconds.
const MAX_AHEAD: u64 = 60;
/// A frame is taken for so long after data planes have given it up, because clocks differ, in seconds.
const GRACE: u64 = 10 * 60;
/// The names that one data plane may introduce. Further ones are counted among the others.
const MAX_NEW_NAMES: usize = 1 << 16;

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
    /// The frames that were taken, as sorted numbers, with the checksums of their counts.
    taken: Vec<(u64, u32)>,
    /// The names that got a number because of it, since this process has started.
    new_names: usize,
}

/// Counts of an interval that are not in the history yet.
#[derive(Debug, Default)]
struct Sums {
    entities: BTreeMap<Entity, Aggregate>,
    dropped: u64,
    frames: Vec<TakenFrame>,
}

/// Slots for the history, and the frames that they are made of.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) slots: Vec<Slot>,
    pub(crate) frames: Vec<TakenFrame>,
    /// The time of which data planes have handed in everything.
    pub(crate) known: Known,
}

/// Frames of all data planes.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    data_planes: HashMap<Entity, DataPlane>,
    sums: BTreeMap<u64, Sums>,
    /// What the next batch says is known.
    known: Known,
}

/// A frame's id as one number, in the same order.
fn packed(id: FrameId) -> u64 {
    id.start << 16 | id.part
}

/// Distinguishes the counts of two frames. It is the same in every process, because it takes the counts of the node alone,
/// and causes without the numbers of plugins.
fn checksum(slot: &Slot) -> Result<u32, DecodeError> {
    let mut bytes = slot.dropped.to_be_bytes().to_vec();
    for entry in slot.entries() {
        let (entity, aggregate) = entry?;
        if entity == Entity::NODE {
            let mut node = Aggregate::default();
            node.merge_encoded(aggregate, &mut |code| Ok(without_number(Cause::from_code(code)).code()))?;
            node.encode(&mut bytes);
        }
    }
    Ok(CHECKSUM.checksum(&bytes))
}

fn without_number(cause: Cause) -> Cause {
    match cause {
        Cause::Plugin(_) => Cause::Plugin(0),
        cause => cause,
    }
}

/// Refuses frames of a time that cannot be.
pub(crate) fn check_time(id: FrameId, now: u64) -> Result<(), FrameError> {
    if id.start > now + MAX_AHEAD {
        Err(FrameError::Early(id.start - now))
    } else if id.start.saturating_add(KEEP + GRACE) < now {
        Err(FrameError::Late(now - id.start))
    } else {
        Ok(())
    }
}

impl DataPlane {
    /// The checksum of a frame that was taken.
    fn taken(&self, id: FrameId) -> Option<u32> {
        let place = self.taken.binary_search_by_key(&packed(id), |(id, _)| *id).ok()?;
        Some(self.taken[place].1)
    }

    fn note(&mut self, id: FrameId, checksum: u32) {
        let place = self.taken.partition_point(|(taken, _)| *taken < packed(id));
        self.taken.insert(place, (packed(id), checksum));
    }

    /// Notes what a frame says. Returns since when everything is known up to what it says.
    fn arrived(&mut self, FrameHead { id, until, pending, lost }: FrameHead) -> u64 {
        let before = self.arrival.replace(Arrival { until, pending, lost });
        before.map_or(id.start, |arrival| arrival.until.min(id.start))
    }

    fn forget_before(&mut self, time: u64) {
        let gone = self.taken.partition_point(|(id, _)| id >> 16 < time);
        self.taken.drain(..gone);
    }
}

impl Inbox {
    /// Notes frames that were taken before this process started.
    pub(crate) fn restore(&mut self, frames: impl Iterator<Item = TakenFrame>) {
        for TakenFrame { node, id, checksum } in frames {
            self.data_planes.entry(node).or_default().note(id, checksum);
        }
    }

    /// How many names a data plane may still introduce.
    pub(crate) fn room_for_names(&self, node: Entity) -> usize {
        let new_names = self.data_planes.get(&node).map_or(0, |it| it.new_names);
        MAX_NEW_NAMES.saturating_sub(new_names)
    }

    /// Takes a frame of the data plane with this id, unless it has been taken. It has introduced so many names. `now` is in
    /// seconds since 1970.
    pub(crate) fn take(
        &mut self,
        (node, name): (Entity, &str),
        frame: &Frame,
        new_names: usize,
        now: u64,
    ) -> Result<(), FrameError> {
        let (head, data_plane) = (frame.head, self.data_planes.entry(node).or_default());
        data_plane.new_names += new_names;
        let is_empty = frame.slot.bytes().is_empty() && frame.slot.dropped == 0;
        let checksum = checksum(&frame.slot)?;
        match data_plane.taken(head.id) {
            _ if is_empty => {}
            Some(taken) if taken == checksum => {}
            Some(_) => return Err(FrameError::Different(name.to_owned())),
            None => {
                let sums = self.sums.entry(head.id.start / WIDTH * WIDTH).or_default();
                sums.add(node, &frame.slot)?;
                sums.frames.push(TakenFrame { node, id: head.id, checksum });
                data_plane.note(head.id, checksum);
            }
        }
        self.known.add(data_plane.arrived(head), head.until.max(head.id.start + WIDTH).min(now));
        Ok(())
    }

    /// The counts of intervals that ended by now.
    pub(crate) fn take_batch(&mut self, now: u64) -> Batch {
        let open = self.sums.split_off(&(now.saturating_sub(WIDTH) + 1));
        let mut batch = Batch { known: std::mem::take(&mut self.known), ..Batch::default() };
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
            self.data_planes.values().map(|it| it.taken.capacity() * size_of::<(u64, u32)>()).sum();
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

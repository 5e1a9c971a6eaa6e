//! The store's part in a fleet: a data plane hands in what it has counted, a control plane adds it up.
use super::Store;
use crate::disk::Content;
use crate::entities::MAX_NAME_BYTES;
use crate::entities::{Entity, Kind};
use crate::frame::{FrameError, FrameId, FrameReader, MAX_PARTS};
use crate::inbox::{self, Arrival, Inbox};
use crate::outbox::Outbox;
use crate::tiers::{SPECS, TENS};

/// What data planes introduce may take this part of the memory.
const NAMES_SHARE: usize = 2;

/// Notes what was exchanged before this process started.
pub(super) fn restore(outbox: &mut Option<Outbox>, inbox: &mut Option<Inbox>, content: Content) {
    if let Some(outbox) = outbox {
        outbox.restore(&content.older, content.slots.into_iter(), &content.handed.into_iter().collect());
    }
    if let Some(inbox) = inbox {
        inbox.restore(content.taken.into_iter());
    }
}

/// Of a data plane.
impl Store {
    /// Keeps what is complete for a control plane. Call it before a disk is attached.
    pub fn hand_in(&mut self) {
        self.outbox = Some(Outbox::new(fastrand::u64(..MAX_PARTS / 2)));
    }

    /// What waits for the control plane.
    pub fn outbox_mut(&mut self) -> Option<&mut Outbox> {
        self.outbox.as_mut()
    }

    /// The next frame for the control plane; none as long as there is nothing to say.
    pub fn next_frame(&mut self) -> Option<Vec<u8>> {
        self.outbox.as_mut()?.next(&self.entities, self.second)
    }

    /// The control plane has taken the last frame.
    pub fn frame_taken(&mut self) {
        let id = self.outbox.as_mut().and_then(Outbox::taken);
        self.note_handed(id);
    }

    /// The control plane takes the last frame later.
    pub fn frame_postponed(&mut self) {
        self.outbox.iter_mut().for_each(|outbox| outbox.postponed(self.second));
    }

    /// The control plane has refused the last frame.
    pub fn frame_refused(&mut self) {
        let id = self.outbox.as_mut().and_then(Outbox::refused);
        self.note_handed(id);
    }

    fn note_handed(&mut self, id: Option<FrameId>) {
        if let Some((id, disk)) = id.zip(self.disk.as_mut()) {
            disk.note_handed(id);
        }
    }
}

/// Of a control plane.
impl Store {
    /// Adds up what data planes hand in. Call it before a disk is attached.
    pub fn collect_frames(&mut self) {
        self.inbox = Some(Inbox::default());
    }

    /// Takes a frame of the data plane with this id. It is in no answer, and on no disk, before
    /// [`commit`](Self::commit). `now` is in milliseconds.
    ///
    /// Returns the end of its interval in seconds.
    pub fn take_frame(
        &mut self,
        data_plane: &str,
        reader: &mut FrameReader,
        bytes: &[u8],
        now: u64,
    ) -> Result<u64, FrameError> {
        let taken = self.try_take_frame(data_plane, reader, bytes, now / 1_000);
        if taken.is_err() {
            // The data plane begins with new names, too.
            reader.begin();
        }
        taken
    }

    fn try_take_frame(
        &mut self,
        data_plane: &str,
        reader: &mut FrameReader,
        bytes: &[u8],
        now: u64,
    ) -> Result<u64, FrameError> {
        let received = reader.parse(bytes)?;
        inbox::check_time(received.head.id, now)?;
        let node = Entity::new(Kind::Node, self.entities.intern(Kind::Node, data_plane));
        // Data planes without a number of their own would share one, and what was taken of them.
        if !node.is_named() {
            return Err(FrameError::NoNumber);
        }
        if let Some(inbox) = &mut self.inbox {
            let memory = (self.budget.memory / NAMES_SHARE).saturating_sub(self.entities.heap_bytes());
            let room = inbox.room_for_names(node).min(memory / MAX_NAME_BYTES);
            let (frame, new_names) = reader.accept(&received, &self.entities, room)?;
            inbox.take((node, data_plane), &frame, new_names, now)?;
        }
        Ok(received.head.id.start + SPECS[TENS].width)
    }

    /// Adds the frames that were taken to the history. Call it after [`drain`](Self::drain).
    ///
    /// Returns the time, in seconds, until which intervals are complete: the frames of these are stored.
    pub fn commit(&mut self) -> u64 {
        let until = self.second / SPECS[TENS].width * SPECS[TENS].width;
        let Some(inbox) = &mut self.inbox else { return until };
        let batch = inbox.take_batch(until);
        self.known.merge(&batch.known);
        if batch.frames.is_empty() {
            return until;
        }
        for slot in &batch.slots {
            // The interval is over, so each of these tiers gets the slot now and writes it.
            let closed = self.tiers.add(slot).unwrap_or(TENS..TENS);
            closed.filter(|tier| *tier != TENS).for_each(|tier| self.write(tier, slot));
        }
        if let Some(disk) = &mut self.disk {
            disk.append_taken(&batch.slots, &batch.frames, &self.entities);
        }
        until
    }

    /// How far the data plane with this id is known.
    pub fn arrival(&self, data_plane: &str) -> Option<Arrival> {
        let id = self.entities.find(Kind::Node, data_plane)?;
        self.inbox.as_ref()?.arrival(Entity::new(Kind::Node, id))
    }
}

impl Store {
    pub(super) fn trim_frames(&mut self) {
        if let Some(outbox) = &mut self.outbox {
            let memory = self.budget.memory * SPECS[TENS].memory_share / 100;
            outbox.trim(self.second, memory);
        }
        if let Some(inbox) = &mut self.inbox {
            inbox.trim(self.second);
        }
    }

    pub(super) fn frame_bytes(&self) -> usize {
        self.outbox.as_ref().map_or(0, Outbox::own_bytes) + self.inbox.as_ref().map_or(0, Inbox::bytes)
    }
}

#[cfg(test)]
mod tests;

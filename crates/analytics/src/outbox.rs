//! The frames that a data plane has not handed to a control plane yet.
//!
//! One frame at a time is sent, the oldest first, and the next one when the control plane has taken it. What cannot be
//! handed in for two hours is lost and counted. Slots are shared with the history, so waiting costs no memory until the
//! history gives them up.
use crate::entities::{Entities, Entity};
use crate::frame::{FrameHead, FrameId, FrameWriter, MAX_FRAME_LEN, MAX_PARTS};
use crate::slot::Slot;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The width of a frame's interval in seconds.
pub(crate) const WIDTH: u64 = 10;
/// How long frames are kept, in seconds.
pub(crate) const KEEP: u64 = 2 * 60 * 60;
/// When a frame is sent again that the control plane takes later, in seconds.
const RETRY_INTERVAL: u64 = 10;

/// What waits for the control plane.
#[derive(Debug, Default)]
pub struct Outbox {
    pending: BTreeMap<FrameId, Arc<Slot>>,
    /// The first part of an interval. Without a disk it is random: what the process before has handed in of the same
    /// interval is not known then, and the names must differ.
    first_part: u64,
    /// The next part of each interval.
    parts: BTreeMap<u64, u64>,
    writer: FrameWriter,
    /// The frame that was sent last and is not settled.
    sent: Option<FrameId>,
    /// Until when the control plane of this connection knows everything.
    announced: u64,
    /// Nothing is sent before this time, in seconds since 1970.
    not_before: u64,
    lost: u64,
}

impl Outbox {
    /// An empty one, whose intervals begin with this part.
    pub(crate) fn new(first_part: u64) -> Outbox {
        Outbox { first_part, ..Outbox::default() }
    }

    /// Adds a slot that is complete.
    pub(crate) fn push(&mut self, slot: Arc<Slot>) {
        let id = self.name(slot.start);
        if id.part >= MAX_PARTS || slot.bytes().len() > MAX_FRAME_LEN / 2 {
            self.lose(&slot);
        } else {
            self.pending.insert(id, slot);
        }
    }

    fn name(&mut self, start: u64) -> FrameId {
        let part = self.parts.entry(start).or_insert(self.first_part);
        *part += 1;
        FrameId { start, part: *part - 1 }
    }

    /// Adds the slots of a disk, in the order in which they were written, but those that were handed in. Of older ones, for
    /// which there is no memory, it has the starts and the requests: they are lost.
    pub(crate) fn restore(
        &mut self,
        older: &[(u64, u64)],
        slots: impl Iterator<Item = Slot>,
        handed: &HashSet<FrameId>,
    ) {
        self.first_part = 0;
        for (start, requests) in older {
            if !handed.contains(&self.name(*start)) {
                self.lost = self.lost.saturating_add(*requests);
            }
        }
        slots.for_each(|slot| self.push(Arc::new(slot)));
        self.pending.retain(|id, _| !handed.contains(id));
    }

    /// Begins a connection: names are sent again, and so is the frame that was not settled.
    pub fn begin(&mut self) {
        self.writer = FrameWriter::default();
        (self.sent, self.announced, self.not_before) = (None, 0, 0);
    }

    /// The oldest frame. Without frames, an empty one says once in each interval that there is nothing until the end of the
    /// last one. `now` is in seconds since 1970.
    pub(crate) fn next(&mut self, entities: &Entities, now: u64) -> Option<Vec<u8>> {
        if now < self.not_before {
            return None;
        }
        let (closed, lost) = (now / WIDTH * WIDTH, self.lost);
        let (head, slot) = match self.pending.first_key_value() {
            Some((id, slot)) => {
                self.sent = Some(*id);
                let pending = self.pending.len() as u64 - 1;
                let until = if pending == 0 { closed } else { id.start };
                (FrameHead { id: *id, until, pending, lost }, Arc::clone(slot))
            }
            None if closed > self.announced => {
                self.sent = None;
                let id = FrameId { start: closed.saturating_sub(WIDTH), part: 0 };
                (FrameHead { id, until: closed, pending: 0, lost }, Arc::default())
            }
            None => return None,
        };
        self.announced = self.announced.max(head.until);
        Some(self.writer.write(head, &slot, entities))
    }

    /// The control plane has taken the frame that was sent last. Returns it, unless it was empty.
    pub(crate) fn taken(&mut self) -> Option<FrameId> {
        let id = self.sent.take()?;
        self.pending.remove(&id).map(|_| id)
    }

    /// The control plane takes the frame that was sent last later, and has forgotten all names.
    pub(crate) fn postponed(&mut self, now: u64) {
        self.begin();
        self.not_before = now + RETRY_INTERVAL;
    }

    /// The control plane has refused the frame that was sent last, and has forgotten all names. Returns it, unless it
    /// was empty.
    pub(crate) fn refused(&mut self) -> Option<FrameId> {
        self.writer = FrameWriter::default();
        let id = self.sent.take()?;
        let slot = self.pending.remove(&id)?;
        self.lose(&slot);
        Some(id)
    }

    /// Gives up what is too old, and then the oldest until what the history has given up fits into this memory.
    pub(crate) fn trim(&mut self, now: u64, memory: usize) {
        let oldest = now.saturating_sub(KEEP);
        let mut bytes = self.own_bytes();
        while let Some(first) = self.pending.first_entry() {
            if first.key().start >= oldest && bytes <= memory {
                break;
            }
            let slot = first.remove();
            bytes -= own_bytes(&slot);
            self.lose(&slot);
        }
        self.parts.retain(|start, _| *start >= oldest);
    }

    /// The memory of slots that nothing else has, in bytes.
    pub(crate) fn own_bytes(&self) -> usize {
        self.pending.values().map(own_bytes).sum()
    }

    /// How many frames wait.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether no frame waits.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The requests that could not be handed in.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn lose(&mut self, slot: &Slot) {
        let requests = slot.get(Entity::NODE).map_or(0, |node| node.requests());
        self.lost = self.lost.saturating_add(requests);
    }
}

fn own_bytes(slot: &Arc<Slot>) -> usize {
    if Arc::strong_count(slot) == 1 { slot.heap_bytes() } else { 0 }
}

#[cfg(test)]
mod tests;

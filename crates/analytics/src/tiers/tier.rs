//! The slots of one width, oldest first.
use crate::slot::Slot;
use crate::varint::DecodeError;
use std::collections::VecDeque;
use std::sync::Arc;

/// A tier: how wide its slots are and how long they stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// The name in answers and of files.
    pub name: &'static str,
    /// The width of a slot in seconds.
    pub width: u64,
    /// How long slots are kept, in seconds, if the budget allows.
    pub keep: u64,
    /// The share of the memory in percent. A tier may use what others leave.
    pub memory_share: usize,
    /// The share of the disk in percent; 0 if the tier is in memory only.
    pub disk_share: u64,
}

#[derive(Debug)]
pub(super) struct Tier {
    pub(super) spec: &'static Spec,
    slots: VecDeque<Arc<Slot>>,
    bytes: usize,
    /// Slots that begin before are complete, and the next tier has them.
    pub(super) closed_until: u64,
    /// Slots that begin before are not in memory, so that what is has no holes.
    pub(super) whole_from: u64,
}

impl Tier {
    pub(super) fn new(spec: &'static Spec) -> Tier {
        Tier { spec, slots: VecDeque::new(), bytes: 0, closed_until: 0, whole_from: 0 }
    }

    /// The start of the slot that a time is in.
    pub(super) fn align(&self, time: u64) -> u64 {
        time / self.spec.width * self.spec.width
    }

    /// Adds a slot of this width or a finer one, unless its time is not in memory any more.
    pub(super) fn add(&mut self, slot: &Slot) -> Result<(), DecodeError> {
        let start = self.align(slot.start);
        if start < self.whole_from {
            return Ok(());
        }
        match self.slots.binary_search_by_key(&start, |slot| slot.start) {
            Ok(place) => {
                let sum = self.slots[place].merge(slot)?;
                self.put(place, sum.fold());
            }
            Err(place) => {
                let slot = slot.at(start);
                self.bytes += slot.heap_bytes();
                self.slots.insert(place, Arc::new(slot));
            }
        }
        Ok(())
    }

    fn put(&mut self, place: usize, slot: Slot) {
        self.bytes += slot.heap_bytes();
        self.bytes -= self.slots[place].heap_bytes();
        self.slots[place] = Arc::new(slot);
    }

    /// Closes the first open slot, if it ended by now.
    pub(super) fn close_next(&mut self, now: u64) -> Option<Arc<Slot>> {
        let place = self.slots.partition_point(|slot| slot.start < self.closed_until);
        let slot = self.slots.get(place)?;
        if slot.start + self.spec.width > now {
            return None;
        }
        self.closed_until = slot.start + self.spec.width;
        Some(Arc::clone(slot))
    }

    /// Counts the time before as closed, also where there is no slot.
    pub(super) fn close_until(&mut self, now: u64) {
        self.closed_until = self.closed_until.max(self.align(now));
    }

    /// The slots that are not closed.
    pub(super) fn open(&self) -> impl Iterator<Item = &Arc<Slot>> {
        let first = self.slots.partition_point(|slot| slot.start < self.closed_until);
        self.slots.range(first..)
    }

    /// The slots that overlap a frame of time.
    pub(super) fn between(&self, from: u64, to: u64) -> impl Iterator<Item = &Arc<Slot>> {
        let width = self.spec.width;
        let first = self.slots.partition_point(|slot| slot.start + width <= from);
        self.slots.range(first..).take_while(move |slot| slot.start < to)
    }

    pub(super) fn oldest(&self) -> Option<u64> {
        self.slots.front().map(|slot| slot.start)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.slots.capacity() * size_of::<Arc<Slot>>()
    }

    /// How much of its share of the memory the tier uses, in percent.
    pub(super) fn pressure(&self, budget: usize) -> usize {
        self.bytes() * 100 / (budget * self.spec.memory_share / 100).max(1)
    }

    /// Whether a slot can go: the newest stays.
    pub(super) fn can_evict(&self) -> bool {
        self.slots.len() > 1
    }

    pub(super) fn evict_oldest(&mut self) {
        if let Some(slot) = self.slots.pop_front() {
            self.bytes -= slot.heap_bytes();
            self.whole_from = slot.start + self.spec.width;
        }
    }

    pub(super) fn evict_older_than(&mut self, time: u64) {
        while self.oldest().is_some_and(|start| start + self.spec.width <= time) {
            self.evict_oldest();
        }
    }
}

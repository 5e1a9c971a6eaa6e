//! The history: the same counts in slots of five widths.
//!
//! ```text
//! live ─► 10 s ─► 1 min ─► 1 h ─► 1 d        every entity
//!     └─► 1 s                                the node and the busiest routes
//! ```
//! A slot that is complete is added to the next tier. Until then a query takes it from here, so the sum over any frame is
//! exact at any time. All tiers together stay within a budget of bytes.
use crate::known::Known;
use crate::slot::Slot;
use crate::varint::DecodeError;
use std::sync::Arc;
use tier::Tier;

mod tier;
pub use tier::Spec;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The tiers, finest first.
pub const SPECS: [Spec; 5] = [
    Spec { name: "1s", width: 1, keep: 10 * MINUTE, memory_share: 5, disk_share: 0 },
    Spec { name: "10s", width: 10, keep: 2 * HOUR, memory_share: 35, disk_share: 15 },
    Spec { name: "1m", width: MINUTE, keep: 25 * HOUR, memory_share: 45, disk_share: 25 },
    Spec { name: "1h", width: HOUR, keep: 35 * DAY, memory_share: 10, disk_share: 35 },
    Spec { name: "1d", width: DAY, keep: 730 * DAY, memory_share: 5, disk_share: 25 },
];
/// The seconds: for the node and the busiest routes.
pub(crate) const SECONDS: usize = 0;
/// The finest tier that has every entity.
pub(crate) const TENS: usize = 1;

/// How far back a tier reaches, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The tier.
    pub tier: &'static Spec,
    /// The start of the oldest slot, in seconds since 1970.
    pub oldest: Option<u64>,
    /// The memory in bytes.
    pub bytes: usize,
}

/// A part of the history, shared and not copied.
#[derive(Debug, Clone)]
pub struct View {
    /// The width of the slots in seconds.
    pub width: u64,
    /// Slots in the order of time. The last ones may be narrower.
    pub slots: Vec<Arc<Slot>>,
    /// Where the tier begins; none if it is empty.
    pub oldest: Option<u64>,
    /// The time that is known. There are no slots for the parts of it in which nothing happened.
    pub known: Known,
}

/// All tiers.
#[derive(Debug)]
pub struct Tiers {
    tiers: [Tier; SPECS.len()],
    /// The start of the first slot ever added. Wider slots begin before it.
    first: u64,
}

impl Default for Tiers {
    fn default() -> Tiers {
        Tiers { tiers: [0, 1, 2, 3, 4].map(|tier| Tier::new(&SPECS[tier])), first: u64::MAX }
    }
}

impl Tiers {
    /// Adds the few entities of a second to the seconds.
    pub(crate) fn add_second(&mut self, slot: &Slot) -> Result<(), DecodeError> {
        self.tiers[SECONDS].add(slot)
    }

    /// Adds a slot of ten seconds or less, which may be late.
    ///
    /// Returns the tiers that had closed their slot of that time already. These got it directly.
    pub fn add(&mut self, slot: &Slot) -> Result<std::ops::Range<usize>, DecodeError> {
        self.first = self.first.min(slot.start);
        self.tiers[TENS].add(slot)?;
        let mut tier = TENS;
        while tier < self.tiers.len() && self.tiers[tier].align(slot.start) < self.tiers[tier].closed_until {
            tier += 1;
            if let Some(next) = self.tiers.get_mut(tier) {
                next.add(slot)?;
            }
        }
        Ok(TENS..tier)
    }

    /// Notes that slots up to this one are on the disk alone.
    pub(crate) fn give_up(&mut self, tier: usize, start: u64) {
        let tier = &mut self.tiers[tier];
        let until = tier.align(start) + tier.spec.width;
        tier.whole_from = tier.whole_from.max(until);
        tier.closed_until = tier.closed_until.max(until);
    }

    /// Adds a slot that was read back from a tier's file, without handing it on. Those of finer tiers come first.
    pub(crate) fn restore(&mut self, tier: usize, slot: &Slot) -> Result<(), DecodeError> {
        let until = self.tiers[tier].align(slot.start) + SPECS[tier].width;
        // A wide slot in which the history began does not say when.
        if tier == TENS || until <= self.first {
            self.first = self.first.min(slot.start);
        }
        self.tiers[tier].add(slot)?;
        self.tiers[tier].closed_until = self.tiers[tier].closed_until.max(until);
        Ok(())
    }

    /// Hands on what the next tier does not have, after all files have been read back. `read` reads slots of a tier that
    /// begin in a frame once more, because not all of them need be in memory.
    pub(crate) fn reconcile(
        &mut self,
        read: impl Fn(usize, u64, u64) -> Vec<Slot>,
    ) -> Result<(), DecodeError> {
        for next in TENS + 1..self.tiers.len() {
            let (from, until) = (self.tiers[next].closed_until, self.tiers[next - 1].closed_until);
            if from < until {
                read(next - 1, from, until).iter().try_for_each(|slot| self.tiers[next].add(slot))?;
            }
        }
        Ok(())
    }

    /// Closes the slots that ended by now and hands them on. Returns them with their tiers.
    pub fn close(&mut self, now: u64) -> Result<Vec<(usize, Arc<Slot>)>, DecodeError> {
        let mut closed = Vec::new();
        for tier in TENS..self.tiers.len() {
            while let Some(slot) = self.tiers[tier].close_next(now) {
                if let Some(next) = self.tiers.get_mut(tier + 1) {
                    next.add(&slot)?;
                }
                closed.push((tier, slot));
            }
            self.tiers[tier].close_until(now);
        }
        Ok(closed)
    }

    /// Removes slots that are too old, and then the oldest of the tier that is furthest above its share, until all fit
    /// into the budget. Of equals the finest goes first.
    pub fn evict(&mut self, now: u64, budget: usize) {
        for tier in &mut self.tiers {
            tier.evict_older_than(now.saturating_sub(tier.spec.keep));
        }
        while self.bytes() > budget {
            let candidates = self.tiers.iter_mut().rev().filter(|tier| tier.can_evict());
            match candidates.max_by_key(|tier| tier.pressure(budget)) {
                Some(tier) => tier.evict_oldest(),
                None => return,
            }
        }
    }

    /// The memory of all slots, in bytes.
    pub fn bytes(&self) -> usize {
        self.tiers.iter().map(Tier::bytes).sum()
    }

    /// The slots of ten seconds that are not closed.
    pub(crate) fn open_tens(&self) -> Vec<Arc<Slot>> {
        self.tiers[TENS].open().cloned().collect()
    }

    /// What is kept.
    pub fn kept(&self) -> [Kept; SPECS.len()] {
        [0, 1, 2, 3, 4].map(|tier| {
            let tier = &self.tiers[tier];
            Kept { tier: tier.spec, oldest: tier.oldest(), bytes: tier.bytes() }
        })
    }

    /// The slots of a tier in a frame, with those of finer tiers that are not handed on yet.
    pub(crate) fn view(&self, tier: usize, from: u64, to: u64) -> View {
        let mut slots: Vec<_> = self.tiers[tier].between(from, to).cloned().collect();
        for finer in (TENS..tier).rev() {
            let finer = &self.tiers[finer];
            let overlaps = |slot: &&Arc<Slot>| slot.start + finer.spec.width > from && slot.start < to;
            slots.extend(finer.open().filter(overlaps).cloned());
        }
        slots.sort_by_key(|slot| slot.start);
        View { width: SPECS[tier].width, slots, oldest: self.reach(tier), known: Known::default() }
    }

    /// The coarsest tier that reaches back to `from` and is not coarser than `step`; else the finest that reaches back.
    /// `older` is where a disk continues each tier.
    pub(crate) fn choose(&self, finest: usize, from: u64, step: u64, older: &[Option<u64>]) -> usize {
        let reach =
            |tier: usize| self.reach(tier).into_iter().chain(older.get(tier).copied().flatten()).min();
        let tiers = || (finest..self.tiers.len()).filter_map(|tier| Some((tier, reach(tier)?)));
        let begin = from.max(self.first);
        let covering = || tiers().filter(|(_, reach)| *reach <= begin).map(|(tier, _)| tier);
        let coarsest = covering().filter(|tier| SPECS[*tier].width <= step).max();
        let furthest = || tiers().min_by_key(|(_, reach)| *reach).map(|(tier, _)| tier);
        coarsest.or_else(|| covering().min()).or_else(furthest).unwrap_or(finest)
    }

    /// Where a tier begins, with what finer tiers have not handed on.
    fn reach(&self, tier: usize) -> Option<u64> {
        let open = (TENS..tier).filter_map(|finer| self.tiers[finer].open().next());
        self.tiers[tier].oldest().into_iter().chain(open.map(|slot| slot.start)).min()
    }
}

//! The aggregator: reads the rings of all workers, and keeps the history. It belongs to one thread of low priority.
use crate::disk::Disk;
use crate::entities::{Entities, Entity, Kind};
use crate::inbox::Inbox;
use crate::known::Known;
use crate::live::Live;
use crate::model::ModelCall;
use crate::outbox::Outbox;
use crate::record::Cutoff;
use crate::ring::{self, Consumer, Producer};
use crate::samples::Samples;
use crate::slot::Slot;
use crate::tiers::{SECONDS, SPECS, TENS, Tiers, View};
use crate::totals::Totals;
use std::sync::Arc;

mod fleet;

/// How long after its end a second is still waited for, because a worker's clock may be behind, in milliseconds.
const GRACE_MILLIS: u64 = 100;
/// If the clock is set back by more seconds than this, counting follows it. Until then it goes on in the same second.
const MAX_CLOCK_STEP: u64 = 5;
/// If more seconds than these are behind, counting jumps to now, because records do not say which of them they belong to.
const MAX_CATCH_UP: u64 = 300;
/// How many routes are in the tier of seconds.
const BUSIEST_ROUTES: usize = 32;
/// How often the busiest entities are determined, in seconds.
const RANK_INTERVAL: u64 = 60;
/// The memory for tiers is at least this, whatever names and samples need.
const MIN_TIERS_BYTES: usize = 1 << 20;

/// How much may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The memory for everything but the rings, in bytes: the setting `analytics_memory`.
    pub memory: usize,
    /// The part of it for samples.
    pub samples: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { memory: 64 << 20, samples: 8 << 20 }
    }
}

/// What the memory is used for, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The slots of all tiers.
    pub tiers: usize,
    /// The counts that are in no slot yet, and those since monitoring first asked.
    pub live: usize,
    /// The names of entities.
    pub names: usize,
    /// Samples of requests.
    pub samples: usize,
    /// What only the exchange with a control plane or with data planes needs.
    pub frames: usize,
}

impl Usage {
    /// The sum.
    pub fn total(self) -> usize {
        self.tiers + self.live + self.names + self.samples + self.frames
    }
}

/// The measurements of a node, from now to two years back.
#[derive(Debug)]
pub struct Store {
    entities: Arc<Entities>,
    budget: Budget,
    rings: Vec<Consumer>,
    /// The second that is being counted, since 1970.
    second: u64,
    live: Live,
    tiers: Tiers,
    known: Known,
    busiest_routes: Vec<u32>,
    /// None until they are first asked for.
    totals: Option<Totals>,
    /// The sum of records dropped by rings that are gone, and what the slots have of all drops.
    dropped_before: u64,
    dropped_in_slots: u64,
    dropped_in_seconds: u64,
    /// The memory of the counts when they were last moved into a slot.
    live_bytes: usize,
    /// The samples of requests.
    pub samples: Samples,
    disk: Option<Disk>,
    /// What a data plane hands in.
    outbox: Option<Outbox>,
    /// What a control plane gets.
    inbox: Option<Inbox>,
}

impl Store {
    /// A store without history. `now` is in milliseconds since 1970, here and in all methods.
    pub fn new(entities: Arc<Entities>, budget: Budget, now: u64) -> Store {
        Store {
            entities,
            budget,
            rings: Vec::new(),
            second: now / 1_000,
            live: Live::new(),
            tiers: Tiers::default(),
            known: Known::default(),
            busiest_routes: Vec::new(),
            totals: None,
            dropped_before: 0,
            dropped_in_slots: 0,
            dropped_in_seconds: 0,
            live_bytes: 0,
            samples: Samples::new(budget.samples, now),
            disk: None,
            outbox: None,
            inbox: None,
        }
    }

    /// Reads the history of a disk, and writes to it from now on.
    pub fn attach(&mut self, disk: Disk) {
        self.disk = Some(disk);
        let Some(disk) = &mut self.disk else { return };
        self.known.merge(&disk.known());
        for (tier, spec) in SPECS.iter().enumerate().filter(|(_, spec)| spec.disk_share > 0) {
            let memory = self.budget.memory * spec.memory_share / 100;
            let from = (self.second).saturating_sub(spec.keep);
            let content = disk.newest(tier, from, memory, &self.entities);
            content.older.iter().for_each(|(start, _)| self.tiers.give_up(tier, *start));
            for slot in &content.slots {
                // Every slot of a disk has been decoded, so merging it cannot fail.
                self.tiers.restore(tier, slot).ok();
            }
            if tier == TENS {
                fleet::restore(&mut self.outbox, &mut self.inbox, content);
            }
        }
        let read = |tier, from, until| disk.between(tier, from, until, &self.entities);
        self.tiers.reconcile(read).ok();
        self.evict();
    }

    /// The ring for a new worker.
    pub fn add_worker(&mut self) -> Producer {
        let (producer, consumer) = ring::ring(ring::CAPACITY);
        self.rings.push(consumer);
        producer
    }

    /// The numbers of entities.
    pub fn entities(&self) -> &Arc<Entities> {
        &self.entities
    }

    /// The history.
    pub fn tiers(&self) -> &Tiers {
        &self.tiers
    }

    /// What was counted by route since the first call.
    pub fn totals(&mut self, now: u64) -> &Totals {
        self.totals.get_or_insert_with(|| Totals::new(now))
    }

    /// The disk, if there is one.
    pub fn disk_mut(&mut self) -> Option<&mut Disk> {
        self.disk.as_mut()
    }

    /// Counts a call of a language model that has ended just now.
    pub fn record_model(&mut self, call: &ModelCall<'_>) {
        self.live.record_model(call, &self.entities);
    }

    /// Notes that so many calls of models could not be counted.
    pub fn lose(&mut self, calls: u64) {
        self.dropped_before += calls;
    }

    /// Reads what workers have recorded, and brings everything up to now into view. Call it before a query.
    pub fn refresh(&mut self, now: u64) {
        self.drain(now);
        self.flush();
    }

    /// The same once no worker records any more, so that nothing has to be waited for: a second that has just begun counts.
    pub fn refresh_last(&mut self, now: u64) {
        self.refresh(now + GRACE_MILLIS);
    }

    /// Reads what workers have recorded. Call it every 50 ms. The node and the busiest routes come into view when their
    /// second has ended, everything when its ten seconds have.
    pub fn drain(&mut self, now: u64) {
        self.samples.drain(now);
        let current = now / 1_000;
        if current + MAX_CLOCK_STEP < self.second || current > self.second + MAX_CATCH_UP {
            self.flush();
            self.second = current;
        }
        loop {
            self.drain_second(now);
            if now < (self.second + 1) * 1_000 + GRACE_MILLIS {
                break;
            }
            self.end_second(now);
        }
        self.note_known(self.second + 1);
    }

    /// Notes that everything from the current second until then is counted. A control plane knows what data planes say.
    fn note_known(&mut self, until: u64) {
        if self.inbox.is_none() {
            self.known.add(self.second, until);
        }
    }

    /// Counts the records up to the end of the current second.
    fn drain_second(&mut self, now: u64) {
        let (cutoff, live, entities) = (Cutoff::new(self.second, now), &mut self.live, &self.entities);
        for ring in &mut self.rings {
            ring.drain(|record| {
                let is_due = cutoff.is_after(record.time());
                if is_due {
                    live.record(record, entities);
                }
                is_due
            });
        }
        let gone = self.rings.extract_if(.., |ring| ring.is_finished());
        self.dropped_before += gone.map(|ring| ring.dropped()).sum::<u64>();
    }

    /// Moves what has been counted into slots. What follows in the same second is added to them.
    fn flush(&mut self) {
        self.flush_second();
        let dropped = self.dropped() - self.dropped_in_slots;
        if self.live.is_empty() && dropped == 0 {
            return;
        }
        self.dropped_in_slots += dropped;
        self.live_bytes = self.live.heap_bytes();
        let slot = self.live.take(&self.entities, self.second, dropped);
        self.totals.iter_mut().for_each(|totals| totals.add(&slot));
        // Only bytes of ours are merged here, and these decode.
        let closed = self.tiers.add(&slot).unwrap_or(TENS..TENS);
        if !closed.is_empty()
            && let Some(outbox) = &mut self.outbox
        {
            outbox.push(Arc::new(slot.clone()));
        }
        closed.for_each(|tier| self.write(tier, &slot));
    }

    /// Copies what has been counted in the second to the tier of seconds: that of the node and the busiest routes.
    fn flush_second(&mut self) {
        let dropped = self.dropped() - self.dropped_in_seconds;
        self.dropped_in_seconds += dropped;
        self.live.settle();
        if self.busiest_routes.len() < BUSIEST_ROUTES {
            self.rank_routes();
        }
        if let Some(slot) = self.live.second(&self.busiest_routes, (self.second, dropped)) {
            self.tiers.add_second(&slot).ok();
        }
    }

    fn end_second(&mut self, now: u64) {
        let mut next = self.second + 1;
        if self.rings.iter().all(Consumer::is_empty) {
            // Nothing happened meanwhile, so that seconds need not be passed one by one.
            next = next.max((now.saturating_sub(GRACE_MILLIS)) / 1_000);
        }
        let width = SPECS[TENS].width;
        self.note_known(next);
        if next / width == self.second / width {
            self.flush_second()
        } else {
            self.flush();
            self.write_known();
        }
        self.second = next;
        if self.second.is_multiple_of(RANK_INTERVAL) {
            self.live.rank();
        }
        if self.second.is_multiple_of(width) {
            self.rank_routes();
        }
        let closed = self.tiers.close(self.second).unwrap_or_default();
        closed.iter().for_each(|(tier, slot)| self.write(*tier, slot));
        if closed.is_empty() {
            return;
        }
        if let Some(outbox) = &mut self.outbox {
            closed.into_iter().filter(|(tier, _)| *tier == TENS).for_each(|(_, slot)| outbox.push(slot));
        }
        self.evict();
    }

    fn rank_routes(&mut self) {
        self.busiest_routes = self.live.busiest_routes(BUSIEST_ROUTES);
        self.busiest_routes.sort_unstable();
    }

    fn write(&mut self, tier: usize, slot: &Slot) {
        if let Some(disk) = &mut self.disk {
            disk.append(tier, slot, &self.entities);
        }
    }

    fn write_known(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.note_known(&self.known);
        }
    }

    fn evict(&mut self) {
        self.trim_frames();
        let usage = self.usage();
        let others = usage.live.max(self.live_bytes) + usage.names + usage.frames + self.budget.samples;
        let budget = self.budget.memory.saturating_sub(others);
        self.tiers.evict(self.second, budget.max(MIN_TIERS_BYTES));
    }

    /// The records that rings have dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped_before + self.rings.iter().map(Consumer::dropped).sum::<u64>()
    }

    /// What the memory is used for.
    pub fn usage(&self) -> Usage {
        Usage {
            tiers: self.tiers.bytes(),
            live: self.live.heap_bytes() + self.totals.as_ref().map_or(0, Totals::heap_bytes),
            names: self.entities.heap_bytes(),
            samples: self.samples.bytes(),
            frames: self.frame_bytes(),
        }
    }

    /// The slots for a query of this frame, in seconds since 1970, that wants points this many seconds apart.
    ///
    /// The tier of seconds has the node and the busiest routes alone, so it is chosen for one of these only.
    pub fn view(&self, from: u64, to: u64, step: u64, of: Option<Entity>) -> View {
        let is_in_seconds = of.is_some_and(|entity| self.is_in_seconds(entity));
        let older = self.disk.as_ref().map(Disk::oldest).unwrap_or_default();
        let tier = self.tiers.choose(if is_in_seconds { SECONDS } else { TENS }, from, step, &older);
        let mut view = self.tiers.view(tier, from, to);
        if let Some(disk) = &self.disk {
            disk.extend(tier, from, &mut view, &self.entities);
        }
        view.known = self.known.clone();
        view
    }

    fn is_in_seconds(&self, entity: Entity) -> bool {
        entity == Entity::NODE
            || entity.kind == Kind::Route && self.busiest_routes.binary_search(&entity.id).is_ok()
    }

    /// Moves what is not on the disk there, when the node stops.
    pub fn finish(mut self, now: u64) {
        self.refresh_last(now);
        for slot in self.tiers.open_tens() {
            self.write(TENS, &slot);
        }
        self.write_known();
    }
}

#[cfg(test)]
mod tests;

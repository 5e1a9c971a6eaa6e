//! Opening and closing connections.
use super::Worker;
use crate::load::slot::Stage;
use crate::load::tally::Class;
use crate::load::wire::Wire;
use rustix::event::epoll;
use std::cmp::Reverse;

/// How many connections a thread opens in one go, and how long it then pauses, in nanoseconds: a listener's backlog
/// must not overflow, as a connection that is dropped there is tried again by the kernel only after a second.
const BATCH: usize = 64;
pub(super) const PAUSE: u64 = 2_000_000;
/// How long the peer may take to end a connection after its last answer, in nanoseconds.
const LINGER: u64 = 50_000_000;

impl Worker<'_> {
    /// A slot without a connection gets one, at once or with its next request.
    pub(super) fn revive(&mut self, index: usize, now: u64) {
        if self.is_open_loop() && !self.plan.keep_alive {
            return self.rest(index, now);
        }
        self.slots[index].assigned = !self.is_open_loop();
        self.to_open.push_back(index);
    }

    pub(super) fn rest(&mut self, index: usize, now: u64) {
        let slot = &mut self.slots[index];
        slot.stage = Stage::Idle;
        slot.since = now;
        slot.assigned = false;
        self.idle.push_back((index, now));
    }

    pub(super) fn open_queued(&mut self) {
        if self.to_open.is_empty() {
            return;
        }
        let now = self.shared.now();
        if now - self.batch.1 >= PAUSE {
            self.batch = (0, now);
        }
        while self.batch.0 < BATCH
            && let Some(index) = self.to_open.pop_front()
        {
            self.batch.0 += 1;
            self.open(index);
        }
    }

    fn open(&mut self, index: usize) {
        let now = self.shared.now();
        let slot = &mut self.slots[index];
        slot.generation = slot.generation.wrapping_add(1);
        slot.attempts = slot.attempts.saturating_add(1);
        slot.since = now;
        slot.hung_up = false;
        let data = epoll::EventData::new_u64(u64::from(slot.generation) << 32 | index as u64);
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let opened = Wire::open(slot.address, self.tls.as_ref());
        let added = opened.and_then(|wire| {
            epoll::add(&self.epoll, wire.stream(), data, flags)?;
            Ok(wire)
        });
        let Ok(wire) = added else { return self.fail(index, Class::Connect) };
        slot.wire = Some(wire);
        slot.stage = Stage::Connecting;
    }

    /// Goes on opening.
    pub(super) fn connect(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some(wire) = &mut slot.wire else { return };
        if slot.stage == Stage::Connecting {
            if !wire.connected() {
                return self.fail(index, Class::Connect);
            }
            slot.stage = Stage::Handshaking;
        }
        match wire.shake(&mut self.buffers) {
            Ok(true) => self.opened(index),
            Ok(false) => {}
            Err(_) => self.fail(index, Class::Tls),
        }
    }

    fn opened(&mut self, index: usize) {
        let now = self.shared.now();
        let slot = &self.slots[index];
        let (took, assigned) = (now - slot.since, slot.assigned);
        if slot.generation == 1 {
            self.shared.note_opened();
        }
        self.observe();
        if self.within() {
            self.tally.opened += 1;
            self.tally.connect.record_nanos(took);
        }
        if assigned {
            self.send(index, now);
        } else {
            self.rest(index, now);
            self.send_due(now);
        }
    }

    /// Lets go of the connection and sees to another.
    pub(super) fn replace(&mut self, index: usize, now: u64) {
        let slot = &mut self.slots[index];
        slot.wire = None;
        slot.stage = Stage::Waiting;
        slot.since = now;
        slot.assigned = false;
        match slot.back_off() {
            0 => self.revive(index, now),
            delay => self.retries.push(Reverse((now + delay, index))),
        }
    }

    /// A request or a connection has failed.
    pub(super) fn fail(&mut self, index: usize, class: Class) {
        self.observe();
        if self.within() {
            self.tally.error(class);
        }
        self.replace(index, self.shared.now());
    }

    /// Looks for what takes too long.
    pub(super) fn sweep(&mut self, now: u64) {
        let timeout = self.plan.timeout.as_nanos() as u64;
        self.next_sweep = now + (timeout / 10).clamp(1_000_000, 2 * LINGER);
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            let age = now.saturating_sub(slot.since);
            match slot.stage {
                Stage::Closing if age > LINGER => {
                    slot.wire.take().into_iter().for_each(Wire::reset);
                    self.replace(index, now);
                }
                Stage::Busy if age > timeout => {
                    self.observe();
                    self.record_unanswered(index, now);
                    self.fail(index, Class::Timeout);
                }
                Stage::Connecting if age > timeout => self.fail(index, Class::Connect),
                Stage::Handshaking if age > timeout => self.fail(index, Class::Tls),
                _ => {}
            }
        }
    }
}

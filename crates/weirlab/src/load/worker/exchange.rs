//! Sending requests and taking in answers.
use super::Worker;
use crate::load::shared::Phase;
use crate::load::slot::Stage;
use crate::load::tally::Class;
use crate::load::wire::{Fault, Received};
use rustix::event::epoll;

impl Worker<'_> {
    /// Sends what is due over connections that are idle.
    pub(super) fn send_due(&mut self, mut now: u64) {
        while let Some(arrivals) = &mut self.arrivals
            && arrivals.next() <= now
            && let Some((index, idle_since)) = self.idle.pop_front()
        {
            let slot = &mut self.slots[index];
            if slot.stage != Stage::Idle || slot.since != idle_since {
                // It was closed meanwhile.
                continue;
            }
            slot.scheduled = arrivals.next();
            slot.assigned = true;
            arrivals.advance();
            let possible = slot.scheduled.max(idle_since);
            let (opened, scheduled) = (slot.wire.is_some(), slot.scheduled);
            self.observe();
            if self.within() && scheduled >= self.begin {
                self.tally.arrivals += 1;
                self.tally.lateness.record_nanos(now.saturating_sub(possible));
            }
            if opened {
                self.send(index, now);
            } else {
                self.slots[index].stage = Stage::Waiting;
                self.to_open.push_back(index);
                self.open_queued();
            }
            now = self.shared.now();
        }
    }

    pub(super) fn send(&mut self, index: usize, now: u64) {
        let slot = &mut self.slots[index];
        let Some(wire) = &mut slot.wire else { return };
        let (template, request) = self.stream.next();
        slot.template = template;
        slot.answer.reset();
        slot.stage = Stage::Busy;
        slot.since = now;
        if self.arrivals.is_none() {
            slot.scheduled = now;
        }
        if wire.send(request).is_err() {
            self.fail(index, Class::Write);
        }
    }

    pub(super) fn ready(&mut self, index: usize, flags: epoll::EventFlags) {
        use epoll::EventFlags as Flags;
        let slot = &mut self.slots[index];
        let Some(wire) = &mut slot.wire else { return };
        if matches!(slot.stage, Stage::Connecting | Stage::Handshaking) {
            return self.connect(index);
        }
        slot.hung_up |= flags.intersects(Flags::RDHUP | Flags::HUP | Flags::ERR);
        if flags.contains(Flags::OUT) && wire.flush().is_err() {
            return self.fail(index, Class::Write);
        }
        if flags.intersects(Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR) {
            self.read(index);
        }
    }

    fn read(&mut self, index: usize) {
        self.observe();
        let generation = self.slots[index].generation;
        loop {
            let slot = &mut self.slots[index];
            let Some(wire) = slot.wire.as_mut().filter(|_| slot.generation == generation) else { return };
            let (bytes, more) = match wire.receive(&mut self.buffers) {
                Ok(Received::Bytes(bytes, more)) => (bytes, more || slot.hung_up),
                Ok(Received::Nothing) => return,
                Ok(Received::End) => return self.ended(index),
                Err(fault) => return self.broken(index, fault),
            };
            if self.phase == Phase::Measure {
                self.tally.bytes += bytes.len() as u64;
            }
            match slot.stage {
                Stage::Busy => {
                    let template = self.requests.template(slot.template);
                    let taken = slot.answer.take(bytes, &mut self.head, template.method, &template.expect);
                    match taken {
                        Ok(None) => {}
                        Ok(Some(taken)) => {
                            let surplus = taken < bytes.len();
                            self.complete(index, surplus);
                        }
                        Err(_) => return self.fail(index, Class::Malformed),
                    }
                }
                Stage::Closing => {}
                // Nothing was asked, except in TLS, whose records need not hold bytes of the answer.
                _ if bytes.is_empty() => {}
                _ => return self.fail(index, Class::Malformed),
            }
            if !more {
                return;
            }
        }
    }

    /// The peer has ended the connection.
    fn ended(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.hung_up = true;
        match slot.stage {
            Stage::Busy if slot.answer.ends_with_connection() => self.complete(index, false),
            Stage::Busy => self.fail(index, Class::Closed),
            _ => self.replace(index, self.shared.now()),
        }
    }

    fn broken(&mut self, index: usize, fault: Fault) {
        match (self.slots[index].stage, fault) {
            (Stage::Busy, Fault::Socket) => self.fail(index, Class::Read),
            (Stage::Busy, Fault::Tls) => self.fail(index, Class::Tls),
            _ => self.replace(index, self.shared.now()),
        }
    }

    /// An answer is complete, perhaps with bytes after it that nobody asked for.
    fn complete(&mut self, index: usize, surplus: bool) {
        let now = self.shared.now();
        if self.observe() == Phase::Done {
            // It came too late, and nothing more is asked.
            return;
        }
        self.answers += 1;
        self.shared.report(self.thread, self.answers);
        self.record(index, now);
        let slot = &mut self.slots[index];
        slot.attempts = 0;
        if surplus {
            self.fail(index, Class::Malformed);
        } else if slot.hung_up {
            self.replace(index, now);
        } else if !self.plan.keep_alive || !slot.answer.keep_alive() {
            slot.stage = Stage::Closing;
            slot.since = now;
        } else if self.is_open_loop() {
            self.rest(index, now);
            self.send_due(now);
        } else {
            self.send(index, now);
        }
    }
}

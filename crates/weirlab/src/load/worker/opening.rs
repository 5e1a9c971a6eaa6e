//! Opening and closing connections.
use super::{Worker, streams};
use crate::load::Protocol;
use crate::load::counters::Class;
use crate::load::message::Talk;
use crate::load::slot::{Speech, Stage, State};
use crate::load::wire::Wire;
use rustix::event::epoll;
use std::cmp::Reverse;

/// How many connections a thread opens in one go, and how long it then pauses, in nanoseconds: a listener's backlog
/// must not overflow, as a connection that is dropped there is tried again by the kernel only after a second.
const BATCH: usize = 64;
pub(super) const PAUSE: u64 = 2_000_000;
/// How long the peer may take to end a connection after its last answer, in nanoseconds.
const CLOSE_TIMEOUT: u64 = 50_000_000;

impl Worker<'_> {
    /// A place without a connection gets one, at once or with its next request.
    pub(super) fn revive(&mut self, link: usize, now: u64) {
        if self.is_open_loop() && !self.plan.keep_alive {
            return self.slots_of(link).for_each(|index| self.rest(index, now));
        }
        let assigned = !self.is_open_loop();
        let slots = self.slots_of(link);
        self.slots[slots].iter_mut().for_each(|slot| slot.assigned = assigned || slot.again);
        self.to_open.push_back(link);
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
            && let Some(link) = self.to_open.pop_front()
        {
            self.batch.0 += 1;
            self.open(link);
        }
    }

    fn open(&mut self, link: usize) {
        let now = self.shared.now();
        let slots = self.slots_of(link);
        self.slots[slots].iter_mut().for_each(|slot| slot.since = now);
        let connection = &mut self.links[link];
        connection.generation = connection.generation.wrapping_add(1);
        connection.attempts = connection.attempts.saturating_add(1);
        connection.since = now;
        connection.hung_up = false;
        let data = epoll::EventData::new_u64(u64::from(connection.generation) << 32 | link as u64);
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let opened = Wire::open(connection.address, self.tls.as_ref());
        let added = opened.and_then(|wire| {
            epoll::add(&self.epoll, wire.stream(), data, flags)?;
            Ok(wire)
        });
        let Ok(wire) = added else { return self.fail(link, Class::Connect) };
        connection.speech = match self.plan.protocol {
            Protocol::WebSocket => Speech::WebSocket(wire, Box::new(Talk::new(data.u64()))),
            _ => Speech::Http1(wire),
        };
        connection.state = State::Connecting;
    }

    /// Goes on opening.
    pub(super) fn connect(&mut self, link: usize) {
        let connection = &mut self.links[link];
        let Some(wire) = connection.speech.wire() else { return };
        if connection.state == State::Connecting {
            if !wire.connected() {
                return self.fail(link, Class::Connect);
            }
            connection.state = State::Handshaking;
        }
        match wire.shake(&mut self.buffers) {
            Ok(true) => self.connected(link),
            Ok(false) => {}
            Err(_) => self.fail(link, Class::Tls),
        }
    }

    /// The connection is established; its protocol may begin with a handshake of its own.
    fn connected(&mut self, link: usize) {
        match self.plan.protocol {
            Protocol::Http1 => self.opened(link),
            Protocol::WebSocket => self.upgrade(link),
            Protocol::Http2 { .. } | Protocol::Grpc { .. } => {
                let connection = &mut self.links[link];
                let Speech::Http1(wire) = std::mem::replace(&mut connection.speech, Speech::None) else {
                    return;
                };
                let Some(session) = streams::begin(wire, self.plan) else {
                    return self.fail(link, if self.plan.tls { Class::Tls } else { Class::Write });
                };
                connection.speech = Speech::Http2(session);
                self.opened(link);
                self.converse(link);
            }
        }
    }

    pub(super) fn opened(&mut self, link: usize) {
        let now = self.shared.now();
        let connection = &mut self.links[link];
        connection.state = State::Open;
        let took = now - connection.since;
        if connection.generation == 1 {
            self.shared.note_opened();
        }
        self.observe();
        if self.within() {
            self.tally.opened += 1;
            self.tally.connect.record_nanos(took);
        }
        for index in self.slots_of(link) {
            if self.slots[index].assigned {
                self.send(index, now);
            } else {
                self.rest(index, now);
            }
        }
        self.send_due(now);
    }

    /// Drops the connection and schedules another.
    pub(super) fn replace(&mut self, link: usize, now: u64) {
        for index in self.slots_of(link) {
            let slot = &mut self.slots[index];
            slot.stage = Stage::Waiting;
            slot.since = now;
            slot.assigned = slot.again;
        }
        let connection = &mut self.links[link];
        connection.speech = Speech::None;
        connection.state = State::Waiting;
        match connection.back_off() {
            0 => self.revive(link, now),
            delay => self.retries.push(Reverse((now + delay, link))),
        }
    }

    /// A connection has failed, and each request that was in flight on it.
    pub(super) fn fail(&mut self, link: usize, class: Class) {
        self.observe();
        if self.within() {
            let busy = self.slots_of(link).filter(|index| self.slots[*index].stage == Stage::Busy).count();
            (0..busy.max(1)).for_each(|_| self.note_error(class));
        }
        self.replace(link, self.shared.now());
    }

    /// Looks for what takes too long.
    pub(super) fn sweep(&mut self, now: u64) {
        let timeout = self.plan.timeout.as_nanos() as u64;
        self.next_sweep = now + (timeout / 10).clamp(1_000_000, 2 * CLOSE_TIMEOUT);
        for link in 0..self.links.len() {
            let connection = &self.links[link];
            let late = now.saturating_sub(connection.since) > timeout;
            match connection.state {
                State::Connecting if late => self.fail(link, Class::Connect),
                State::Handshaking if late => self.fail(link, Class::Tls),
                State::Upgrading if late => self.fail(link, Class::Timeout),
                State::Open => self.sweep_slots(link, now, timeout),
                _ => {}
            }
        }
    }

    fn sweep_slots(&mut self, link: usize, now: u64, timeout: u64) {
        for index in self.slots_of(link) {
            let slot = &self.slots[index];
            let age = now.saturating_sub(slot.since);
            match slot.stage {
                Stage::Closing if age > CLOSE_TIMEOUT => {
                    if let Speech::Http1(wire) = std::mem::replace(&mut self.links[link].speech, Speech::None)
                    {
                        wire.reset();
                    }
                    self.replace(link, now);
                }
                Stage::Busy if age > timeout => {
                    self.observe();
                    self.record_unanswered(index, now);
                    self.give_up(index);
                }
                _ => {}
            }
        }
    }
}

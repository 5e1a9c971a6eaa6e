//! Sending requests and taking in answers.
use super::Worker;
use crate::load::counters::Class;
use crate::load::shared::Phase;
use crate::load::slot::{Speech, Stage, State};
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
            let (possible, scheduled) = (slot.scheduled.max(idle_since), slot.scheduled);
            let link = self.link_of(index);
            self.observe();
            if self.within() && scheduled >= self.begin {
                self.tally.arrivals += 1;
                self.tally.lateness.record_nanos(now.saturating_sub(possible));
            }
            if self.links[link].state == State::Open {
                self.send(index, now);
            } else {
                self.slots[index].stage = Stage::Waiting;
                self.to_open.push_back(link);
                self.open_queued();
            }
            now = self.shared.now();
        }
    }

    pub(super) fn send(&mut self, index: usize, now: u64) {
        let (link, lane) = (self.link_of(index), index % self.streams);
        let slot = &mut self.slots[index];
        let drawn = self.stream.next();
        slot.template = drawn.template;
        slot.answer.reset();
        slot.stage = Stage::Busy;
        slot.since = now;
        slot.first_byte = None;
        slot.again = false;
        if self.arrivals.is_none() {
            slot.scheduled = now;
        }
        let sent = match &mut self.links[link].speech {
            Speech::None => return,
            Speech::Http1(wire) => wire.send(drawn.bytes).is_ok(),
            Speech::WebSocket(wire, talk) => talk.send(wire, drawn.body()).is_ok(),
            Speech::Http2(session) => {
                self.unwritten.push(link);
                session.send(lane, &drawn)
            }
        };
        if !sent {
            self.fail(link, Class::Write);
        }
    }

    pub(super) fn ready(&mut self, link: usize, flags: epoll::EventFlags) {
        use epoll::EventFlags as Flags;
        let connection = &mut self.links[link];
        if matches!(connection.state, State::Connecting | State::Handshaking) {
            return self.connect(link);
        }
        if matches!(connection.speech, Speech::Http2(_)) {
            return self.converse(link);
        }
        let Some(wire) = connection.speech.wire() else { return };
        let blocked = flags.contains(Flags::OUT) && wire.flush().is_err();
        connection.hung_up |= flags.intersects(Flags::RDHUP | Flags::HUP | Flags::ERR);
        if blocked {
            return self.fail(link, Class::Write);
        }
        if flags.intersects(Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR) {
            self.read(link);
        }
    }

    /// Reads what has come over a connection that carries one request at a time.
    pub(super) fn read(&mut self, link: usize) {
        self.observe();
        let generation = self.links[link].generation;
        loop {
            let connection = &mut self.links[link];
            let hung_up = connection.hung_up;
            let Some(wire) = connection.speech.wire().filter(|_| connection.generation == generation) else {
                return;
            };
            let (bytes, more) = match wire.receive(&mut self.buffers) {
                Ok(Received::Bytes(bytes, more)) => (bytes, more || hung_up),
                Ok(Received::Nothing) => return,
                Ok(Received::End) => return self.ended(link),
                Err(fault) => return self.broken(link, fault),
            };
            if self.phase == Phase::Measure {
                self.tally.bytes += bytes.len() as u64;
            }
            if let Speech::WebSocket(_, talk) = &mut connection.speech {
                talk.take(bytes);
                self.listen(link);
            } else {
                let slot = &mut self.slots[link];
                match slot.stage {
                    Stage::Busy => {
                        let template = self.requests.template(slot.template);
                        let taken =
                            slot.answer.take(bytes, &mut self.head, template.method, &template.expect);
                        match taken {
                            Ok(None) => self.note_first_byte(link),
                            Ok(Some(taken)) => {
                                let surplus = taken < bytes.len();
                                self.complete(link, surplus);
                            }
                            Err(_) => return self.fail(link, Class::Malformed),
                        }
                    }
                    Stage::Closing => {}
                    // Nothing was asked, except in TLS, whose records need not hold bytes of the answer.
                    _ if bytes.is_empty() => {}
                    _ => return self.fail(link, Class::Malformed),
                }
            }
            if !more {
                return;
            }
        }
    }

    /// The peer has ended the connection.
    fn ended(&mut self, link: usize) {
        self.links[link].hung_up = true;
        let slot = &self.slots[link];
        match slot.stage {
            Stage::Busy if slot.answer.ends_with_connection() => self.complete(link, false),
            Stage::Busy => self.fail(link, Class::Closed),
            _ if self.links[link].state == State::Upgrading => self.fail(link, Class::Closed),
            _ => self.replace(link, self.shared.now()),
        }
    }

    fn broken(&mut self, link: usize, fault: Fault) {
        let asked = self.slots[link].stage == Stage::Busy || self.links[link].state == State::Upgrading;
        match fault {
            _ if !asked => self.replace(link, self.shared.now()),
            Fault::Socket => self.fail(link, Class::Read),
            Fault::Tls => self.fail(link, Class::Tls),
        }
    }

    /// A response is complete; unexpected bytes may follow it.
    pub(super) fn complete(&mut self, index: usize, surplus: bool) {
        let now = self.shared.now();
        if self.observe() == Phase::Done {
            // Nothing more is asked.
            self.slots[index].late = true;
            return;
        }
        self.answers += 1;
        self.shared.report(self.thread, self.answers);
        self.record(index, now);
        let link = self.link_of(index);
        self.links[link].attempts = 0;
        if !std::mem::replace(&mut self.links[link].answered, true) {
            self.shared.note_first_answer();
        }
        let keeps = !matches!(self.links[link].speech, Speech::Http1(_))
            || self.plan.keep_alive && self.slots[index].answer.keep_alive();
        if surplus {
            self.fail(link, Class::Malformed);
        } else if self.links[link].hung_up {
            self.leave(index, now);
        } else if !keeps {
            let slot = &mut self.slots[index];
            slot.stage = Stage::Closing;
            slot.since = now;
        } else {
            self.go_on(index, now);
        }
    }

    /// A place is free for the next request.
    pub(super) fn go_on(&mut self, index: usize, now: u64) {
        if self.is_open_loop() {
            self.rest(index, now);
            self.send_due(now);
        } else {
            self.send(index, now);
        }
    }

    /// After the last request on a connection that takes no more, schedules another connection.
    pub(super) fn leave(&mut self, index: usize, now: u64) {
        let link = self.link_of(index);
        let slot = &mut self.slots[index];
        slot.stage = Stage::Waiting;
        slot.since = now;
        if self.slots_of(link).all(|index| self.slots[index].stage != Stage::Busy) {
            self.replace(link, now);
        }
    }
}

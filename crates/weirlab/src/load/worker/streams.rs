//! HTTP/2: several requests on one connection.
use super::Worker;
use crate::load::counters::Class;
use crate::load::http2::{Failure, Progress, Session};
use crate::load::slot::{Speech, Stage};
use crate::load::wire::Wire;
use crate::load::{Plan, Protocol};

/// The HTTP/2 session of an established connection; none if the peer did not negotiate it.
pub(super) fn begin(wire: Wire, plan: &Plan) -> Option<Box<Session>> {
    if !wire.speaks_http2() {
        return None;
    }
    let is_grpc = matches!(plan.protocol, Protocol::Grpc { .. });
    Session::begin(wire, plan.protocol.streams(), is_grpc, plan.tls).map(Box::new)
}

impl Worker<'_> {
    /// Writes the requests that were sent meanwhile: those of one connection together.
    pub(super) fn write_requests(&mut self) {
        while let Some(link) = self.unwritten.pop() {
            let news = match &self.links[link].speech {
                Speech::Http2(session) => session.has_news(),
                _ => false,
            };
            if news {
                self.converse(link);
            }
        }
    }

    /// Reads and writes all that can be.
    pub(super) fn converse(&mut self, link: usize) {
        self.observe();
        let generation = self.links[link].generation;
        loop {
            let Speech::Http2(session) = &mut self.links[link].speech else { return };
            let ended = session.drive();
            let received = session.received();
            if self.within() {
                self.tally.bytes += received;
            }
            let advanced = self.advance(link);
            if self.links[link].generation != generation {
                return;
            }
            if let Err(failure) = ended {
                return self.parted(link, failure);
            }
            let Speech::Http2(session) = &self.links[link].speech else { return };
            if !advanced && !session.has_news() {
                return;
            }
        }
    }

    /// Goes on with the answers of a connection; whether anything came of it.
    fn advance(&mut self, link: usize) -> bool {
        let mut advanced = false;
        for index in self.slots_of(link) {
            let lane = index % self.streams;
            let Speech::Http2(session) = &mut self.links[link].speech else { return false };
            let slot = &mut self.slots[index];
            let expect = &self.requests.template(slot.template).expect;
            match session.advance(lane, &mut slot.answer, expect) {
                Progress::Pending => {
                    self.note_first_byte(index);
                    continue;
                }
                Progress::Complete => {
                    let open = session.is_open();
                    self.links[link].hung_up |= !open;
                    self.complete(index, false);
                }
                Progress::Failed(failure) => {
                    let open = session.is_open();
                    self.links[link].hung_up |= !open;
                    match failure {
                        Failure::Unprocessed => self.send_again(index),
                        failure => self.lose(index, class(failure)),
                    }
                }
            }
            advanced = true;
        }
        advanced
    }

    /// One request of several on a connection has failed.
    pub(super) fn lose(&mut self, index: usize, class: Class) {
        let now = self.shared.now();
        self.observe();
        if self.within() {
            self.note_error(class);
        }
        if self.links[self.link_of(index)].hung_up {
            self.leave(index, now);
        } else {
            self.go_on(index, now);
        }
    }

    /// A request that the peer did not process is sent over the next connection.
    fn send_again(&mut self, index: usize) {
        let now = self.shared.now();
        self.slots[index].again = true;
        if self.links[self.link_of(index)].hung_up {
            self.leave(index, now);
        } else {
            self.send(index, now);
        }
    }

    /// The connection is over.
    fn parted(&mut self, link: usize, failure: Failure) {
        if self.slots_of(link).any(|index| self.slots[index].stage == Stage::Busy) {
            self.fail(link, class(failure));
        } else {
            self.replace(link, self.shared.now());
        }
    }

    /// An answer takes too long; those beside it go on.
    pub(super) fn give_up(&mut self, index: usize) {
        let (link, lane) = (self.link_of(index), index % self.streams);
        match &mut self.links[link].speech {
            Speech::Http2(session) => {
                session.cancel(lane);
                self.unwritten.push(link);
                self.lose(index, Class::Timeout);
            }
            _ => self.fail(link, Class::Timeout),
        }
    }
}

fn class(failure: Failure) -> Class {
    match failure {
        Failure::Closed | Failure::Unprocessed => Class::Closed,
        Failure::Socket => Class::Read,
        Failure::Malformed => Class::Malformed,
    }
}

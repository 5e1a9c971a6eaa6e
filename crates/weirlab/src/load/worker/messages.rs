//! WebSocket: connections that become others', and messages.
use super::Worker;
use crate::load::counters::Class;
use crate::load::message::Heard;
use crate::load::slot::{Speech, Stage, State};

impl Worker<'_> {
    /// Asks for a connection to become a WebSocket.
    pub(super) fn upgrade(&mut self, link: usize) {
        let connection = &mut self.links[link];
        let Speech::WebSocket(wire, _) = &mut connection.speech else { return };
        let sent = wire.send(self.stream.next().head());
        connection.state = State::Upgrading;
        if sent.is_err() {
            self.fail(link, Class::Write);
        }
    }

    /// Takes in what has come.
    pub(super) fn listen(&mut self, link: usize) {
        let generation = self.links[link].generation;
        loop {
            let connection = &mut self.links[link];
            let Speech::WebSocket(wire, talk) = &mut connection.speech else { return };
            if connection.generation != generation {
                return;
            }
            let slot = &mut self.slots[link];
            let expect = &self.requests.template(slot.template).expect;
            let heard = talk.hear(wire, &mut slot.answer, expect);
            let (silent, asked) = (talk.is_silent(), slot.stage == Stage::Busy);
            match heard {
                Ok(Heard::Nothing) => return,
                Ok(Heard::Upgraded) => self.opened(link),
                Ok(Heard::Refused) => return self.fail(link, Class::Status),
                Ok(Heard::Message) if asked => self.complete(link, !silent),
                Ok(Heard::Farewell) if asked => return self.fail(link, Class::Closed),
                Ok(Heard::Farewell) => return self.replace(link, self.shared.now()),
                Ok(Heard::Message) | Err(_) => return self.fail(link, Class::Malformed),
            }
        }
    }
}

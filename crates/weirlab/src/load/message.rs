//! One connection's WebSocket: a message there, and the same one back.
use super::Expect;
use super::answer::{Answer, Difference};
use super::request::KEY;
use super::wire::{Fault, Wire};
use crate::websocket::{BINARY, CLOSE, CONTINUATION, Frame, Malformed, PING, PONG, accept, apply_mask};
use weir_http1::{Limits, Method, ResponseHead};

/// Longer messages are errors.
const MAX_MESSAGE_LEN: u64 = 64 << 20;
const LIMITS: Limits = Limits {
    max_head_bytes: 256 * 1024,
    max_fields: Limits::MAX_FIELDS,
    max_target_bytes: 8192,
    max_field_bytes: usize::MAX,
};

/// The state of a connection's handshake and messages.
#[derive(Debug)]
pub(super) struct Talk {
    upgraded: bool,
    /// The status with which the server stayed with HTTP.
    refusal: u16,
    rng: fastrand::Rng,
    /// The message that was sent last.
    sent: Vec<u8>,
    /// How much of it has come back.
    returned: usize,
    same: bool,
    /// What came and is not yet a head or a frame.
    inbox: Vec<u8>,
    outbox: Vec<u8>,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Not enough.
    Nothing,
    /// The connection is a WebSocket from now on.
    Upgraded,
    /// The server stays with HTTP.
    Refused,
    /// The message is back, as a whole.
    Message,
    /// The server says good-bye.
    Farewell,
}

impl Talk {
    pub(super) fn new(seed: u64) -> Talk {
        Talk {
            upgraded: false,
            refusal: 0,
            rng: fastrand::Rng::with_seed(seed),
            sent: Vec::new(),
            returned: 0,
            same: true,
            inbox: Vec::new(),
            outbox: Vec::new(),
        }
    }

    /// Sends a message.
    pub(super) fn send(&mut self, wire: &mut Wire, message: &[u8]) -> Result<(), Fault> {
        self.sent.clear();
        self.sent.extend_from_slice(message);
        (self.returned, self.same) = (0, true);
        self.frame(wire, BINARY, message)
    }

    fn frame(&mut self, wire: &mut Wire, opcode: u8, payload: &[u8]) -> Result<(), Fault> {
        let mask = self.rng.u32(..).to_ne_bytes();
        self.outbox.clear();
        Frame::whole(opcode, Some(mask), payload.len()).write(&mut self.outbox);
        let head = self.outbox.len();
        self.outbox.extend_from_slice(payload);
        apply_mask(&mut self.outbox[head..], mask, 0);
        wire.send(&self.outbox)
    }

    /// Keeps what came until it is heard.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
    }

    /// The status with which the server has refused.
    pub(super) fn refusal(&self) -> u16 {
        self.refusal
    }

    /// The message that came back, as far as it is the one that was sent.
    pub(super) fn last(&self) -> &[u8] {
        if self.same { &self.sent[..self.returned.min(self.sent.len())] } else { &[] }
    }

    /// Whether unexpected bytes follow a complete message.
    pub(super) fn is_silent(&self) -> bool {
        self.inbox.is_empty()
    }

    /// The next of what has come, as far as it is complete.
    pub(super) fn hear(
        &mut self,
        wire: &mut Wire,
        answer: &mut Answer,
        expect: &Expect,
    ) -> Result<Heard, Malformed> {
        if !self.upgraded {
            return self.hear_head();
        }
        loop {
            let Some((frame, head)) = Frame::read(&self.inbox)? else { return Ok(Heard::Nothing) };
            if frame.length > MAX_MESSAGE_LEN || frame.mask.is_some() {
                return Err(Malformed);
            }
            let end = head + frame.length as usize;
            if self.inbox.len() < end {
                return Ok(Heard::Nothing);
            }
            let inbox = std::mem::take(&mut self.inbox);
            let heard = self.hear_frame(wire, frame, &inbox[head..end], answer, expect);
            self.inbox = inbox;
            self.inbox.drain(..end);
            match heard? {
                Heard::Nothing => {}
                heard => return Ok(heard),
            }
        }
    }

    fn hear_head(&mut self) -> Result<Heard, Malformed> {
        let mut head = ResponseHead::default();
        let Some(taken) = head.parse(&self.inbox, &LIMITS, Method::Get).map_err(|_| Malformed)? else {
            return Ok(Heard::Nothing);
        };
        self.inbox.drain(..taken);
        if head.status != 101 {
            self.refusal = head.status;
            return Ok(Heard::Refused);
        }
        let answered = head.headers.get("sec-websocket-accept");
        if answered != Some(accept(KEY.as_bytes()).as_bytes()) {
            return Err(Malformed);
        }
        self.upgraded = true;
        Ok(Heard::Upgraded)
    }

    fn hear_frame(
        &mut self,
        wire: &mut Wire,
        frame: Frame,
        payload: &[u8],
        answer: &mut Answer,
        expect: &Expect,
    ) -> Result<Heard, Malformed> {
        match frame.opcode {
            CLOSE => return Ok(Heard::Farewell),
            PING => {
                // If it cannot be sent, the next message cannot either.
                let _ = self.frame(wire, PONG, payload);
                return Ok(Heard::Nothing);
            }
            PONG => return Ok(Heard::Nothing),
            CONTINUATION if self.returned == 0 && !self.sent.is_empty() => return Err(Malformed),
            _ => {}
        }
        answer.see(payload, expect);
        let rest = &self.sent[self.returned.min(self.sent.len())..];
        self.same &= rest.starts_with(payload);
        self.returned += payload.len();
        if !frame.last {
            return Ok(Heard::Nothing);
        }
        answer.begin(101);
        if !self.same || self.returned != self.sent.len() {
            answer.spoil(Difference::Body);
        }
        Ok(Heard::Message)
    }
}

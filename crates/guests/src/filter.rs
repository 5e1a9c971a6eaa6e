//! Body filters in Lua: a response's body part by part, as it goes to the client.

use crate::call::Guest;
use crate::host::BodyPart;
use crate::phase::Phase;
use std::sync::Arc;
use weir_plugin::{BodyFilter, Exchange};

/// The body filter of a plugin entity, for one response.
pub(crate) struct LuaBodyFilter {
    guest: Arc<Guest>,
    /// What `kong.response.get_raw_body` has withheld.
    collected: Vec<u8>,
    /// The body was ended before its end.
    has_ended: bool,
    /// The code has failed: what follows of the body passes as it is.
    has_failed: bool,
}

impl LuaBodyFilter {
    pub(crate) fn new(guest: Arc<Guest>) -> Self {
        Self { guest, collected: Vec::new(), has_ended: false, has_failed: false }
    }

    fn pass(&mut self, exchange: &mut Exchange, data: Vec<u8>, is_last: bool) -> Vec<u8> {
        if self.has_ended {
            return Vec::new();
        }
        if self.has_failed {
            return data;
        }
        let collected = std::mem::take(&mut self.collected);
        let Some(host) = self.guest.host() else { return [collected, data].concat() };
        host.body.replace(BodyPart { data, is_last, collected });
        self.has_failed = !self.guest.run(exchange, Phase::BodyFilter);
        let part = host.body.take();
        self.has_ended = part.is_last;
        if self.has_failed {
            // Nothing will ask for what was withheld.
            return [part.collected, part.data].concat();
        }
        self.collected = part.collected;
        part.data
    }
}

impl BodyFilter for LuaBodyFilter {
    fn chunk(&mut self, exchange: &mut Exchange, chunk: Vec<u8>) -> Vec<u8> {
        self.pass(exchange, chunk, false)
    }

    fn end(mut self: Box<Self>, exchange: &mut Exchange) -> Vec<u8> {
        self.pass(exchange, Vec::new(), true)
    }
}

//! Whether the frames of a client's control stream may be what they are (RFC 9114, 7.2).

use super::code::Code;
use super::frames::number;

pub(super) const CANCEL_PUSH: u64 = 0x3;
pub(super) const SETTINGS: u64 = 0x4;
pub(super) const GOAWAY: u64 = 0x7;
pub(super) const MAX_PUSH_ID: u64 = 0xd;

/// Settings of HTTP/2 that HTTP/3 has not.
const FORBIDDEN: [u64; 5] = [0x0, 0x2, 0x3, 0x4, 0x5];
/// Settings that are 0 or 1: ENABLE_CONNECT_PROTOCOL (RFC 9220) and H3_DATAGRAM (RFC 9297).
const SWITCHES: [u64; 2] = [0x8, 0x33];

/// What a client has said on its control stream.
#[derive(Default)]
pub(super) struct Control {
    has_settings: bool,
    max_push_id: Option<u64>,
    /// It has said that it asks nothing more.
    pub(super) goaway: Option<u64>,
}

impl Control {
    /// A frame of this type begins.
    pub(super) fn begin(&self, kind: u64) -> Result<(), Code> {
        match kind {
            SETTINGS if self.has_settings => Err(Code::H3_FRAME_UNEXPECTED),
            SETTINGS => Ok(()),
            _ if !self.has_settings => Err(Code::H3_MISSING_SETTINGS),
            // DATA, HEADERS, PUSH_PROMISE, and those of HTTP/2.
            0x0..=0x2 | 0x5 | 0x6 | 0x8 | 0x9 => Err(Code::H3_FRAME_UNEXPECTED),
            _ => Ok(()),
        }
    }

    /// A frame that is whole.
    pub(super) fn frame(&mut self, kind: u64, payload: &[u8]) -> Result<(), Code> {
        match kind {
            SETTINGS => {
                self.has_settings = true;
                settings(payload)
            }
            // Nothing is ever pushed.
            CANCEL_PUSH => only(payload).and(Err(Code::H3_ID_ERROR)),
            MAX_PUSH_ID => {
                let id = only(payload)?;
                match self.max_push_id.replace(id) {
                    Some(before) if id < before => Err(Code::H3_ID_ERROR),
                    _ => Ok(()),
                }
            }
            GOAWAY => {
                let id = only(payload)?;
                match self.goaway.replace(id) {
                    Some(before) if id > before => Err(Code::H3_ID_ERROR),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// The one number that a frame holds.
fn only(payload: &[u8]) -> Result<u64, Code> {
    match number(payload) {
        Some((number, [])) => Ok(number),
        _ => Err(Code::H3_FRAME_ERROR),
    }
}

fn settings(payload: &[u8]) -> Result<(), Code> {
    let (mut rest, mut seen) = (payload, Vec::new());
    while !rest.is_empty() {
        let (identifier, after) = number(rest).ok_or(Code::H3_FRAME_ERROR)?;
        let (value, after) = number(after).ok_or(Code::H3_FRAME_ERROR)?;
        if FORBIDDEN.contains(&identifier) || SWITCHES.contains(&identifier) && value > 1 {
            return Err(Code::H3_SETTINGS_ERROR);
        }
        seen.push(identifier);
        rest = after;
    }
    seen.sort_unstable();
    match seen.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(Code::H3_SETTINGS_ERROR),
        false => Ok(()),
    }
}

//! WebSocket frames (RFC 6455), as far as an echo needs them: the generator sends masked ones, the upstream returns them
//! unmasked.
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// What every server appends to a client's key.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The longest head of a frame.
const MAX_HEAD_LEN: usize = 14;

/// A frame without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Whether it is the last of its message.
    pub(crate) last: bool,
    pub(crate) opcode: u8,
    pub(crate) mask: Option<[u8; 4]>,
    /// Of the payload.
    pub(crate) length: u64,
}

pub(crate) const CONTINUATION: u8 = 0;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

/// What cannot be a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl Frame {
    /// A whole message.
    pub(crate) fn whole(opcode: u8, mask: Option<[u8; 4]>, length: usize) -> Frame {
        Frame { last: true, opcode, mask, length: length as u64 }
    }

    /// Whether it controls the connection, rather than carrying data.
    pub(crate) fn is_control(self) -> bool {
        self.opcode >= CLOSE
    }

    /// Reads the head of a frame and says how many bytes it took; nothing, if more are needed.
    pub(crate) fn read(input: &[u8]) -> Result<Option<(Frame, usize)>, Malformed> {
        let [first, second, rest @ ..] = input else { return Ok(None) };
        let opcode = first & 0x0f;
        let short = second & 0x7f;
        if first & 0x70 != 0 || matches!(opcode, 3..=7 | 11..=15) {
            return Err(Malformed);
        }
        let wide = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let masked = second & 0x80 != 0;
        let Some((extended, rest)) = rest.split_at_checked(wide) else { return Ok(None) };
        let length = match wide {
            0 => u64::from(short),
            _ => extended.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)),
        };
        let mask = match (masked, rest.first_chunk()) {
            (false, _) => None,
            (true, Some(mask)) => Some(*mask),
            (true, None) => return Ok(None),
        };
        let frame = Frame { last: first & 0x80 != 0, opcode, mask, length };
        if frame.is_control() && (length > 125 || !frame.last) || length > i64::MAX as u64 {
            return Err(Malformed);
        }
        Ok(Some((frame, 2 + wide + if masked { 4 } else { 0 })))
    }

    /// Appends the head.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let masked = if self.mask.is_some() { 0x80 } else { 0 };
        out.reserve(MAX_HEAD_LEN);
        out.push(if self.last { 0x80 } else { 0 } | self.opcode);
        match self.length {
            length @ 0..126 => out.push(masked | length as u8),
            length @ 126..65_536 => {
                out.push(masked | 126);
                out.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                out.push(masked | 127);
                out.extend_from_slice(&length.to_be_bytes());
            }
        }
        out.extend_from_slice(&self.mask.unwrap_or_default()[..if self.mask.is_some() { 4 } else { 0 }]);
    }
}

/// Masks a payload, or takes the mask off, from this place in the payload on.
pub(crate) fn apply_mask(payload: &mut [u8], mask: [u8; 4], at: u64) {
    let mut turned = mask;
    turned.rotate_left((at % 4) as usize);
    let [a, b, c, d] = turned;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = payload.as_chunks_mut::<8>();
    for chunk in words {
        *chunk = (u64::from_ne_bytes(*chunk) ^ word).to_ne_bytes();
    }
    rest.iter_mut().zip(turned.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
}

/// What a server answers to a client's key.
pub(crate) fn accept(key: &[u8]) -> String {
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let mut masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        let (frame, head) = Frame::read(&masked).unwrap().unwrap();
        assert_eq!((frame.last, frame.opcode, frame.length, head), (true, 1, 5, 6));
        apply_mask(&mut masked[head..], frame.mask.unwrap(), 0);
        assert_eq!(&masked[head..], b"Hello");
    }

    #[test]
    fn heads_are_read_as_they_are_written() {
        for length in [0, 1, 125, 126, 65_535, 65_536, 1 << 40] {
            for mask in [None, Some([1, 2, 3, 4])] {
                let frame = Frame { last: length % 2 == 0, opcode: BINARY, mask, length };
                let mut out = Vec::new();
                frame.write(&mut out);
                assert_eq!(Frame::read(&out), Ok(Some((frame, out.len()))));
                for part in 0..out.len() {
                    assert_eq!(Frame::read(&out[..part]), Ok(None), "{part}");
                }
            }
        }
    }

    #[test]
    fn a_mask_goes_on_where_it_was() {
        let text: Vec<u8> = (0..100).collect();
        let mut whole = text.clone();
        apply_mask(&mut whole, [9, 8, 7, 6], 0);
        for cut in 0..text.len() {
            let mut parts = text.clone();
            let (one, two) = parts.split_at_mut(cut);
            apply_mask(one, [9, 8, 7, 6], 0);
            apply_mask(two, [9, 8, 7, 6], cut as u64);
            assert_eq!(parts, whole);
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for input in [[0xc1, 0], [0x83, 0], [0x8b, 0], [0x09, 0], [0x89, 126]] {
            assert_eq!(Frame::read(&[&input[..], &[0xff; 9]].concat()), Err(Malformed), "{input:?}");
        }
    }
}

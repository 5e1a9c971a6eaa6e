//! The frames and head fields of HTTP/2, as bytes.

pub(super) const HEAD_BYTES: usize = 9;

/// The longest frame that may be sent to this end, the default of HTTP/2.
pub(super) const MAX_FRAME_LEN: usize = 16_384;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

/// Of DATA and HEADERS; of SETTINGS and PING it says that they were read.
pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;

/// What cannot be HTTP/2.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

pub(super) struct Frame<'i> {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: &'i [u8],
}

impl Frame<'_> {
    pub(super) fn read(input: &[u8]) -> Result<Option<Frame<'_>>, Malformed> {
        let Some((head, rest)) = input.split_at_checked(HEAD_BYTES) else { return Ok(None) };
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        if length > MAX_FRAME_LEN {
            return Err(Malformed);
        }
        let stream = number(&head[5..])? & 0x7fff_ffff;
        Ok(rest.get(..length).map(|payload| Frame { kind: head[3], flags: head[4], stream, payload }))
    }
}

pub(super) fn number(bytes: &[u8]) -> Result<u32, Malformed> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)).ok_or(Malformed)
}

pub(super) fn write_head(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    out.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

pub(super) fn write_credit(out: &mut Vec<u8>, stream: u32, credit: u32) {
    write_head(out, 4, WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&credit.to_be_bytes());
}

/// Appends a field of a head as a literal without indexing.
pub(super) fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.push(0);
    write_text(out, &name.to_ascii_lowercase());
    write_text(out, value);
}

/// Appends the status of a head.
pub(super) fn write_status(out: &mut Vec<u8>, status: u16) {
    // The name is the eighth of the static table.
    out.push(8);
    write_text(out, status.to_string().as_bytes());
}

fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    let mut left = text.len();
    if left < 127 {
        out.push(left as u8);
    } else {
        out.push(127);
        left -= 127;
        while left >= 128 {
            out.push(left as u8 | 0x80);
            left >>= 7;
        }
        out.push(left as u8);
    }
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_have_long_lengths() {
        let mut out = Vec::new();
        write_text(&mut out, &[b'x'; 1337]);
        // The example of the standard, with a prefix of seven bits: 1337 - 127 = 1210 = 0b1001_0111010.
        assert_eq!(out[..3], [127, 0xba, 9]);
        out.clear();
        write_text(&mut out, &[b'x'; 126]);
        assert_eq!(out[0], 126);
    }
}

//! Fields over HTTP/3 (RFC 9204), without a dynamic table: the gateway announces none, so a client may refer to none.

use h3::error::Code;
use weir_net::multiplex::{Message, Name, Verdict, integer, text};

/// What a block of fields means; none where it cannot be decoded.
pub(super) fn read(block: &[u8], is_trailers: bool) -> Option<Verdict> {
    let mut rest = block;
    let insert_count = integer(&mut rest, 8)?;
    integer(&mut rest, 7)?;
    if insert_count != 0 {
        return None;
    }
    let mut message = Message::new(is_trailers);
    let (mut name_room, mut value_room) = (Vec::new(), Vec::new());
    while let Some(first) = rest.first() {
        match first {
            // A field of the static table, a name of it with a value, a name with a value.
            0b1100_0000.. => {
                let name = static_name(integer(&mut rest, 6)?)?;
                let verdict = if name == Name::Status { Verdict::Malformed } else { Verdict::Fine };
                message.field(name, verdict);
            }
            0b0101_0000..0b0110_0000 | 0b0111_0000..0b1000_0000 => {
                let name = static_name(integer(&mut rest, 4)?)?;
                message.field(name, name.verdict(text(&mut rest, 7, &mut value_room)?));
            }
            0b0010_0000..0b0100_0000 => {
                let name = Name::of(text(&mut rest, 3, &mut name_room)?);
                message.field(name, name.verdict(text(&mut rest, 7, &mut value_room)?));
            }
            _ => return None,
        }
    }
    Some(message.verdict())
}

/// What the static table has at a place.
fn static_name(index: usize) -> Option<Name> {
    match index {
        0 => Some(Name::Authority),
        1 => Some(Name::Path),
        15..=21 => Some(Name::Method),
        22..=23 => Some(Name::Scheme),
        24..=28 | 63..=71 => Some(Name::Status),
        2..=14 | 29..=62 | 72..=98 => Some(Name::Other),
        _ => None,
    }
}

/// What a client says of its table: it may make it no larger than it is, and put nothing into it.
pub(super) fn encoder(instructions: &[u8]) -> Result<(), Code> {
    const SET_CAPACITY_0: u8 = 0b0010_0000;
    match instructions.iter().all(|byte| *byte == SET_CAPACITY_0) {
        true => Ok(()),
        false => Err(Code::QPACK_ENCODER_STREAM_ERROR),
    }
}

/// The client's decoder stream. The gateway's table is empty, so only stream cancellations are valid.
#[derive(Default)]
pub(super) struct Decoder {
    /// In the number of a stream.
    in_number: bool,
}

impl Decoder {
    pub(super) fn read(&mut self, instructions: &[u8]) -> Result<(), Code> {
        for byte in instructions {
            self.in_number = match byte {
                _ if self.in_number => byte & 0x80 != 0,
                // Stream Cancellation.
                0b0100_0000..0b1000_0000 => byte & 0x3f == 0x3f,
                _ => return Err(Code::QPACK_DECODER_STREAM_ERROR),
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GET of `/` from `a`.
    const GET: &[u8] = b"\0\0\xd1\xd7\xc1\x50\x01a";

    #[test]
    fn blocks_refer_to_the_static_table_alone() {
        let with = |more: &[u8]| read(&[GET, more].concat(), false);
        assert_eq!(with(b""), Some(Verdict::Fine));
        assert_eq!(with(b"\xc1"), Some(Verdict::Malformed));
        assert_eq!(with(b"\xd8"), Some(Verdict::Malformed));
        assert_eq!(with(b"\x21x\x01y"), Some(Verdict::Fine));
        assert_eq!(with(b"\x21X\x01y"), Some(Verdict::Malformed));
        assert_eq!(with(b"\x51\x02/#"), Some(Verdict::Malformed));
        assert_eq!(read(b"\0\0\xd1\xd7\x51\x02/#", false), Some(Verdict::Fragment));
        // A coded name.
        assert_eq!(with(b"\x29\x1f\x01y"), Some(Verdict::Fine));
        // The dynamic table: a field, one behind the base, names of both; no entry of the static table; cut off.
        for more in [&b"\x80"[..], b"\x10", b"\x40\x01y", b"\x00\x01y", b"\xff\x24", b"\x21x\x02y", b"\x21x"]
        {
            assert_eq!(with(more), None, "{more:?}");
        }
        assert_eq!(read(b"\x01\0\xd1", false), None);
        assert_eq!(read(b"\0", false), None);
    }

    #[test]
    fn instructions_that_need_a_table_are_refused() {
        assert_eq!(encoder(b"\x20\x20"), Ok(()));
        for instructions in [&b"\x00"[..], b"\x21", b"\x3f\xe1\x1f", b"\xc0\x01x", b"\x41x\x01y"] {
            assert_eq!(encoder(instructions), Err(Code::QPACK_ENCODER_STREAM_ERROR), "{instructions:?}");
        }
    }

    #[test]
    fn a_client_may_cancel_streams_and_acknowledge_nothing() {
        let instructions = b"\x44\x7f\x81\x00\x40";
        for size in 1..=instructions.len() {
            let mut decoder = Decoder::default();
            assert!(instructions.chunks(size).all(|piece| decoder.read(piece).is_ok()), "by {size}");
        }
        for instructions in [&b"\x00"[..], b"\x01", b"\x80", b"\x44\x84"] {
            assert_eq!(Decoder::default().read(instructions), Err(Code::QPACK_DECODER_STREAM_ERROR));
        }
    }
}

//! What passes of a client's stream to the `h3` crate: it would hold whole frames however long they are, and take empty
//! ones, or a stream that ends within one, for the end of a body. Whenever a piece of a head comes, it would count all
//! that came before, and each piece would keep the datagram that it came in.

use super::control::Control;
use super::qpack;
use bytes::{Buf, Bytes, BytesMut};
use h3::error::Code;
use weir_net::multiplex::Verdict;

const DATA: u64 = 0x0;
const HEADERS: u64 = 0x1;
/// Those that are known otherwise, or reserved since HTTP/2 has them: the crate says what is wrong with each.
const OTHERS: [u64; 9] = [0x2, 0x3, 0x4, 0x5, 0x6, 0x7, 0x8, 0x9, 0xd];

/// The longest HEADERS behind a body: of trailers the engine takes less.
const MAX_TRAILERS_LEN: u64 = 32 * 1024;

/// Frames on their way to the `h3` crate.
pub(super) struct Frames {
    at: At,
    of: Of,
    /// Received, and not looked at yet.
    rest: Bytes,
    /// The beginning of a frame that passes when it is whole.
    begun: BytesMut,
    /// The longest frame, but for DATA.
    longest: u64,
    /// Bytes of bodies that passed.
    body: u64,
    /// Bytes of other frames that came.
    heads: usize,
}

/// What frames are of.
pub(super) enum Of {
    Request(Fields),
    Control(Control),
}

/// What the fields of a request are, as far as they came.
#[derive(Default)]
pub(super) struct Fields {
    /// Its head is here.
    has_head: bool,
    /// Its path has a `#`.
    has_fragment: bool,
}

enum At {
    /// In the type and length of a frame.
    Begin(Prefix),
    /// In a frame, of which so much is left.
    Within { left: u64, kind: u64, fate: Fate },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Body,
    Head,
    Skipped,
}

/// Two numbers, as far as they are here.
#[derive(Default)]
struct Prefix {
    bytes: [u8; 16],
    len: usize,
}

impl Prefix {
    /// Takes a byte; the type and the length, once both are here.
    fn push(&mut self, byte: u8) -> Option<(u64, u64)> {
        self.bytes[self.len] = byte;
        self.len += 1;
        let (kind, rest) = number(&self.bytes[..self.len])?;
        Some((kind, number(rest)?.0))
    }
}

/// The number that the bytes begin with, and what follows (RFC 9000, 16).
pub(super) fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = *bytes.first()?;
    let (number, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    let value = number[1..].iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, rest))
}

impl Frames {
    /// The frames of a stream whose heads may be so long.
    pub(super) fn new(of: Of, longest: u64) -> Self {
        Self {
            at: At::Begin(Prefix::default()),
            of,
            rest: Bytes::new(),
            begun: BytesMut::new(),
            longest,
            body: 0,
            heads: 0,
        }
    }

    /// What was received, once all before it has passed.
    pub(super) fn receive(&mut self, bytes: Bytes) {
        self.rest = bytes;
    }

    /// Whether the stream may end here.
    pub(super) fn may_end(&self) -> bool {
        matches!(&self.at, At::Begin(prefix) if prefix.len == 0)
    }

    /// Bytes of bodies that passed.
    pub(super) fn body(&self) -> u64 {
        self.body
    }

    /// Bytes of other frames that came.
    pub(super) fn heads(&self) -> usize {
        self.heads
    }

    /// Whether the path of the request has a `#`.
    pub(super) fn has_fragment(&self) -> bool {
        matches!(self.of, Of::Request(Fields { has_fragment: true, .. }))
    }

    /// The next piece that passes.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, Code> {
        while !self.rest.is_empty() {
            let passed = match &mut self.at {
                At::Begin(prefix) => match prefix.push(self.rest.get_u8()) {
                    Some(frame) => self.begin(frame)?,
                    None => None,
                },
                At::Within { .. } => self.go_on()?,
            };
            if passed.is_some() {
                return Ok(passed);
            }
        }
        Ok(None)
    }

    /// A frame begins, of this type and length: what passes of that.
    fn begin(&mut self, (kind, length): (u64, u64)) -> Result<Option<Bytes>, Code> {
        let fate = match kind {
            DATA if length == 0 => Fate::Skipped,
            DATA => Fate::Body,
            HEADERS => Fate::Head,
            kind if OTHERS.contains(&kind) => Fate::Head,
            _ => Fate::Skipped,
        };
        self.of.begin(kind)?;
        if fate == Fate::Head && length > self.longest {
            return Err(Code::H3_EXCESSIVE_LOAD);
        }
        if fate == Fate::Head && length == 0 {
            self.of.frame(kind, b"")?;
        }
        if kind == HEADERS {
            self.longest = self.longest.min(MAX_TRAILERS_LEN);
        }
        let next = match length {
            0 => At::Begin(Prefix::default()),
            left => At::Within { left, kind, fate },
        };
        let At::Begin(prefix) = std::mem::replace(&mut self.at, next) else { return Ok(None) };
        Ok((fate != Fate::Skipped).then(|| Bytes::copy_from_slice(&prefix.bytes[..prefix.len])))
    }

    fn go_on(&mut self) -> Result<Option<Bytes>, Code> {
        let At::Within { left, kind, fate } = &mut self.at else { return Ok(None) };
        let here = self.rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        let (piece, kind, fate) = (self.rest.split_to(here), *kind, *fate);
        *left -= here as u64;
        let is_whole = *left == 0;
        if is_whole {
            self.at = At::Begin(Prefix::default());
        }
        match fate {
            Fate::Body => self.body += here as u64,
            Fate::Head => {
                self.heads += here;
                let whole = self.gather(piece, is_whole);
                if let Some(payload) = &whole {
                    self.of.frame(kind, payload)?;
                }
                return Ok(whole);
            }
            Fate::Skipped => return Ok(None),
        }
        Ok(Some(piece))
    }

    fn gather(&mut self, piece: Bytes, is_whole: bool) -> Option<Bytes> {
        if is_whole && self.begun.is_empty() {
            return Some(piece);
        }
        self.begun.extend_from_slice(&piece);
        is_whole.then(|| std::mem::take(&mut self.begun).freeze())
    }
}

impl Of {
    /// A frame of this type begins.
    fn begin(&self, kind: u64) -> Result<(), Code> {
        match self {
            Self::Control(control) => control.begin(kind),
            Self::Request(_) if kind != HEADERS && OTHERS.contains(&kind) => Err(Code::H3_FRAME_UNEXPECTED),
            Self::Request(_) => Ok(()),
        }
    }

    /// A frame that is whole, and neither DATA nor of an unknown type.
    fn frame(&mut self, kind: u64, payload: &[u8]) -> Result<(), Code> {
        match self {
            Self::Control(control) => control.frame(kind, payload),
            Self::Request(fields) => fields.read(payload),
        }
    }
}

impl Fields {
    /// Sees whether the head or the trailers may stand as they are.
    fn read(&mut self, block: &[u8]) -> Result<(), Code> {
        let is_trailers = std::mem::replace(&mut self.has_head, true);
        match qpack::read(block, is_trailers).ok_or(Code::QPACK_DECOMPRESSION_FAILED)? {
            Verdict::Malformed => Err(Code::H3_MESSAGE_ERROR),
            Verdict::OfConnection if is_trailers => Err(Code::H3_MESSAGE_ERROR),
            // In a head it is answered.
            Verdict::OfConnection | Verdict::Fine => Ok(()),
            Verdict::Fragment => {
                self.has_fragment = true;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What passes of a stream that comes in pieces of this size, and whether it may end there.
    fn passed(stream: &[u8], size: usize) -> Result<(Vec<u8>, bool), Code> {
        let (mut frames, mut passed) = (Frames::new(Of::Request(Fields::default()), 4), Vec::new());
        for piece in stream.chunks(size) {
            frames.receive(Bytes::copy_from_slice(piece));
            while let Some(piece) = frames.next()? {
                passed.extend_from_slice(&piece);
            }
        }
        Ok((passed, frames.may_end()))
    }

    #[test]
    fn what_the_crate_must_not_see_is_left_out_however_it_is_cut() {
        let cases: [(&[u8], &[u8], bool); 7] = [
            (b"\x01\x02\0\0\x00\x03cde", b"\x01\x02\0\0\x00\x03cde", true),
            (b"\x00\x00\x00\x01a", b"\x00\x01a", true),
            (b"\x21\x05skips\x00\x01a", b"\x00\x01a", true),
            (b"\x40\x41\x03abc\x01\x02\0\0", b"\x01\x02\0\0", true),
            (b"\x00\x05ab", b"\x00\x05ab", false),
            (b"\x00\x40\x06abcdef", b"\x00\x40\x06abcdef", true),
            (b"\x01", b"", false),
        ];
        for (stream, expected, may_end) in cases {
            for size in 1..=stream.len() {
                assert_eq!(passed(stream, size), Ok((expected.to_vec(), may_end)), "{stream:?} by {size}");
            }
        }
    }

    #[test]
    fn a_head_passes_in_one_piece_however_it_is_cut() {
        let (mut frames, mut pieces) = (Frames::new(Of::Request(Fields::default()), 100), Vec::new());
        for byte in b"\x01\x05\0\0\xd1\xd7\xc1\x00\x02ab\x01\x02\0\0" {
            frames.receive(Bytes::copy_from_slice(&[*byte]));
            while let Some(piece) = frames.next().unwrap() {
                pieces.push(piece);
            }
        }
        let expected: [&[u8]; 7] =
            [b"\x01\x05", b"\0\0\xd1\xd7\xc1", b"\x00\x02", b"a", b"b", b"\x01\x02", b"\0\0"];
        assert_eq!((pieces.as_slice(), frames.heads()), (expected.map(Bytes::from_static).as_slice(), 7));
    }

    #[test]
    fn a_head_that_is_too_long_is_refused_before_it_comes() {
        assert_eq!(passed(b"\x01\x05", 1), Err(Code::H3_EXCESSIVE_LOAD));
        assert_eq!(passed(b"\x01\xff\xff\xff\xff\xff\xff\xff\xff", 3), Err(Code::H3_EXCESSIVE_LOAD));
        assert!(passed(b"\x00\x05", 1).is_ok());
    }

    proptest! {
        /// Small numbers, so that there are frames of every kind.
        #[test]
        fn what_passes_does_not_depend_on_how_it_is_cut(
            stream in proptest::collection::vec(prop_oneof![3 => 0_u8..8, 1 => any::<u8>()], 0..200),
            size in 1_usize..50,
        ) {
            prop_assert_eq!(passed(&stream, size), passed(&stream, 1));
        }
    }
}

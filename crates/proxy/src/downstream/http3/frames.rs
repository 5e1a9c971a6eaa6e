//! The frames of a client's stream. None is held that is longer than it may be, and a head is read when all of it is here,
//! so that it does not keep the datagrams that it came in.

use super::code::Code;
use super::control::Control;
use super::qpack::{self, Received};
use bytes::{Buf, Bytes, BytesMut};
use weir_net::multiplex::Verdict;

const DATA: u64 = 0x0;
const HEADERS: u64 = 0x1;
/// Those that are known otherwise, or reserved since HTTP/2 has them.
const OTHERS: [u64; 9] = [0x2, 0x3, 0x4, 0x5, 0x6, 0x7, 0x8, 0x9, 0xd];

/// The longest HEADERS behind a body: of trailers the engine takes less.
const MAX_TRAILERS_LEN: u64 = 32 * 1024;

/// What a frame of a request brings.
#[derive(Debug)]
pub(super) enum Piece {
    /// The head, or trailers.
    Fields(Box<Received>),
    /// Some of the body.
    Data(Bytes),
}

/// The frames of a stream.
pub(super) struct Frames {
    at: At,
    of: Of,
    /// Received, and not looked at yet.
    rest: Bytes,
    /// The beginning of a frame that is read when it is whole.
    begun: BytesMut,
    /// The longest frame, but for DATA.
    longest: u64,
    /// Bytes of frames that came, but for DATA.
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
    has_trailers: bool,
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
            heads: 0,
        }
    }

    /// What was received, once all before it was taken.
    pub(super) fn receive(&mut self, bytes: Bytes) {
        self.rest = bytes;
    }

    /// Whether the stream may end here.
    pub(super) fn may_end(&self) -> bool {
        matches!(&self.at, At::Begin(prefix) if prefix.len == 0)
    }

    /// Bytes of frames that came, but for DATA.
    pub(super) fn heads(&self) -> usize {
        self.heads
    }

    /// What a control stream has said so far.
    pub(super) fn control(&self) -> Option<&Control> {
        match &self.of {
            Of::Control(control) => Some(control),
            Of::Request(_) => None,
        }
    }

    /// The next piece. Frames that bring none are taken on the way.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, Code> {
        while !self.rest.is_empty() {
            let piece = match &mut self.at {
                At::Begin(prefix) => match prefix.push(self.rest.get_u8()) {
                    Some(frame) => self.begin(frame)?,
                    None => None,
                },
                At::Within { .. } => self.go_on()?,
            };
            if piece.is_some() {
                return Ok(piece);
            }
        }
        Ok(None)
    }

    /// A frame begins, of this type and length.
    fn begin(&mut self, (kind, length): (u64, u64)) -> Result<Option<Piece>, Code> {
        let fate = match kind {
            DATA => Fate::Body,
            HEADERS => Fate::Head,
            kind if OTHERS.contains(&kind) => Fate::Head,
            _ => Fate::Skipped,
        };
        self.of.begin(kind)?;
        if fate == Fate::Head && length > self.longest {
            return Err(Code::H3_EXCESSIVE_LOAD);
        }
        if kind == HEADERS {
            self.longest = self.longest.min(MAX_TRAILERS_LEN);
        }
        if length == 0 {
            self.at = At::Begin(Prefix::default());
            return if fate == Fate::Head { self.of.frame(kind, b"") } else { Ok(None) };
        }
        self.at = At::Within { left: length, kind, fate };
        Ok(None)
    }

    fn go_on(&mut self) -> Result<Option<Piece>, Code> {
        let At::Within { left, kind, fate } = &mut self.at else { return Ok(None) };
        let here = self.rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        let (piece, kind, fate) = (self.rest.split_to(here), *kind, *fate);
        *left -= here as u64;
        let is_whole = *left == 0;
        if is_whole {
            self.at = At::Begin(Prefix::default());
        }
        match fate {
            Fate::Body => Ok(Some(Piece::Data(piece))),
            Fate::Skipped => Ok(None),
            Fate::Head => {
                self.heads += here;
                match self.gather(piece, is_whole) {
                    Some(payload) => self.of.frame(kind, &payload),
                    None => Ok(None),
                }
            }
        }
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
        let is_fine = match self {
            Self::Control(control) => return control.begin(kind),
            Self::Request(fields) if kind == DATA => fields.has_head && !fields.has_trailers,
            Self::Request(fields) if kind == HEADERS => !fields.has_trailers,
            Self::Request(_) => !OTHERS.contains(&kind),
        };
        if is_fine { Ok(()) } else { Err(Code::H3_FRAME_UNEXPECTED) }
    }

    /// A frame that is whole, and neither DATA nor of an unknown type.
    fn frame(&mut self, kind: u64, payload: &[u8]) -> Result<Option<Piece>, Code> {
        match self {
            Self::Control(control) => control.frame(kind, payload).map(|()| None),
            Self::Request(fields) => fields.read(payload).map(|fields| Some(Piece::Fields(fields.into()))),
        }
    }
}

impl Fields {
    /// Reads the head or the trailers, if they may stand as they are.
    fn read(&mut self, block: &[u8]) -> Result<Received, Code> {
        let is_trailers = std::mem::replace(&mut self.has_head, true);
        self.has_trailers = is_trailers;
        let received = qpack::read(block, is_trailers).ok_or(Code::QPACK_DECOMPRESSION_FAILED)?;
        match received.verdict {
            Verdict::Malformed => Err(Code::H3_MESSAGE_ERROR),
            Verdict::OfConnection if is_trailers => Err(Code::H3_MESSAGE_ERROR),
            _ if is_trailers && received.size == usize::MAX => Err(Code::H3_EXCESSIVE_LOAD),
            // In a head it is answered.
            Verdict::OfConnection | Verdict::Fine | Verdict::Fragment => Ok(received),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// GET of `/` from `a`.
    const GET: &[u8] = b"\x01\x08\0\0\xd1\xd7\xc1\x50\x01a";

    /// What is in a stream that comes in pieces of this size, and whether it may end there: `H` for a head or trailers,
    /// and the body.
    fn read(stream: &[u8], size: usize) -> Result<(Vec<u8>, bool), Code> {
        let (mut frames, mut read) = (Frames::new(Of::Request(Fields::default()), 8), Vec::new());
        for piece in stream.chunks(size) {
            frames.receive(Bytes::copy_from_slice(piece));
            while let Some(piece) = frames.next()? {
                match piece {
                    Piece::Fields(_) => read.push(b'H'),
                    Piece::Data(data) => read.extend_from_slice(&data),
                }
            }
        }
        Ok((read, frames.may_end()))
    }

    fn after_head(stream: &[u8]) -> Vec<u8> {
        [GET, stream].concat()
    }

    #[test]
    fn what_is_read_does_not_depend_on_how_it_is_cut() {
        let cases: [(&[u8], &[u8], bool); 8] = [
            (b"", b"H", true),
            (b"\x00\x03cde\x01\x02\0\0", b"HcdeH", true),
            (b"\x00\x00\x00\x01a", b"Ha", true),
            (b"\x21\x05skips\x00\x01a", b"Ha", true),
            (b"\x40\x41\x03abc\x01\x02\0\0", b"HH", true),
            (b"\x00\x05ab", b"Hab", false),
            (b"\x00\x40\x06abcdef", b"Habcdef", true),
            (b"\x01", b"H", false),
        ];
        for (stream, expected, may_end) in cases {
            let stream = after_head(stream);
            for size in 1..=stream.len() {
                assert_eq!(read(&stream, size), Ok((expected.to_vec(), may_end)), "{stream:?} by {size}");
            }
        }
    }

    #[test]
    fn frames_have_an_order() {
        assert_eq!(read(b"\x00\x01a", 1), Err(Code::H3_FRAME_UNEXPECTED));
        for frames in [&b"\x00\x01a"[..], b"\x01\x02\0\0"] {
            let stream = after_head(&[b"\x01\x02\0\0", frames].concat());
            assert_eq!(read(&stream, 1), Err(Code::H3_FRAME_UNEXPECTED), "{frames:?}");
        }
    }

    #[test]
    fn a_head_that_is_too_long_is_refused_before_it_comes() {
        assert_eq!(read(b"\x01\x09", 1), Err(Code::H3_EXCESSIVE_LOAD));
        assert_eq!(read(b"\x01\xff\xff\xff\xff\xff\xff\xff\xff", 3), Err(Code::H3_EXCESSIVE_LOAD));
        assert!(read(&after_head(b"\x00\x09"), 1).is_ok());
    }

    proptest! {
        /// Small numbers, so that there are frames of every kind.
        #[test]
        fn nothing_depends_on_how_it_is_cut(
            stream in proptest::collection::vec(prop_oneof![3 => 0_u8..8, 1 => any::<u8>()], 0..200),
            size in 1_usize..50,
        ) {
            let stream = after_head(&stream);
            prop_assert_eq!(read(&stream, size), read(&stream, 1));
        }
    }
}

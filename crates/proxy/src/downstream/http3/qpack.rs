//! Reads the fields of requests (RFC 9204), without a dynamic table: the gateway announces none, so a client may refer to
//! none.

use super::code::Code;
use super::static_table::{Entry, entry};
use http::uri::{self, Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Uri};
use weir_http1::Limits;
use weir_net::multiplex::{Fields, Message, Name, Verdict, integer, text};

/// What a field takes of the size of a head, beside its name and its value (RFC 9114, 4.2.2).
const FIELD_BYTES: usize = 32;
/// The fewest bytes that most fields take.
const SMALL_FIELD: usize = 16;

/// The head of a request, or its trailers.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) verdict: Verdict,
    /// As RFC 9114 (4.2.2) counts it.
    pub(super) size: usize,
    method: Option<Method>,
    scheme: Option<Scheme>,
    authority: Option<Authority>,
    path: Option<PathAndQuery>,
    pub(super) fields: HeaderMap,
}

/// A block of fields that is being read.
struct Reading {
    message: Message,
    received: Received,
    /// Of fields that follow those of HTTP itself, if any do.
    fields: Option<Fields>,
    /// How many of them came.
    count: usize,
    /// Bytes of the block.
    bytes: usize,
}

/// What a block of fields means; none where it cannot be decoded.
pub(super) fn read(block: &[u8], is_trailers: bool) -> Option<Received> {
    let mut rest = block;
    let insert_count = integer(&mut rest, 8)?;
    let is_negative = rest.first()? & 0x80 != 0;
    integer(&mut rest, 7)?;
    if insert_count != 0 || is_negative {
        return None;
    }
    let mut reading = Reading::new(block.len(), is_trailers);
    let (mut name_room, mut value_room) = (Vec::new(), Vec::new());
    while let Some(first) = rest.first() {
        match first {
            // A field of the static table, a name of it with a value, a name with a value.
            0b1100_0000.. => {
                let (kind, name, value) = entry(integer(&mut rest, 6)?)?;
                reading.take(kind, name.as_bytes(), value.as_bytes());
            }
            0b0101_0000..0b0110_0000 | 0b0111_0000..0b1000_0000 => {
                let (kind, name, _): Entry = entry(integer(&mut rest, 4)?)?;
                reading.take(kind, name.as_bytes(), text(&mut rest, 7, &mut value_room)?);
            }
            0b0010_0000..0b0100_0000 => {
                let name = text(&mut rest, 3, &mut name_room)?;
                reading.take(Name::of(name), name, text(&mut rest, 7, &mut value_room)?);
            }
            _ => return None,
        }
    }
    Some(reading.end())
}

impl Reading {
    fn new(bytes: usize, is_trailers: bool) -> Self {
        let received = Received {
            verdict: Verdict::Fine,
            size: 0,
            method: None,
            scheme: None,
            authority: None,
            path: None,
            fields: HeaderMap::new(),
        };
        Self { message: Message::new(is_trailers), received, fields: None, count: 0, bytes }
    }

    fn take(&mut self, kind: Name, name: &[u8], value: &[u8]) {
        let mut verdict = kind.verdict(value);
        let received = &mut self.received;
        received.size = received.size.saturating_add(name.len() + value.len() + FIELD_BYTES);
        let is_sound = match kind {
            _ if verdict == Verdict::Malformed => false,
            Name::Method => keep(&mut received.method, value),
            Name::Scheme => keep(&mut received.scheme, value),
            Name::Authority => keep(&mut received.authority, value),
            Name::Path => !value.is_empty() && keep(&mut received.path, value),
            // It opens tunnels that are not offered.
            Name::Protocol => false,
            _ => {
                self.count += 1;
                if self.count > Limits::MAX_FIELDS {
                    // More are taken of no message, and `HeaderMap` panics if it gets too many.
                    received.size = usize::MAX;
                } else {
                    let room = (self.bytes / SMALL_FIELD).min(Limits::MAX_FIELDS);
                    let room = || Fields::with_room(room, self.bytes);
                    self.fields.get_or_insert_with(room).append(name, value);
                }
                true
            }
        };
        if !is_sound {
            verdict = Verdict::Malformed;
        }
        self.message.field(kind, verdict);
    }

    fn end(mut self) -> Received {
        self.received.verdict = self.message.verdict();
        self.received.fields = self.fields.map(|fields| fields.map).unwrap_or_default();
        self.received
    }
}

/// Keeps a value, if it may be one.
fn keep<'v, T: TryFrom<&'v [u8]>>(place: &mut Option<T>, value: &'v [u8]) -> bool {
    *place = T::try_from(value).ok();
    place.is_some()
}

impl Received {
    /// Its path has a `#`.
    pub(super) fn has_fragment(&self) -> bool {
        self.verdict == Verdict::Fragment
    }

    /// The request that this is the head of, if it says where that goes (RFC 9114, 4.3.1).
    pub(super) fn into_request(self) -> Option<Request<()>> {
        let host = self.fields.get(http::header::HOST);
        let authority = match (self.authority, host) {
            (None, None) => return None,
            (Some(authority), Some(host)) if *host != *authority.as_str() => return None,
            (Some(authority), _) => authority,
            (None, Some(host)) => Authority::try_from(host.as_bytes()).ok()?,
        };
        let mut parts = uri::Parts::default();
        (parts.scheme, parts.authority, parts.path_and_query) = (self.scheme, Some(authority), self.path);
        let mut request = Request::new(());
        *request.method_mut() = self.method?;
        *request.uri_mut() = Uri::from_parts(parts).ok()?;
        *request.headers_mut() = self.fields;
        Some(request)
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

    fn verdict(block: &[u8]) -> Option<Verdict> {
        read(block, false).map(|received| received.verdict)
    }

    #[test]
    fn blocks_refer_to_the_static_table_alone() {
        let with = |more: &[u8]| verdict(&[GET, more].concat());
        assert_eq!(with(b""), Some(Verdict::Fine));
        assert_eq!(with(b"\xc1"), Some(Verdict::Malformed));
        assert_eq!(with(b"\xd8"), Some(Verdict::Malformed));
        assert_eq!(with(b"\x21x\x01y"), Some(Verdict::Fine));
        assert_eq!(with(b"\x21X\x01y"), Some(Verdict::Malformed));
        assert_eq!(with(b"\x51\x02/#"), Some(Verdict::Malformed));
        assert_eq!(verdict(b"\0\0\xd1\xd7\x51\x02/#"), Some(Verdict::Fragment));
        // A coded name.
        assert_eq!(with(b"\x29\x1f\x01y"), Some(Verdict::Fine));
        // The dynamic table: a field, one behind the base, names of both; no entry of the static table; cut off.
        for more in [&b"\x80"[..], b"\x10", b"\x40\x01y", b"\x00\x01y", b"\xff\x24", b"\x21x\x02y", b"\x21x"]
        {
            assert_eq!(with(more), None, "{more:?}");
        }
        assert_eq!(verdict(b"\x01\0\xd1"), None);
        assert_eq!(verdict(b"\0"), None);
    }

    #[test]
    fn a_head_says_what_is_asked_and_where() {
        let request = |more: &[u8]| read(&[b"\0\0", more].concat(), false).unwrap().into_request();
        let get = request(&GET[2..]).unwrap();
        assert_eq!((get.method().as_str(), get.uri().to_string()), ("GET", "https://a/".to_owned()));
        let named = request(b"\xd1\xd7\x51\x04/x?y\x24host\x01b\x23x-a\x01c").unwrap();
        assert_eq!(named.uri().to_string(), "https://b/x?y");
        assert_eq!(named.headers()["x-a"], "c");
        // Without an authority, with two, without a method, without a scheme.
        for head in [
            &b"\xd1\xd7\xc1"[..],
            b"\xd1\xd7\xc1\x50\x01a\x24host\x01b",
            b"\xd7\xc1\x50\x01a",
            b"\xd1\xc1\x50\x01a",
        ] {
            assert!(request(head).is_none(), "{head:?}");
        }
        assert_eq!(read(GET, false).unwrap().size, 4 * 32 + 39);
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

    #[test]
    fn a_head_may_have_any_number_of_names() {
        let (mut block, letters) = (GET.to_vec(), b"0123456789abcdefghijklmnopqrst");
        for number in 0..26_000 {
            let name = [number / 900, number / 30 % 30, number % 30].map(|at| letters[at]);
            block.extend_from_slice(&[&[0x23][..], &name, &[0]].concat());
        }
        let received = read(&block, false).unwrap();
        assert_eq!((received.size, received.fields.len()), (usize::MAX, Limits::MAX_FIELDS));
    }
}

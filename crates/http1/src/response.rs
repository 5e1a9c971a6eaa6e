//! Response heads.

use std::mem::MaybeUninit;

use crate::encode;
use crate::fields::{Headers, MAX_RETAINED_BYTES};
use crate::framing::{Framing, FramingFields};
use crate::known::Known;
use crate::marks::Marks;
use crate::message::{Limits, Method, Version};
use crate::parse_error::ParseError;
use crate::scan::Scan;
use crate::syntax::field_error;

/// The head of a response. Keep it and parse into it again: each [`ResponseHead::parse`] replaces what it holds.
#[derive(Clone, Debug, Default)]
pub struct ResponseHead {
    /// The status code, 100 to 999; 0 before there is one.
    pub status: u16,
    /// The protocol version.
    pub version: Version,
    /// The fields; without Content-Length where the status forbids it (1xx, 204).
    pub headers: Headers,
    /// How the body is delimited.
    pub framing: Framing,
    /// Whether the connection can carry another exchange once the body was read.
    pub keep_alive: bool,
    /// Whether the connection now belongs to another protocol: 101, or 2xx to CONNECT.
    pub upgrade: bool,
    reason: Reason,
    scan: Scan,
}

/// The reason phrase, where it is not the registered one of its status.
#[derive(Clone, Debug, Default)]
struct Reason {
    /// The status that it came with; 0 if it is the registered one.
    status: u16,
    text: Vec<u8>,
}

impl Reason {
    /// Keeps that of a status line.
    #[inline]
    fn keep(&mut self, status: u16, line: &[u8]) {
        self.status = 0;
        if !encode::is_registered(status, line) {
            self.keep_other(status, line.get("HTTP/1.1 200 ".len()..).unwrap_or_default());
        }
    }

    #[cold]
    fn keep_other(&mut self, status: u16, text: &[u8]) {
        self.status = status;
        self.text.clear();
        self.text.shrink_to(MAX_RETAINED_BYTES);
        self.text.extend_from_slice(text);
    }
}

impl ResponseHead {
    /// Reads the head of a response to `request_method` from the start of `input`: `Some(n)` when it is complete and
    /// took `n` bytes, `None` when more bytes are needed, as [`crate::RequestHead::parse`] does.
    pub fn parse(
        &mut self,
        input: &[u8],
        limits: &Limits,
        request_method: Method,
    ) -> Result<Option<usize>, ParseError> {
        if self.scan.is_fresh()
            && let Some(end) = self.read_plain(input, limits)
        {
            self.read_framing(request_method)?;
            return Ok(Some(end));
        }
        let Some(end) = self.scan.response(input, limits)? else { return Ok(None) };
        self.clear();
        self.read(&input[..end], limits)?;
        self.read_framing(request_method)?;
        Ok(Some(end))
    }

    /// Empties the head and discards a partial one; the memory is kept.
    pub fn clear(&mut self) {
        self.scan.reset();
        self.status = 0;
        self.headers.clear();
        self.reason.status = 0;
    }

    /// The reason phrase as sent, if it is not the registered one of the status; none if the status was changed since.
    pub fn other_reason(&self) -> Option<&[u8]> {
        (self.reason.status != 0 && self.reason.status == self.status).then_some(&self.reason.text)
    }

    /// Reads a plain head. None, and an empty head, if the other parser has to decide.
    #[inline]
    fn read_plain(&mut self, input: &[u8], limits: &Limits) -> Option<usize> {
        self.headers.clear();
        let mut marks = Marks::default();
        if !marks.find(input) {
            return None;
        }
        let head = &input[..marks.len()];
        if head.len() > limits.max_head_bytes {
            return None;
        }
        let line = marks.ends().next()?;
        let (version, status) = plain_status_line(&head[..line])?;
        (self.version, self.status) = (version, status);
        self.reason.keep(status, &head[..line]);
        self.headers.load_plain(head, line + 2, &marks, limits).then_some(head.len())
    }

    fn read(&mut self, head: &[u8], limits: &Limits) -> Result<(), ParseError> {
        let mut slots = [const { MaybeUninit::uninit() }; Limits::FEW_FIELDS];
        let slots = &mut slots[..limits.max_fields.min(Limits::FEW_FIELDS)];
        let mut parsed = httparse::Response::new(&mut []);
        match lenient().parse_response_with_uninit_headers(&mut parsed, head, slots) {
            Ok(httparse::Status::Complete(length)) if length == head.len() => {
                self.take(head, limits, &parsed, parsed.headers)
            }
            Err(httparse::Error::TooManyHeaders) => self.read_many(head, limits),
            Ok(_) => Err(ParseError::StatusLine),
            Err(error) => Err(field_error(head, error).unwrap_or_else(|| status_line_error(head))),
        }
    }

    /// Reads a head of many fields.
    #[cold]
    #[inline(never)]
    fn read_many(&mut self, head: &[u8], limits: &Limits) -> Result<(), ParseError> {
        let mut slots = vec![httparse::EMPTY_HEADER; limits.max_fields.min(Limits::MAX_FIELDS)];
        let mut parsed = httparse::Response::new(&mut slots);
        match lenient().parse_response(&mut parsed, head) {
            Ok(httparse::Status::Complete(length)) if length == head.len() => {
                self.take(head, limits, &parsed, parsed.headers)
            }
            Ok(_) => Err(ParseError::StatusLine),
            Err(error) => Err(field_error(head, error).unwrap_or(ParseError::FieldName)),
        }
    }

    #[inline]
    fn take(
        &mut self,
        head: &[u8],
        limits: &Limits,
        parsed: &httparse::Response<'_, '_>,
        fields: &[httparse::Header<'_>],
    ) -> Result<(), ParseError> {
        let (Some(status @ 100..), Some(minor)) = (parsed.code, parsed.version) else {
            return Err(ParseError::StatusLine);
        };
        self.status = status;
        self.version = if minor == 0 { Version::Http10 } else { Version::Http11 };
        let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
        self.reason.keep(status, line);
        self.headers.load(head, fields, limits)
    }

    /// RFC 9112, 6.3. A status without a body whose fields announce one leaves the connection in doubt: it is not
    /// used again.
    fn read_framing(&mut self, request_method: Method) -> Result<(), ParseError> {
        if self.headers.may_repeat(Known::ContentLength) {
            self.headers.merge_equal(Known::ContentLength);
        }
        let facts = FramingFields::read_leniently(&self.headers, self.version)?;
        let tunnel = request_method == Method::Connect && (200..300).contains(&self.status);
        let bodiless = self.status < 200 || self.status == 204;
        self.upgrade = self.status == 101 || tunnel;
        self.keep_alive = facts.keep_alive;
        if bodiless || tunnel {
            self.headers.remove_known(Known::ContentLength);
            self.keep_alive &= !facts.chunked && facts.length.unwrap_or(0) == 0;
        } else if self.status == 304 {
            self.keep_alive &= !facts.chunked;
        }
        self.framing = match facts {
            _ if bodiless || tunnel || self.status == 304 || request_method == Method::Head => Framing::None,
            FramingFields { chunked: true, .. } => Framing::Chunked,
            FramingFields { length: Some(length), .. } => Framing::Length(length),
            _ => Framing::UntilClose,
        };
        self.keep_alive &= self.framing != Framing::UntilClose;
        Ok(())
    }
}

/// Accepts a space between a name and its colon, which is left out when the field is written (RFC 9112, 5.1).
fn lenient() -> httparse::ParserConfig {
    let mut config = httparse::ParserConfig::default();
    config.allow_spaces_after_header_name_in_responses(true);
    config
}

/// The version and status of a line as nearly all are.
#[inline]
fn plain_status_line(line: &[u8]) -> Option<(Version, u16)> {
    let (version, rest) = match line {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1', b' ', rest @ ..] => (Version::Http11, rest),
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0', b' ', rest @ ..] => (Version::Http10, rest),
        _ => return None,
    };
    let ([a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9']
    | [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', b' ', ..]) = rest
    else {
        return None;
    };
    let digit = |byte: &u8| u16::from(byte - b'0');
    Some((version, digit(a) * 100 + digit(b) * 10 + digit(c)))
}

/// Why a status line was refused that has no fault of fields.
fn status_line_error(head: &[u8]) -> ParseError {
    match head {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor, b' ', ..]
            if major.is_ascii_digit()
                && minor.is_ascii_digit()
                && !matches!((major, minor), (b'1', b'0' | b'1')) =>
        {
            ParseError::VersionUnsupported
        }
        _ => ParseError::StatusLine,
    }
}

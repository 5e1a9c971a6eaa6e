//! Request heads.

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Range;

use crate::fields::{Headers, MAX_RETAINED_BYTES};
use crate::framing::{Framing, FramingFields, is_repeated, single_value};
use crate::known::Known;
use crate::marks::Marks;
use crate::message::{Limits, Method, Version};
use crate::parse_error::ParseError;
use crate::scan::Scan;
use crate::syntax::{field_error, parse_fields};
use crate::target::{Target, is_authority};

/// The head of a request. Keep it and parse into it again: each [`RequestHead::parse`] replaces what it holds.
#[derive(Clone, Default)]
pub struct RequestHead {
    /// The method, recognised; [`RequestHead::method_str`] is the name.
    pub method: Method,
    /// The protocol version.
    pub version: Version,
    /// The fields. Host is the authority of the target if the target has one, whatever the client sent beside it.
    pub headers: Headers,
    /// How the body is delimited; never [`Framing::UntilClose`].
    pub framing: Framing,
    /// Whether the client lets the connection go on after this exchange.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
    /// Whether the client asks to change protocol: Connection lists `upgrade`, and there is an Upgrade field.
    pub upgrade: bool,
    line: Line,
    scan: Scan,
}

/// The texts of the request line, one after another: method, target, and `/` where the target has no path.
#[derive(Clone, Default)]
struct Line {
    text: String,
    method_len: usize,
    target: Range<usize>,
    path: Range<usize>,
    query: Option<Range<usize>>,
}

impl RequestHead {
    /// Reads a head from the start of `input`: `Some(n)` when it is complete and took `n` bytes, `None` when more
    /// bytes are needed.
    ///
    /// After `None`, call again with the same bytes followed by more; bytes already scanned are not scanned again.
    /// To begin with other bytes instead, [`RequestHead::clear`] first.
    pub fn parse(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>, ParseError> {
        if self.scan.is_fresh()
            && let Some(end) = self.read_plain(input, limits)?
        {
            return Ok(Some(end));
        }
        let Some((start, end)) = self.scan.request(input, limits)? else { return Ok(None) };
        self.clear();
        self.read(&input[start..end], limits)?;
        Ok(Some(end))
    }

    /// Fills the head with a request that came in pieces, as HTTP/2 brings it. Method, target and authority are checked
    /// as [`RequestHead::parse`] checks them; the authority becomes Host. The fields and the framing are the caller's to
    /// add.
    pub fn assemble(
        &mut self,
        version: Version,
        (method, target): (&str, &str),
        authority: &str,
        limits: &Limits,
    ) -> Result<(), ParseError> {
        self.clear();
        check_lengths(method, target, limits)?;
        self.method = Method::of(method);
        let split = Target::split(self.method, target)?;
        if self.method != Method::Connect && split.authority.is_some() {
            return Err(ParseError::Target);
        }
        if !is_authority(authority.as_bytes()) {
            return Err(ParseError::Authority);
        }
        self.headers.append_known(Known::Host, "Host", authority.as_bytes());
        self.line.fill(method, target, split);
        (self.version, self.framing) = (version, Framing::None);
        (self.keep_alive, self.expect_continue, self.upgrade) = (true, false, false);
        Ok(())
    }

    /// Empties the head and discards a partial one; the memory is kept.
    pub fn clear(&mut self) {
        self.scan.reset();
        self.headers.clear();
        self.line.clear();
    }

    /// The method as sent.
    pub fn method_str(&self) -> &str {
        &self.line.text[..self.line.method_len]
    }

    /// Replaces the method.
    pub fn set_method(&mut self, method: &str) {
        self.method = Method::of(method);
        self.line.set_method(method);
    }

    /// The request target as sent.
    pub fn target(&self) -> &str {
        &self.line.text[self.line.target.clone()]
    }

    /// The path as sent, without the query: `/` where an absolute URL has none, `*` for OPTIONS on the server, empty
    /// for CONNECT.
    pub fn path(&self) -> &str {
        &self.line.text[self.line.path.clone()]
    }

    /// What follows the first `?` of the target.
    pub fn query(&self) -> Option<&str> {
        self.line.query.clone().map(|query| &self.line.text[query])
    }

    /// The authority asked for, `host` or `host:port` as sent: the target's, else that of the Host field.
    pub fn host(&self) -> Option<&str> {
        self.headers.get_known(Known::Host).and_then(|host| str::from_utf8(host).ok())
    }

    /// Reads a plain head. None if the other parser has to decide.
    #[inline]
    fn read_plain(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>, ParseError> {
        let mut marks = Marks::default();
        if !marks.find(input) {
            return Ok(None);
        }
        let head = &input[..marks.len()];
        let line = marks.ends().next().unwrap_or_default();
        let Some(line_parts) = PlainLine::read(&head[..line]) else { return Ok(None) };
        let PlainLine { version, method, name, target, split } = line_parts;
        let too_long = head.len() > limits.max_head_bytes || target.len() > limits.max_target_bytes;
        self.clear();
        if too_long || !self.headers.load_plain(head, line + 2, &marks, limits) {
            return Ok(None);
        }
        (self.method, self.version) = (method, version);
        self.read_host(None)?;
        self.line.fill(name, target, split);
        self.read_fields()?;
        Ok(Some(head.len()))
    }

    fn read(&mut self, head: &[u8], limits: &Limits) -> Result<(), ParseError> {
        let mut slots = [const { MaybeUninit::uninit() }; Limits::FEW_FIELDS];
        let slots = &mut slots[..limits.max_fields.min(Limits::FEW_FIELDS)];
        let mut parsed = httparse::Request::new(&mut []);
        match parsed.parse_with_uninit_headers(head, slots) {
            Ok(httparse::Status::Complete(length)) if length == head.len() => {
                self.take(head, limits, &parsed, parsed.headers)
            }
            Err(httparse::Error::TooManyHeaders) => self.read_many(head, limits, &parsed),
            Ok(_) => Err(ParseError::RequestLine),
            Err(httparse::Error::Version) => match as_http11(head) {
                Some(head) => self.read(&head, limits),
                None => Err(request_line_error(head)),
            },
            Err(error) => Err(field_error(head, error).unwrap_or_else(|| request_line_error(head))),
        }
    }

    /// Reads the fields again, as they are many; what precedes them was read.
    #[cold]
    #[inline(never)]
    fn read_many(
        &mut self,
        head: &[u8],
        limits: &Limits,
        parsed: &httparse::Request<'_, '_>,
    ) -> Result<(), ParseError> {
        let mut slots = vec![httparse::EMPTY_HEADER; limits.max_fields.min(Limits::MAX_FIELDS)];
        let fields = parse_fields(head, &mut slots)?;
        self.take(head, limits, parsed, fields)
    }

    #[inline]
    fn take(
        &mut self,
        head: &[u8],
        limits: &Limits,
        parsed: &httparse::Request<'_, '_>,
        fields: &[httparse::Header<'_>],
    ) -> Result<(), ParseError> {
        let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version) else {
            return Err(ParseError::RequestLine);
        };
        check_lengths(method, target, limits)?;
        self.method = Method::of(method);
        self.version = if minor == 0 { Version::Http10 } else { Version::Http11 };
        let split = Target::split(self.method, target)?;
        self.headers.load(head, fields, limits)?;
        self.read_host(split.authority.clone().map(|authority| &target[authority]))?;
        self.line.fill(method, target, split);
        self.read_fields()
    }

    /// Checks Host, and puts the target's authority in its place.
    fn read_host(&mut self, authority: Option<&str>) -> Result<(), ParseError> {
        match single_value(&self.headers, Known::Host, ParseError::HostRepeated)? {
            Some(host) if !is_authority(host) => return Err(ParseError::HostInvalid),
            None if self.version == Version::Http11 => return Err(ParseError::HostMissing),
            _ => {}
        }
        if let Some(authority) = authority {
            self.headers.set("Host", authority.as_bytes());
        }
        Ok(())
    }

    fn read_fields(&mut self) -> Result<(), ParseError> {
        let facts = FramingFields::read(&self.headers, self.version)?;
        self.framing = match facts {
            FramingFields { chunked: true, .. } => Framing::Chunked,
            FramingFields { length: Some(length), .. } => Framing::Length(length),
            _ => Framing::None,
        };
        // One program would authenticate the one, and another the other; nginx refuses it too.
        if is_repeated(&self.headers, Known::Authorization) {
            return Err(ParseError::AuthorizationRepeated);
        }
        self.keep_alive = facts.keep_alive;
        self.upgrade = facts.upgrade && self.version == Version::Http11;
        self.expect_continue = self.read_expect()?;
        Ok(())
    }

    /// Whether the client waits. An expectation without effect, on HTTP/1.0 or without a body, is removed, so that
    /// the upstream neither waits nor responds to it.
    fn read_expect(&mut self) -> Result<bool, ParseError> {
        match single_value(&self.headers, Known::Expect, ParseError::ExpectRepeated)? {
            None => return Ok(false),
            Some(b"") => {
                self.headers.remove_known(Known::Expect);
                return Ok(false);
            }
            Some(value) if !value.eq_ignore_ascii_case(b"100-continue") => {
                return Err(ParseError::ExpectUnknown);
            }
            Some(_) => {}
        }
        let has_body = !matches!(self.framing, Framing::None | Framing::Length(0));
        let waits = has_body && self.version == Version::Http11;
        if !waits {
            self.headers.remove_known(Known::Expect);
        }
        Ok(waits)
    }
}

impl Line {
    fn clear(&mut self) {
        self.text.clear();
        self.text.shrink_to(MAX_RETAINED_BYTES);
        (self.method_len, self.target, self.path, self.query) = (0, 0..0, 0..0, None);
    }

    fn set_method(&mut self, method: &str) {
        let (before, after) = (self.method_len, method.len());
        self.text.replace_range(..before, method);
        let moved =
            |range: &mut Range<usize>| *range = range.start - before + after..range.end - before + after;
        moved(&mut self.target);
        moved(&mut self.path);
        self.query.iter_mut().for_each(moved);
        self.method_len = after;
    }

    fn fill(&mut self, method: &str, target: &str, split: Target) {
        let start = method.len();
        let within = |range: Range<usize>| start + range.start..start + range.end;
        self.text.push_str(method);
        self.text.push_str(target);
        self.method_len = start;
        self.target = within(0..target.len());
        self.query = split.query.map(within);
        self.path = within(split.path.clone());
        let is_absolute = split.authority.is_some_and(|authority| authority.start > 0);
        if is_absolute && split.path.is_empty() {
            self.path = self.text.len()..self.text.len() + 1;
            self.text.push('/');
        }
    }
}

/// A request line as nearly all are: a method of HTTP's own and a path, in visible ASCII and spaces.
struct PlainLine<'a> {
    version: Version,
    method: Method,
    name: &'static str,
    target: &'a str,
    split: Target,
}

impl<'a> PlainLine<'a> {
    #[inline]
    fn read(line: &'a [u8]) -> Option<Self> {
        let (line, version) = line.split_last_chunk::<9>()?;
        let version = match version {
            b" HTTP/1.1" => Version::Http11,
            b" HTTP/1.0" => Version::Http10,
            _ => return None,
        };
        let (method, name, target) = match line {
            [b'G', b'E', b'T', b' ', target @ ..] => (Method::Get, "GET", target),
            [b'P', b'O', b'S', b'T', b' ', target @ ..] => (Method::Post, "POST", target),
            [b'P', b'U', b'T', b' ', target @ ..] => (Method::Put, "PUT", target),
            [b'H', b'E', b'A', b'D', b' ', target @ ..] => (Method::Head, "HEAD", target),
            _ => return None,
        };
        let split = Target::split_path(target)?;
        Some(Self { version, method, name, target: str::from_utf8(target).ok()?, split })
    }
}

fn check_lengths(method: &str, target: &str, limits: &Limits) -> Result<(), ParseError> {
    match () {
        () if method.len() > Method::MAX_LEN => Err(ParseError::MethodTooLong),
        () if target.len() > limits.max_target_bytes => Err(ParseError::TargetTooLong),
        () => Ok(()),
    }
}

/// The head of a request of a later minor version, which is one of HTTP/1.1 to those who know no later one (RFC 9110,
/// 2.5).
#[cold]
fn as_http11(head: &[u8]) -> Option<Vec<u8>> {
    let line = memchr::memchr(b'\r', head)?;
    let [.., b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] = head[..line] else { return None };
    let mut head = head.to_vec();
    head[line - 1] = b'1';
    Some(head)
}

/// Why a request line was refused that has no fault of fields.
fn request_line_error(head: &[u8]) -> ParseError {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    match line {
        [.., b' ', b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit()
                && minor.is_ascii_digit()
                && !matches!((major, minor), (b'1', b'0' | b'1')) =>
        {
            ParseError::VersionUnsupported
        }
        _ => ParseError::RequestLine,
    }
}

impl fmt::Debug for RequestHead {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RequestHead")
            .field("method", &self.method_str())
            .field("path", &self.path())
            .field("version", &self.version)
            .field("headers", &self.headers)
            .field("framing", &self.framing)
            .field("keep_alive", &self.keep_alive)
            .field("expect_continue", &self.expect_continue)
            .field("upgrade", &self.upgrade)
            .finish_non_exhaustive()
    }
}

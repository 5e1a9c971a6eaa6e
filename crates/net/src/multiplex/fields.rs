//! Converts heads and fields between the types of the crates `h2` and `http` and the engine's.

use super::names::{self, Name};
use bytes::BytesMut;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, COOKIE, EXPECT, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request};
use weir_http1::{Framing, Headers, Known, KnownSet, Limits, Method, ParseError, RequestHead, Version};

/// The values of so many fields share memory, as one allocation is cheaper than many. Larger ones do not, since one that
/// stays in a connection's table keeps the others.
const SHARED: usize = 4;
const SHARED_BYTES: usize = 2 * 1024;

const LENGTH: KnownSet = KnownSet::of(&[Known::ContentLength]);

/// The fields that a message of these versions must not have (RFC 9113, 8.2.2). TE is written where it may be.
const CONNECTION_SPECIFIC: KnownSet = KnownSet::of(&[
    Known::Connection,
    Known::KeepAlive,
    Known::ProxyConnection,
    Known::Te,
    Known::TransferEncoding,
    Known::Upgrade,
]);

/// A request as it arrived.
pub struct Arrived<'r> {
    /// Its head, in the form of the crates.
    pub parts: &'r Parts,
    /// Over which version it came.
    pub version: Version,
    /// What takes the place of `:method` and `:path`, where those do not say it.
    pub line: Option<(&'r str, &'r str)>,
}

impl<'r> Arrived<'r> {
    /// The method and the target.
    fn line(&self, authority: &'r str) -> (&'r str, &'r str) {
        self.line.unwrap_or_else(|| {
            let path = self.parts.uri.path_and_query().filter(|_| self.parts.method != http::Method::CONNECT);
            (self.parts.method.as_str(), path.map_or(authority, |path| path.as_str()))
        })
    }
}

/// Fills the head with a request, all but how its body is framed.
pub fn read_request(
    head: &mut RequestHead,
    arrived: &Arrived<'_>,
    limits: &Limits,
) -> Result<(), ParseError> {
    // Clears the head first, so that a rejected request leaves nothing of an earlier one.
    head.clear();
    (head.version, head.method) = (arrived.version, Method::of(arrived.parts.method.as_str()));
    (head.framing, head.expect_continue, head.upgrade) = (Framing::None, false, false);
    let fields = &arrived.parts.headers;
    if fields.len() > limits.max_fields {
        return Err(ParseError::TooManyFields);
    }
    if fields.get_all(AUTHORIZATION).iter().nth(1).is_some() {
        return Err(ParseError::AuthorizationRepeated);
    }
    let authority = authority(arrived.parts)?;
    let (method, target) = arrived.line(authority);
    head.assemble(arrived.version, (method, target), authority, limits)?;
    for (name, value) in fields {
        if !limits.allows_field(name.as_ref(), value.as_bytes()) {
            return Err(ParseError::FieldTooLarge);
        }
        if name != HOST && name != COOKIE {
            head.headers.append(name, value.as_bytes().trim_ascii());
        }
    }
    join_cookies(&mut head.headers, fields);
    Ok(())
}

/// Takes over how the body is framed, and whether the client waits to be asked for it.
pub fn framing(head: &mut RequestHead, fields: &HeaderMap, is_over: bool) -> Result<(), ParseError> {
    head.framing = body_framing(fields, is_over)?;
    head.expect_continue = match fields.get(EXPECT) {
        None => false,
        Some(value) if value.is_empty() => false,
        Some(value) if !value.as_bytes().eq_ignore_ascii_case(b"100-continue") => {
            return Err(ParseError::ExpectUnknown);
        }
        Some(_) => head.framing != Framing::None,
    };
    Ok(())
}

/// Where the request goes: `:authority`, else Host. Where both are given they must say the same (RFC 9113, 8.3.1).
fn authority(parts: &Parts) -> Result<&str, ParseError> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = hosts.next().map(|host| host.to_str().map_err(|_| ParseError::HostInvalid)).transpose()?;
    if hosts.next().is_some() {
        return Err(ParseError::HostRepeated);
    }
    match (parts.uri.authority(), host) {
        (Some(authority), Some(host)) if !authority.as_str().eq_ignore_ascii_case(host) => {
            Err(ParseError::HostInvalid)
        }
        (Some(authority), _) => Ok(authority.as_str()),
        (None, host) => host.ok_or(ParseError::HostMissing),
    }
}

/// HTTP/2 and HTTP/3 may cut Cookie into several fields, which HTTP/1.1 must not (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut Headers, fields: &HeaderMap) {
    let mut crumbs = fields.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    match (crumbs.next(), crumbs.next()) {
        (None, _) => {}
        (Some(only), None) => headers.append_known(Known::Cookie, "Cookie", only),
        (Some(first), Some(second)) => {
            let all: Vec<&[u8]> = [first, second].into_iter().chain(crumbs).collect();
            headers.append_known(Known::Cookie, "Cookie", &all.join(&b"; "[..]));
        }
    }
}

/// The framing of a body. The reader of the body enforces `content-length`.
fn body_framing(fields: &HeaderMap, is_over: bool) -> Result<Framing, ParseError> {
    match fields.get(CONTENT_LENGTH) {
        _ if is_over => Ok(Framing::None),
        None => Ok(Framing::Chunked),
        Some(length) => {
            let digits =
                length.to_str().ok().filter(|length| length.bytes().all(|byte| byte.is_ascii_digit()));
            let length = digits.and_then(|length| length.parse().ok());
            length.map(Framing::Length).ok_or(ParseError::ContentLength)
        }
    }
}

/// Appends a response's fields, and returns how its body is framed.
pub fn read_fields(into: &mut Headers, fields: &HeaderMap, is_over: bool) -> Result<Framing, ParseError> {
    for (name, value) in fields {
        into.append(name, value.as_bytes().trim_ascii());
    }
    body_framing(fields, is_over)
}

/// A request's trailer fields as the engine has them, as far as they may pass.
pub fn read_trailers(fields: &HeaderMap) -> Result<Headers, ParseError> {
    Headers::of_trailers(trimmed(fields))
}

/// The same of a response, of which those that may not pass are left out.
pub fn read_response_trailers(fields: &HeaderMap) -> Headers {
    Headers::of_response_trailers(trimmed(fields))
}

fn trimmed(fields: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields.iter().map(|(name, value)| (name.as_ref(), value.as_bytes().trim_ascii()))
}

/// Fields without those of one connection alone (RFC 9113, 8.2.2) and these, and how many bytes they are.
pub fn write_fields(headers: &Headers, but: KnownSet) -> (HeaderMap, u64) {
    let mut fields = Fields::new(headers, 1, 0);
    fields.take(headers, but);
    (fields.map, fields.bytes)
}

/// Fields on their way into the form of the crates.
pub struct Fields {
    /// What was taken.
    pub map: HeaderMap,
    /// How many bytes they are.
    bytes: u64,
    /// Room for values that share it.
    values: BytesMut,
}

impl Fields {
    /// Room for these fields and so many more, whose values have so many bytes.
    pub fn new(headers: &Headers, more: usize, bytes: usize) -> Self {
        let bytes = bytes + headers.iter().map(|field| field.value.len()).sum::<usize>();
        Self::with_room(headers.len() + more, bytes)
    }

    /// Room for so many fields, whose values have so many bytes.
    pub fn with_room(fields: usize, bytes: usize) -> Self {
        let share = fields >= SHARED && bytes <= SHARED_BYTES;
        let values = BytesMut::with_capacity(if share { bytes } else { 0 });
        Self { map: HeaderMap::with_capacity(fields), bytes: 0, values }
    }

    /// Takes fields, but those of one connection alone and these.
    pub fn take(&mut self, headers: &Headers, but: KnownSet) {
        let but = but.with(CONNECTION_SPECIFIC);
        for field in headers.iter().filter(|field| !but.holds(field.known)) {
            self.append(field.name, field.value);
        }
    }

    /// Adds a field, if its name and value may be those of one.
    pub fn append(&mut self, name: &[u8], value: &[u8]) {
        let Some(Name { name, varies }) = names::of(name) else { return };
        let Some(mut value) = self.value(value) else { return };
        // It would push out of the connection's table what comes again, and the crate looks through all values of a
        // name that are there.
        value.set_sensitive(varies);
        self.bytes += (name.as_str().len() + value.len()) as u64;
        self.map.append(name, value);
    }

    fn value(&mut self, value: &[u8]) -> Option<HeaderValue> {
        if self.values.capacity() < value.len() {
            return HeaderValue::from_bytes(value).ok();
        }
        self.values.extend_from_slice(value);
        HeaderValue::from_maybe_shared(self.values.split().freeze()).ok()
    }
}

/// How large a head is: its fields as RFC 9113 (6.5.2) counts them, each with 32 bytes more, and where it goes.
pub fn size<B>(request: &Request<B>) -> usize {
    let uri = request.uri();
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
    authority + target + fields.sum::<usize>()
}

/// How a response begins.
pub struct Start {
    /// Its fields.
    pub fields: HeaderMap,
    /// How many bytes its own fields are.
    pub bytes: u64,
    /// The announced length of its body.
    pub left: Option<u64>,
    /// It has no body.
    pub is_whole: bool,
}

impl Start {
    /// A response with these fields, and with a body framed as the upstream framed it.
    pub fn of(headers: &Headers, framing: Framing, status: u16, is_head: bool) -> Self {
        let bodiless = is_head || matches!(status, 204 | 304);
        let length = match framing {
            // A bodiless response may still announce the length that its body would have.
            _ if bodiless && status != 204 => headers.get_known(Known::ContentLength),
            _ => None,
        };
        let (mut fields, bytes) = write_fields(headers, LENGTH);
        if let Some(length) = length.and_then(|length| length.try_into().ok()) {
            fields.insert(CONTENT_LENGTH, length);
        }
        let left = match framing {
            Framing::Length(n) if !bodiless => {
                fields.insert(CONTENT_LENGTH, n.into());
                Some(n)
            }
            _ => None,
        };
        let is_whole = bodiless || matches!(framing, Framing::None | Framing::Length(0));
        Self { fields, bytes, left, is_whole }
    }
}

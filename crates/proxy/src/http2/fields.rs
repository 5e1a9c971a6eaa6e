//! Heads and fields between the `h2` crate's form and the engine's.

use super::body::Incoming;
use super::names::{self, Name};
use crate::buffer;
use crate::exchange::Exchange;
use crate::forward::Ask;
use crate::head::{REWRITTEN, write_forwarded};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use h2::RecvStream;
use h2::ext::Protocol;
use http::header::{CONTENT_LENGTH, COOKIE, EXPECT, HOST, TE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response};
use weir_http1::{Framing, Headers, Known, KnownSet, Limits, Reject, RequestHead, Version};
use weir_model::Uuid;

/// The values of so many fields share memory, as one allocation is cheaper than many. Larger ones do not, since one that
/// stays in a connection's table keeps the others.
const SHARED: usize = 4;
const SHARED_BYTES: usize = 2 * 1024;

/// Fields that a request gets on its way, and about how many bytes they are.
const FORWARDED: usize = 12;
const FORWARDED_BYTES: usize = 512;

/// Fills the head with a request, whose body is over already or follows.
pub(super) fn read_request(
    head: &mut RequestHead,
    parts: &Parts,
    is_over: bool,
    limits: &Limits,
) -> Result<(), Reject> {
    let fields = &parts.headers;
    if fields.len() > limits.max_fields {
        return Err(Reject::TooManyFields);
    }
    let authority = authority(parts)?;
    let protocol = parts.extensions.get::<Protocol>();
    let target = match parts.uri.path_and_query() {
        Some(target) if parts.method != Method::CONNECT || protocol.is_some() => target.as_str(),
        _ => authority,
    };
    let method = if protocol.is_some() { Method::GET.as_str() } else { parts.method.as_str() };
    head.assemble(method, target, authority, limits)?;
    for (name, value) in fields {
        if name != HOST && name != COOKIE {
            head.headers.append(name, value.as_bytes().trim_ascii());
        }
    }
    join_cookies(&mut head.headers, fields);
    if let Some(protocol) = protocol {
        ask_for(head, protocol.as_str());
        return Ok(());
    }
    head.framing = framing(fields, is_over)?;
    head.expect_continue = match fields.get(EXPECT) {
        None => false,
        Some(value) if !value.as_bytes().eq_ignore_ascii_case(b"100-continue") => {
            return Err(Reject::ExpectUnknown);
        }
        Some(_) => head.framing != Framing::None,
    };
    Ok(())
}

/// A CONNECT that names a protocol (RFC 8441) asks for what a GET with Upgrade asks for in HTTP/1.1, where a key has to
/// be answered: here the answer is looked at by nobody.
fn ask_for(head: &mut RequestHead, protocol: &str) {
    head.upgrade = true;
    head.headers.append_known(Known::Upgrade, "Upgrade", protocol.as_bytes());
    if protocol.eq_ignore_ascii_case("websocket") {
        let key = STANDARD.encode(Uuid::new_v4().as_bytes());
        head.headers.append("Sec-WebSocket-Key", key.as_bytes());
    }
}

/// Where the request goes: `:authority`, else Host. Where both are given they must say the same (RFC 9113, 8.3.1).
fn authority(parts: &Parts) -> Result<&str, Reject> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = hosts.next().map(|host| host.to_str().map_err(|_| Reject::HostInvalid)).transpose()?;
    if hosts.next().is_some() {
        return Err(Reject::HostRepeated);
    }
    match (parts.uri.authority(), host) {
        (Some(authority), Some(host)) if !authority.as_str().eq_ignore_ascii_case(host) => {
            Err(Reject::HostInvalid)
        }
        (Some(authority), _) => Ok(authority.as_str()),
        (None, host) => host.ok_or(Reject::HostMissing),
    }
}

/// HTTP/2 may cut Cookie into several fields, which HTTP/1.1 must not (RFC 9113, 8.2.3).
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

/// The length is a promise that the `h2` crate sees kept.
fn framing(fields: &HeaderMap, is_over: bool) -> Result<Framing, Reject> {
    match fields.get(CONTENT_LENGTH) {
        _ if is_over => Ok(Framing::None),
        None => Ok(Framing::Chunked),
        Some(length) => {
            let length = length.to_str().ok().and_then(|length| length.parse().ok());
            length.map(Framing::Length).ok_or(Reject::ContentLength)
        }
    }
}

/// Trailer fields as the engine has them, as far as they may pass.
pub(super) fn read_trailers(fields: &HeaderMap) -> Result<Headers, Reject> {
    Headers::of_trailers(fields.iter().map(|(name, value)| (name.as_ref(), value.as_bytes().trim_ascii())))
}

/// Takes a response's head over into the exchange, and returns its body.
pub(crate) fn read_response(
    response: Response<RecvStream>,
    exchange: &mut Exchange,
    limits: &Limits,
) -> Result<Incoming, Reject> {
    let (parts, body) = response.into_parts();
    if parts.headers.len() > limits.max_fields {
        return Err(Reject::TooManyFields);
    }
    let head = &mut exchange.response;
    head.clear();
    head.status = parts.status.as_u16();
    (head.version, head.keep_alive, head.upgrade) = (Version::Http2, true, false);
    for (name, value) in &parts.headers {
        head.headers.append(name, value.as_bytes().trim_ascii());
    }
    let is_over = body.is_end_stream();
    head.framing = framing(&parts.headers, is_over)?;
    Ok(Incoming::new(body, is_over, buffer::SIZE))
}

/// A request's fields as an upstream gets them: those of HTTP/1.1, taken apart.
pub(crate) fn write_request_fields(exchange: &Exchange, ask: &Ask<'_>) -> HeaderMap {
    let mut lines = Vec::with_capacity(FORWARDED_BYTES);
    write_forwarded(&mut lines, exchange, ask);
    let mut fields = Fields::new(&exchange.request.headers, FORWARDED, lines.len());
    fields.take(&exchange.request.headers, REWRITTEN);
    let mut rest = &lines[..];
    while let Some(end) = memchr::memchr(b'\n', rest) {
        if let Some(colon) = memchr::memchr(b':', &rest[..end]) {
            fields.append(&rest[..colon], rest[colon + 1..end].trim_ascii());
        }
        rest = &rest[end + 1..];
    }
    let mut fields = fields.map;
    if let Framing::Length(length) = ask.framing {
        fields.insert(CONTENT_LENGTH, length.into());
    }
    if ask.service.is_grpc() {
        fields.insert(TE, HeaderValue::from_static("trailers"));
    }
    fields
}

/// Fields for the `h2` crate, without those of one connection alone (RFC 9113, 8.2.2) and these, and how many bytes they
/// are.
pub(super) fn write_fields(headers: &Headers, but: KnownSet) -> (HeaderMap, u64) {
    let mut fields = Fields::new(headers, 1, 0);
    fields.take(headers, but);
    (fields.map, fields.bytes)
}

/// Fields on their way into the `h2` crate's form.
struct Fields {
    map: HeaderMap,
    /// How many bytes they are.
    bytes: u64,
    /// Room for values that share it.
    values: BytesMut,
}

impl Fields {
    /// Room for these fields and so many more, whose values have so many bytes.
    fn new(headers: &Headers, more: usize, bytes: usize) -> Self {
        let fields = headers.len() + more;
        let bytes = bytes + headers.iter().map(|field| field.value.len()).sum::<usize>();
        let share = fields >= SHARED && bytes <= SHARED_BYTES;
        let values = BytesMut::with_capacity(if share { bytes } else { 0 });
        Self { map: HeaderMap::with_capacity(fields), bytes: 0, values }
    }

    fn take(&mut self, headers: &Headers, but: KnownSet) {
        let is_left_out = |known: Known| known.is_hop_by_hop() || but.holds(known);
        for field in headers.iter().filter(|field| !is_left_out(field.known)) {
            self.append(field.name, field.value);
        }
    }

    /// Adds a field, if its name and value may be those of one.
    fn append(&mut self, name: &[u8], value: &[u8]) {
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

//! Conditional requests (RFC 9110, 13): those of clients, and those with which the cache validates what it has stored.

use super::directives::members;
use super::freshness::date;
use super::stored::Stored;
use std::sync::Arc;
use std::time::SystemTime;
use weir_plugin::{Bytes, Exchange, Headers, LocalResponse, RequestHead};

/// Headers by which the upstream can confirm a response.
pub(super) const VALIDATORS: [&str; 2] = ["ETag", "Last-Modified"];

const IF_NONE_MATCH: &str = "If-None-Match";
const IF_MODIFIED_SINCE: &str = "If-Modified-Since";

/// Headers of the stored response that a 304 does not replace, because they describe the stored body.
const OF_THE_BODY: [&str; 5] = ["Content-Encoding", "Content-Length", "Content-MD5", "Content-Range", "ETag"];

/// Whether the client has the response already.
pub(super) fn is_known_to_client(stored: &Stored, request: &RequestHead) -> bool {
    if stored.status != 200 || !matches!(request.method_str(), "GET" | "HEAD") {
        return false;
    }
    let mut tags = request.headers.get_all(IF_NONE_MATCH).peekable();
    if tags.peek().is_some() {
        let own = stored.headers.get("ETag").map(opaque);
        let is_own = |tag: &[u8]| tag == b"*" || Some(opaque(tag)) == own;
        return tags.any(|field| members(field).any(|tag| is_own(tag.trim_ascii())));
    }
    let changed = stored.headers.get("Last-Modified").and_then(date);
    let known = request.headers.get(IF_MODIFIED_SINCE).and_then(date);
    changed.zip(known).is_some_and(|(changed, known)| changed <= known)
}

/// Whether the response to this request may be of no use to others, because the client has set conditions.
pub(super) fn are_set(headers: &Headers) -> bool {
    ["If-Match", IF_NONE_MATCH, IF_MODIFIED_SINCE, "If-Unmodified-Since"]
        .iter()
        .any(|name| headers.get(name).is_some())
}

/// An entity tag without its weakness indicator.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// The 304 for a client that has the response.
pub(super) fn not_modified(stored: &Stored) -> LocalResponse {
    const HEADERS: [&str; 7] =
        ["Cache-Control", "Content-Location", "Date", "ETag", "Expires", "Last-Modified", "Vary"];
    let fields = stored.headers.iter().filter(|field| {
        std::str::from_utf8(field.name)
            .is_ok_and(|name| HEADERS.iter().any(|header| header.eq_ignore_ascii_case(name)))
    });
    let answer = LocalResponse::cached(304, Arc::default(), Bytes::new());
    fields.fold(answer, |answer, field| {
        answer.header(String::from_utf8_lossy(field.name).into_owned(), field.value)
    })
}

/// The client's conditions, while the request has those of the cache.
pub(super) struct ClientConditions(Vec<(&'static str, Vec<u8>)>);

impl ClientConditions {
    /// Has the request ask whether the stored response is still valid; none if it has no validator, or the client asks
    /// for something that the answer does not tell. Other methods than GET and HEAD would get a 412 (RFC 9110, 13.1.2).
    pub(super) fn replace(exchange: &mut Exchange, stored: &Stored) -> Option<Self> {
        if !matches!(exchange.request.method_str(), "GET" | "HEAD") {
            return None;
        }
        let headers = &mut exchange.request.headers;
        let (tag, changed) = (stored.headers.get("ETag"), stored.headers.get("Last-Modified"));
        let is_other = ["If-Match", "If-Unmodified-Since"].iter().any(|name| headers.get(name).is_some());
        if is_other || (tag.is_none() && changed.is_none()) {
            return None;
        }
        let mut saved = Vec::new();
        for (name, value) in [(IF_NONE_MATCH, tag), (IF_MODIFIED_SINCE, changed)] {
            saved.extend(headers.get_all(name).map(|value| (name, value.to_vec())));
            headers.remove(name);
            if let Some(value) = value {
                headers.append(name, value);
            }
        }
        Some(Self(saved))
    }

    /// Gives the request its own conditions back.
    pub(super) fn restore(self, exchange: &mut Exchange) {
        let headers = &mut exchange.request.headers;
        headers.remove(IF_NONE_MATCH);
        headers.remove(IF_MODIFIED_SINCE);
        self.0.iter().for_each(|(name, value)| headers.append(name, value));
    }
}

/// The headers of a stored response once a 304 has confirmed it (RFC 9111, 3.2).
pub(super) fn updated(stored: &Headers, confirmed: &Headers, now: SystemTime) -> Headers {
    let mut headers = stored.clone();
    // A 304 without a date was made now.
    headers.set("Date", httpdate::fmt_http_date(now).as_bytes());
    let names: Vec<_> = confirmed
        .iter()
        .filter_map(|field| std::str::from_utf8(field.name).ok())
        .filter(|name| !OF_THE_BODY.iter().any(|kept| kept.eq_ignore_ascii_case(name)))
        .collect();
    for name in &names {
        headers.remove(name);
    }
    for field in confirmed.iter() {
        if names.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(field.name)) {
            headers.append(field.name, field.value);
        }
    }
    headers
}

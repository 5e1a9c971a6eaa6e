//! The rules of RFC 9111: which responses may be cached, for how long, and which requests they may answer.

use super::store::Stored;
use super::{Config, Instance, MediaType};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_plugin::RequestHead;
use weir_plugin::{Bytes, Exchange, Headers, Known, LocalResponse};

/// The directives of `Cache-Control` that the cache uses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Directives {
    pub(super) no_store: bool,
    pub(super) no_cache: bool,
    private: bool,
    /// Must not be used once it is stale, even if the client accepts stale responses.
    must_revalidate: bool,
    pub(super) only_if_cached: bool,
    max_age: Option<u64>,
    shared_max_age: Option<u64>,
    min_fresh: Option<u64>,
    max_stale: Option<u64>,
}

/// The largest number of seconds; larger ones count as this one.
const MAX_SECONDS: u64 = 1 << 31;

impl Directives {
    /// The directives of all fields together.
    pub(super) fn of<'h>(fields: impl Iterator<Item = &'h [u8]>) -> Self {
        let mut found = Self::default();
        for field in fields {
            for directive in members(field) {
                found.add(directive);
            }
        }
        found
    }

    fn add(&mut self, directive: &[u8]) {
        let mut parts = directive.splitn(2, |byte| *byte == b'=');
        let name = parts.next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        let value = parts.next().map(|value| value.trim_ascii());
        // If there are several, the strictest counts.
        let least = |known: Option<u64>| Some(known.unwrap_or(MAX_SECONDS).min(value.map_or(0, seconds)));
        match &*name {
            b"no-store" => self.no_store = true,
            b"no-cache" => self.no_cache = true,
            b"private" => self.private = true,
            b"must-revalidate" | b"proxy-revalidate" => self.must_revalidate = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"max-age" => self.max_age = least(self.max_age),
            b"s-maxage" => {
                self.shared_max_age = least(self.shared_max_age);
                self.must_revalidate = true;
            }
            b"min-fresh" => {
                self.min_fresh = Some(self.min_fresh.unwrap_or(0).max(value.map_or(MAX_SECONDS, seconds)));
            }
            b"max-stale" => {
                self.max_stale =
                    Some(self.max_stale.unwrap_or(MAX_SECONDS).min(value.map_or(MAX_SECONDS, seconds)));
            }
            _ => {}
        }
    }
}

/// The members of a list, whose quoted texts may hold commas.
fn members(field: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    field.split(move |byte| {
        is_quoted ^= *byte == b'"';
        *byte == b',' && !is_quoted
    })
}

/// A number of seconds; an invalid one counts as 0.
fn seconds(value: &[u8]) -> u64 {
    let digits = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    digits.iter().fold(0, |seconds: u64, digit| (seconds * 10 + u64::from(digit - b'0')).min(MAX_SECONDS))
}

fn date(value: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()
}

/// How responses are cached.
pub(super) struct Plan {
    pub(super) instance: Arc<Instance>,
}

/// How long a response is fresh, and how long it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) lifetime: Duration,
    /// None: as long as there is room.
    pub(super) stored_for: Option<Duration>,
    /// How old it is already, in seconds.
    pub(super) age_before: u64,
    pub(super) must_revalidate: bool,
}

impl Plan {
    /// How long the upstream's response is stored; none if it is not.
    pub(super) fn term(&self, exchange: &Exchange, now: SystemTime) -> Option<Term> {
        let Instance { config, types, .. } = &*self.instance;
        let response = &exchange.response;
        let is_wanted = config.response_code.contains(&response.status) && has_type(types, &response.headers);
        // A partial response is not the whole, and a cookie is for one client alone.
        let is_whole = !matches!(response.status, 100..200 | 206 | 304);
        let is_shared = !response.headers.contains_known(Known::SetCookie);
        if !(is_wanted && is_whole && is_shared) || response.headers.get("Content-Range").is_some() {
            return None;
        }
        let mut term = by_time(config, &response.headers, now)?;
        let storage = config.storage_ttl.map(|seconds| Duration::from_secs(seconds.into()));
        term.stored_for = Some(storage.unwrap_or(term.lifetime)).filter(|time| !time.is_zero());
        Some(term)
    }
}

fn has_type(types: &[MediaType], headers: &Headers) -> bool {
    let mut fields = headers.get_all_known(Known::ContentType);
    match (fields.next().and_then(MediaType::parse), fields.next()) {
        (Some(found), None) => types.iter().any(|cacheable| cacheable.includes(&found)),
        _ => false,
    }
}

fn by_time(config: &Config, headers: &Headers, now: SystemTime) -> Option<Term> {
    let age_before = headers.get("Age").map_or(0, seconds);
    let mut term = Term {
        lifetime: Duration::from_secs(config.cache_ttl.into()),
        stored_for: None,
        age_before,
        must_revalidate: false,
    };
    if config.cache_control {
        let said = Directives::of(headers.get_all_known(Known::CacheControl));
        if said.private || said.no_store || said.no_cache {
            return None;
        }
        let good_for = said.shared_max_age.or(said.max_age).or_else(|| until_expiry(headers, now));
        term.lifetime = Duration::from_secs(good_for.unwrap_or(0).saturating_sub(age_before));
        term.must_revalidate = said.must_revalidate;
    }
    (!term.lifetime.is_zero()).then_some(term)
}

/// The seconds from the response's date until it expires; of several dates, the last counts.
fn until_expiry(headers: &Headers, now: SystemTime) -> Option<u64> {
    let expires = date(headers.get_all("Expires").last()?)?;
    let made = headers.get_known(Known::Date).and_then(date).unwrap_or(now);
    expires.duration_since(made).ok().map(|left| left.as_secs().min(MAX_SECONDS))
}

impl Stored {
    /// Whether it may answer a request with these directives.
    pub(super) fn is_acceptable(&self, elapsed: Duration, asked: &Directives) -> bool {
        let age = self.term.age_before + elapsed.as_secs();
        if asked.max_age.is_some_and(|most| age > most) {
            return false;
        }
        if let Some(left) = self.term.lifetime.checked_sub(elapsed).filter(|left| !left.is_zero()) {
            return asked.min_fresh.is_none_or(|least| left >= Duration::from_secs(least));
        }
        let stale = elapsed.saturating_sub(self.term.lifetime);
        let is_taken = asked.max_stale.is_some_and(|most| stale <= Duration::from_secs(most));
        is_taken && asked.min_fresh.is_none() && !self.term.must_revalidate
    }
}

/// Whether the client has the response already.
pub(super) fn is_known_to_client(stored: &Stored, request: &RequestHead) -> bool {
    if stored.status != 200 || !matches!(request.method_str(), "GET" | "HEAD") {
        return false;
    }
    let mut tags = request.headers.get_all("If-None-Match").peekable();
    if tags.peek().is_some() {
        let own = stored.headers.get("ETag").map(strong);
        let is_own = |tag: &[u8]| tag == b"*" || Some(strong(tag)) == own;
        return tags.any(|field| members(field).any(|tag| is_own(tag.trim_ascii())));
    }
    let changed = stored.headers.get("Last-Modified").and_then(date);
    let known = request.headers.get("If-Modified-Since").and_then(date);
    changed.zip(known).is_some_and(|(changed, known)| changed <= known)
}

/// An entity tag without its weakness indicator.
fn strong(tag: &[u8]) -> &[u8] {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[&str]) -> Directives {
        Directives::of(fields.iter().map(|field| field.as_bytes()))
    }

    #[test]
    fn directives_are_read_whatever_they_look_like() {
        let none = Directives::default;
        for (fields, expected) in [
            (&["No-Store , max-age=5"][..], Directives { no_store: true, max_age: Some(5), ..none() }),
            (&["max-age=7", "max-age=3"], Directives { max_age: Some(3), ..none() }),
            (&["max-age=99999999999999999999999"], Directives { max_age: Some(MAX_SECONDS), ..none() }),
            (&["max-age=-1"], Directives { max_age: Some(0), ..none() }),
            (&["max-age=\"9\""], Directives { max_age: Some(9), ..none() }),
            (&["max-age"], Directives { max_age: Some(0), ..none() }),
            (&["private=\"a, no-store\""], Directives { private: true, ..none() }),
            (&["no-cache=\"Set-Cookie\""], Directives { no_cache: true, ..none() }),
            (&["max-stale"], Directives { max_stale: Some(MAX_SECONDS), ..none() }),
            (&["max-stale=4"], Directives { max_stale: Some(4), ..none() }),
            (&["min-fresh=4"], Directives { min_fresh: Some(4), ..none() }),
            (&["s-maxage=6"], Directives { shared_max_age: Some(6), must_revalidate: true, ..none() }),
            (&[",,=,x=y,\"", ""], none()),
        ] {
            assert_eq!(of(fields), expected, "{fields:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn directives_in_one_field_and_in_several_are_the_same(
            all in proptest::collection::vec("(max-age|s-maxage|min-fresh|max-stale|private|no-store|x)(=[0-9\"]{0,22})?", 0..6)
        ) {
            let all: Vec<_> = all.iter().map(|it| it.replace('"', "")).collect();
            let fields: Vec<&str> = all.iter().map(String::as_str).collect();
            proptest::prop_assert_eq!(of(&fields), of(&[&all.join(",")[..]]));
        }

        #[test]
        fn no_field_is_too_strange(field in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
            let found = Directives::of([&field[..]].into_iter());
            let ages = [found.max_age, found.shared_max_age, found.min_fresh, found.max_stale];
            proptest::prop_assert!(ages.iter().flatten().all(|seconds| *seconds <= MAX_SECONDS));
            MediaType::parse(&field);
        }
    }
}

//! Which responses are stored, for how long, and with which headers (RFC 9111, 3).

use super::conditions::{self, VALIDATORS};
use super::config::Config;
use super::directives::Directives;
use super::freshness::{self, StaleUse, Term};
use super::media_type::MediaType;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use weir_plugin::{Exchange, Headers, Known, KnownSet};

/// Headers that are not stored: credentials, those of a connection, and those that are set again for each response.
const UNSTORED: KnownSet = KnownSet::of(&[
    Known::ProxyAuthorization,
    Known::SetCookie,
    Known::Connection,
    Known::Trailer,
    Known::Upgrade,
]);
const UNSTORED_NAMES: [&str; 5] =
    ["Age", "X-Cache-Status", "X-Cache-Key", "Proxy-Authenticate", "Proxy-Authentication-Info"];

/// A response that may be stored.
#[derive(Debug, PartialEq)]
pub(super) struct Storable {
    pub(super) term: Term,
    /// It may answer requests with other credentials.
    pub(super) is_for_all: bool,
    /// Further headers that must not be stored.
    pub(super) unstored: Vec<String>,
}

/// A response as it arrives.
pub(super) struct Arrived<'r> {
    pub(super) status: u16,
    pub(super) headers: &'r Headers,
    pub(super) now: SystemTime,
    /// How long the upstream took.
    pub(super) delay: Duration,
}

impl<'r> Arrived<'r> {
    /// The upstream's response of an exchange.
    pub(super) fn of(exchange: &'r Exchange) -> Self {
        let delay =
            exchange.timing.upstream_start.map(|start| Instant::now().saturating_duration_since(start));
        let (status, headers) = (exchange.response.status, &exchange.response.headers);
        Self { status, headers, now: SystemTime::now(), delay: delay.unwrap_or_default() }
    }
}

/// How the response to a request is stored; none if it is not.
pub(super) fn check(config: &Config, types: Option<&[MediaType]>, exchange: &Exchange) -> Option<Storable> {
    let response = &exchange.response;
    let is_wanted = config.response_code.contains(&response.status)
        && types.is_none_or(|types| has_type(types, &response.headers));
    // A partial response is not the whole, and a cookie is for one client alone.
    let is_whole = !matches!(response.status, 100..200 | 206 | 304);
    let is_shared = !response.headers.contains_known(Known::SetCookie);
    let may_be_stored = is_wanted && is_whole && is_shared && !is_of_precondition(exchange);
    may_be_stored.then(|| terms(config, &Arrived::of(exchange)))?
}

/// Whether it says that a range or a condition has failed, which others with the same key have not sent.
fn is_of_precondition(exchange: &Exchange) -> bool {
    let headers = &exchange.request.headers;
    match exchange.response.status {
        412 => conditions::are_set(headers),
        416 => headers.contains_known(Known::Range),
        _ => false,
    }
}

/// The same for a response whose status and type are accepted.
pub(super) fn terms(config: &Config, arrived: &Arrived<'_>) -> Option<Storable> {
    let storage = config.storage_ttl.map(|seconds| Duration::from_secs(seconds.into()));
    let bounded = |time: Duration| Some(time).filter(|time| !time.is_zero());
    if !config.cache_control {
        let lifetime = Duration::from_secs(config.cache_ttl.into());
        let (age_before, stale) = (freshness::stated_age(arrived.headers), StaleUse::default());
        let stored_for = bounded(storage.unwrap_or(lifetime));
        let term = Term { lifetime, overdue: Duration::ZERO, stored_for, age_before, stale };
        return Some(Storable { term, is_for_all: false, unstored: Vec::new() });
    }
    let said = Directives::of_response(arrived.headers);
    if !may_be_stored(&said, arrived.status) {
        return None;
    }
    let is_validatable = VALIDATORS.iter().any(|name| arrived.headers.get(name).is_some());
    let age_before = freshness::age(arrived.headers, arrived.now, arrived.delay);
    let fresh_for = freshness::lifetime(&said, arrived.status, arrived.headers, arrived.now);
    if fresh_for.is_none() && !(said.no_cache && is_validatable) {
        return None;
    }
    let fresh_for = fresh_for.unwrap_or(0);
    let lifetime = Duration::from_secs(fresh_for.saturating_sub(age_before));
    let overdue = Duration::from_secs(age_before.saturating_sub(fresh_for));
    let stale = StaleUse::of(&said);
    let stale_for = Duration::from_secs(stale.while_revalidate.max(stale.if_error)).saturating_sub(overdue);
    let is_of_use = is_validatable || (!stale.always_validate && !(lifetime + stale_for).is_zero());
    let stored_for = match storage {
        Some(storage) => bounded(storage),
        // One that can be validated is of use as long as there is room.
        None => Some(lifetime + stale_for).filter(|_| !is_validatable),
    };
    let term = Term { lifetime, overdue, stored_for, age_before, stale };
    is_of_use.then(|| Storable { term, is_for_all: said.is_for_all(), unstored: said.unstored })
}

fn may_be_stored(said: &Directives, status: u16) -> bool {
    let is_refused = match said.must_understand {
        true => !is_understood(status),
        false => said.no_store,
    };
    !is_refused && !said.private
}

/// Whether the status is one whose meaning is registered.
fn is_understood(status: u16) -> bool {
    matches!(status, 200..=208 | 226 | 300..=308 | 400..=417 | 421..=426 | 428 | 429 | 431 | 451 | 500..=508 | 510 | 511)
}

fn has_type(types: &[MediaType], headers: &Headers) -> bool {
    let mut fields = headers.get_all_known(Known::ContentType);
    match (fields.next().and_then(MediaType::parse), fields.next()) {
        (Some(found), None) => types.iter().any(|cacheable| cacheable.includes(&found)),
        _ => false,
    }
}

/// Removes what is not stored, and says when the response was made if it does not.
pub(super) fn strip(headers: &mut Headers, unstored: &[String], now: SystemTime) {
    headers.remove_all_known(UNSTORED);
    for name in UNSTORED_NAMES.into_iter().chain(unstored.iter().map(String::as_str)) {
        headers.remove(name);
    }
    if !headers.contains_known(Known::Date) {
        headers.append("Date", httpdate::fmt_http_date(now).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_plugin::Record;

    fn stored(status: u16, lines: &[(&str, &str)]) -> Option<Storable> {
        let config = Config::from_value(&json!({ "strategy": "memory", "cache_control": true })).unwrap();
        let mut headers = Headers::new();
        lines.iter().for_each(|(name, value)| headers.append(name, value.as_bytes()));
        let now = httpdate::parse_http_date("Fri, 02 Jan 2026 00:00:00 GMT").unwrap();
        terms(&config, &Arrived { status, headers: &headers, now, delay: Duration::ZERO })
    }

    fn lifetime(status: u16, lines: &[(&str, &str)]) -> Option<u64> {
        stored(status, lines).map(|stored| stored.term.lifetime.as_secs())
    }

    #[test]
    fn responses_say_whether_they_are_stored() {
        for (status, said, expected) in [
            (200, "max-age=60", Some(60)),
            (200, "max-age=60, s-maxage=6", Some(6)),
            (200, "max-age=0", None),
            (200, "max-age=0, stale-if-error=5", Some(0)),
            (200, "max-age=0, stale-if-error=5, must-revalidate", None),
            (200, "max-age=0, stale-if-error=0", None),
            (200, "private, max-age=60", None),
            (200, "private=\"X-A\", max-age=60", Some(60)),
            (200, "no-cache, max-age=60", None),
            (200, "no-store, max-age=60", None),
            (200, "must-understand, no-store, max-age=60", Some(60)),
            (299, "must-understand, max-age=60", None),
            (299, "max-age=60", Some(60)),
            (200, "", None),
        ] {
            assert_eq!(lifetime(status, &[("Cache-Control", said)]), expected, "{status} {said}");
        }
    }

    #[test]
    fn what_can_be_validated_is_stored_although_it_is_stale() {
        let tag = ("ETag", "\"1\"");
        for said in ["max-age=0", "no-cache", "no-cache, max-age=60"] {
            let found = stored(200, &[("Cache-Control", said), tag]).unwrap();
            assert_eq!(found.term.stored_for, None, "{said}");
        }
        assert!(stored(200, &[tag]).is_none(), "it does not say that it may be");
    }

    #[test]
    fn a_response_that_does_not_say_is_fresh_for_a_tenth_of_the_time_since_its_change() {
        let changed = ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT");
        assert_eq!(lifetime(200, &[changed]), Some(8640));
        assert_eq!(lifetime(201, &[changed]), None);
        assert_eq!(lifetime(201, &[changed, ("Cache-Control", "public")]), Some(8640));
        let expired = stored(200, &[changed, ("Expires", "0")]).unwrap();
        assert_eq!(expired.term.lifetime, Duration::ZERO);
        assert_eq!(lifetime(200, &[("Last-Modified", "Thu, 01 Jan 1970 00:00:00 GMT")]), Some(86_400));
    }

    #[test]
    fn the_targeted_field_overrides_the_others() {
        let cache_control = ("Cache-Control", "no-store");
        assert_eq!(lifetime(200, &[cache_control, ("CDN-Cache-Control", "max-age=9")]), Some(9));
        assert_eq!(lifetime(200, &[("CDN-Cache-Control", "no-store"), ("Cache-Control", "max-age=9")]), None);
        assert_eq!(lifetime(200, &[("CDN-Cache-Control", "&"), ("Cache-Control", "max-age=9")]), Some(9));
        assert_eq!(lifetime(200, &[("CDN-Cache-Control", "public"), ("Cache-Control", "max-age=9")]), None);
    }
}

//! The fields after a body: which of them are forwarded, whatever the HTTP version.

use crate::fields::Headers;
use crate::known::Known;
use crate::parse_error::ParseError;
use crate::syntax::{is_token, list};

/// The most bytes of a trailer section that are forwarded, counted as lines of HTTP/1.1.
pub(crate) const MAX_TRAILER_BYTES: usize = 16 * 1024;
/// The most fields of a trailer section that are forwarded.
pub(crate) const MAX_TRAILER_FIELDS: usize = 100;
/// The most bytes of a response's trailer section that are read.
pub(crate) const MAX_RESPONSE_TRAILER_BYTES: usize = 64 * 1024;

/// Fields that are no [`Known`] ones and must not stand in trailers either, because they say how a message is routed, handled, or
/// to be understood, or who sends it (RFC 9110, 6.5.1).
const FORBIDDEN: [&str; 26] = [
    "age",
    "alt-svc",
    "clear-site-data",
    "content-disposition",
    "content-language",
    "content-location",
    "content-range",
    "expires",
    "http2-settings",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "retry-after",
    "strict-transport-security",
    "vary",
    "warning",
    "www-authenticate",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
];

impl Headers {
    /// Whether the sender takes trailers: TE says `trailers`.
    pub fn accept_trailers(&self) -> bool {
        self.get_all_known(Known::Te).flat_map(list).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
    }

    /// What Trailer says, without the names of trailers that are not forwarded; none if nothing is left.
    pub fn announced_trailers(&self) -> Option<Vec<u8>> {
        let names = self.get_all_known(Known::Trailer).flat_map(list);
        let forwarded: Vec<&[u8]> = names.filter(|name| is_token(name) && is_forwarded(name)).collect();
        (!forwarded.is_empty()).then(|| forwarded.join(&b", "[..]))
    }

    /// The fields of a trailer section that are forwarded. Those of [`Known`] and those that RFC 9110 forbids are dropped, also where
    /// underscores stand for their hyphens, because trailers must not change routing, identity or the connection. Framing fields and Host are
    /// an error, because the trailers of a request may come from an attacker.
    pub fn of_trailers<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Result<Self, ParseError> {
        let mut trailers = Self::new();
        let mut bytes = 0;
        for (index, (name, value)) in fields.enumerate() {
            bytes += name.len() + value.len() + ": \r\n".len();
            if index == MAX_TRAILER_FIELDS || bytes > MAX_TRAILER_BYTES {
                return Err(ParseError::TrailersTooLarge);
            }
            match Known::of(name) {
                _ if is_forwarded(name) => trailers.append(name, value),
                Known::ContentLength | Known::TransferEncoding | Known::Host => {
                    return Err(ParseError::TrailerForbidden);
                }
                _ => {}
            }
        }
        Ok(trailers)
    }

    /// The fields of a response's trailer section that are forwarded. All others are dropped (RFC 9110, 6.5.1), as is what
    /// exceeds the limits, because the response is complete without them.
    pub fn of_response_trailers<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut trailers = Self::new();
        let mut bytes = 0;
        for (name, value) in fields.take(MAX_TRAILER_FIELDS) {
            bytes += name.len() + value.len() + ": \r\n".len();
            if bytes > MAX_TRAILER_BYTES {
                break;
            }
            if is_forwarded(name) {
                trailers.append(name, value);
            }
        }
        trailers
    }
}

fn is_forwarded(name: &[u8]) -> bool {
    let is_forbidden = || FORBIDDEN.iter().any(|forbidden| is_same_header(name, forbidden.as_bytes()));
    Known::of(name) == Known::Other && Known::of_alias(name) == Known::Other && !is_forbidden()
}

/// Whether applications may take two names for the same: in any case, and with `_` for `-`.
pub fn is_same_header(one: &[u8], other: &[u8]) -> bool {
    let fold = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    one.len() == other.len() && one.iter().map(fold).eq(other.iter().map(fold))
}

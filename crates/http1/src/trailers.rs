//! The fields after a body: what may pass of them, whichever version of the protocol brought them.

use crate::fields::Headers;
use crate::known::Known;
use crate::reject::Reject;

/// The most bytes of a trailer section that pass, as its lines would be in HTTP/1.1.
pub(crate) const MOST_BYTES: usize = 16 * 1024;
/// The most fields of a trailer section that pass.
pub(crate) const MOST_FIELDS: usize = 100;
/// The most bytes of a response's trailer section that are read.
pub(crate) const MOST_BYTES_OF_RESPONSE: usize = 64 * 1024;

impl Headers {
    /// The fields of a trailer section that may pass. Those of [`Known`] are left out, also where underscores stand for
    /// their hyphens: trailers may not speak of routing, identity or the connection. Those of framing, and Host, are
    /// refused: these are the trailers of a request, which may come from an attacker.
    pub fn of_trailers<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Result<Self, Reject> {
        let mut trailers = Self::new();
        let mut bytes = 0;
        for (index, (name, value)) in fields.enumerate() {
            bytes += name.len() + value.len() + ": \r\n".len();
            if index == MOST_FIELDS || bytes > MOST_BYTES {
                return Err(Reject::TrailersTooLarge);
            }
            match Known::of(name) {
                Known::Other if Known::of_alias(name) == Known::Other => trailers.append(name, value),
                Known::ContentLength | Known::TransferEncoding | Known::Host => {
                    return Err(Reject::TrailerForbidden);
                }
                _ => {}
            }
        }
        Ok(trailers)
    }

    /// The fields of a response's trailer section that may pass. All others are left out (RFC 9110, 6.5.1), as is what
    /// exceeds the limits: the response itself is whole without them.
    pub fn of_response_trailers<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut trailers = Self::new();
        let mut bytes = 0;
        for (name, value) in fields.take(MOST_FIELDS) {
            bytes += name.len() + value.len() + ": \r\n".len();
            if bytes > MOST_BYTES {
                break;
            }
            if Known::of(name) == Known::Other && Known::of_alias(name) == Known::Other {
                trailers.append(name, value);
            }
        }
        trailers
    }
}

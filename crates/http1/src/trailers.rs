//! The fields after a body: what may pass of them, whichever version of the protocol brought them.

use crate::fields::Headers;
use crate::known::Known;
use crate::reject::Reject;

/// The most bytes of a trailer section, as its lines would be in HTTP/1.1.
pub(crate) const MOST_BYTES: usize = 16 * 1024;
/// The most fields of a trailer section.
pub(crate) const MOST_FIELDS: usize = 100;

impl Headers {
    /// The fields of a trailer section that may pass. Those of [`Known`] are left out, also where underscores stand for
    /// their hyphens: trailers may not speak of routing, identity or the connection. Those of framing, and Host, are
    /// refused.
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
}

//! What HTTP/2 and HTTP/3 have in common: requests side by side on one connection, and fields without lines.

mod authority;
mod books;
mod fields;
mod huffman;
mod message;
mod names;
mod primitives;
mod resets;

pub(crate) use authority::is_misdirected;
pub(crate) use books::{Books, UnderWay};
pub(crate) use fields::{
    Arrived, Fields, Start, framing, read_fields, read_request, read_response_trailers, read_trailers, size,
    write_fields,
};
pub(crate) use message::{Message, Name, Verdict};
pub(crate) use primitives::{integer, text};
pub(crate) use resets::Standing;

use std::time::Duration;

/// How long a client may go on sending a request that was answered.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

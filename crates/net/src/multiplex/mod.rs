//! What HTTP/2 and HTTP/3 have in common: parsing, validating and converting their fields.

mod fields;
mod huffman;
mod message;
mod names;
mod primitives;

pub use fields::{
    Arrived, Fields, Start, framing, read_fields, read_request, read_response_trailers, read_trailers, size,
    write_fields,
};
pub use message::{Message, Name, Verdict};
pub use primitives::{integer, text};

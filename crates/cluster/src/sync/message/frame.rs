//! A message as bytes: tag, header, body.
use bytes::Bytes;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest message that a compressed one may become.
pub const MAX_INFLATED_LEN: usize = 4 << 20;

/// Shorter messages are not compressed.
const MIN_COMPRESSED_LEN: usize = 256;

/// The bit of the tag that marks compressed messages.
const COMPRESSED: u8 = 0x80;

/// Bytes that are no message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageError {
    /// The message ends early.
    Truncated,
    /// The compressed part is damaged, or longer than [`MAX_INFLATED_LEN`].
    Deflate,
    /// The header is not what the tag announces.
    Header(String),
    /// The body does not fit to the header.
    Body(&'static str),
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MessageError::Truncated => f.write_str("the message ends early"),
            MessageError::Deflate => f.write_str("the compressed message is damaged, or longer than 4 MiB"),
            MessageError::Header(why) => write!(f, "the message's header is invalid: {why}"),
            MessageError::Body(why) => write!(f, "the message's body is invalid: {why}"),
        }
    }
}

impl std::error::Error for MessageError {}

/// A header without fields.
#[derive(Serialize, Deserialize)]
pub(super) struct Empty {}

/// The parts of a message.
pub(super) struct Frame {
    pub(super) tag: u8,
    header: Bytes,
    pub(super) body: Bytes,
}

impl Frame {
    pub(super) fn parse(mut bytes: Bytes) -> Result<Frame, MessageError> {
        let tag = *bytes.first().ok_or(MessageError::Truncated)?;
        let mut rest = bytes.split_off(1);
        if tag & COMPRESSED != 0 {
            rest = inflate(&rest)?.into();
        }
        let length = rest.first_chunk::<4>().ok_or(MessageError::Truncated)?;
        let length = u32::from_be_bytes(*length) as usize;
        let mut header = rest.split_off(4);
        if header.len() < length {
            return Err(MessageError::Truncated);
        }
        let body = header.split_off(length);
        Ok(Frame { tag: tag & !COMPRESSED, header, body })
    }

    pub(super) fn header<T: DeserializeOwned>(&self) -> Result<T, MessageError> {
        // What the parser says of a place in a text says nothing of its values.
        serde_json::from_slice(&self.header).map_err(|error| MessageError::Header(error.to_string()))
    }
}

/// A message of a header and a body, compressed where that makes it shorter.
pub(super) fn encode(tag: u8, header: &impl Serialize, body: &[u8]) -> Bytes {
    let plain = encode_chunk(tag, &json(header), body);
    let compressed = (plain.len() >= MIN_COMPRESSED_LEN).then(|| deflate(&plain[1..]));
    match compressed.filter(|compressed| compressed.len() + 1 < plain.len()) {
        Some(compressed) => [&[tag | COMPRESSED], compressed.as_slice()].concat().into(),
        None => plain,
    }
}

/// A message that is compressed already.
pub(super) fn encode_chunk(tag: u8, header: &[u8], body: &[u8]) -> Bytes {
    [&[tag], &(header.len() as u32).to_be_bytes()[..], header, body].concat().into()
}

/// A header as JSON. Those of this protocol always have one.
pub(super) fn json(header: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(header).unwrap_or_default()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut compress = Compress::new(Compression::default(), false);
    // Deflate adds five bytes for each 16 KiB that it cannot compress, and a few at the end.
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 1024 + 64);
    let _ = compress.compress_vec(bytes, &mut out, FlushCompress::Finish);
    out
}

fn inflate(bytes: &[u8]) -> Result<Vec<u8>, MessageError> {
    let mut decompress = Decompress::new(false);
    let mut out = Vec::with_capacity((bytes.len() * 4).clamp(256, MAX_INFLATED_LEN));
    loop {
        let taken = decompress.total_in() as usize;
        let status = decompress.decompress_vec(&bytes[taken..], &mut out, FlushDecompress::Finish);
        let has_ended = status.map_err(|_| MessageError::Deflate)? == Status::StreamEnd;
        match MAX_INFLATED_LEN.checked_sub(out.len()) {
            Some(_) if has_ended => return Ok(out),
            Some(left @ 1..) if out.len() == out.capacity() => out.reserve_exact(left.min(out.len())),
            _ => return Err(MessageError::Deflate),
        }
    }
}

//! What control planes and data planes say to each other.
//!
//! Each message is one binary WebSocket message:
//!
//! ```text
//! tag (1 byte; highest bit: the rest is raw deflate) │ length of the header (4, big-endian) │ header, JSON │ body
//! ```
//! A reader ignores tags and header fields that it does not know, so that the next release can add some. The body is of
//! bytes that JSON would only make longer: digests, and chunks of [transfers](super::transfer).
mod frame;
mod headers;

pub use frame::{MAX_INFLATED_LEN, MessageError};
pub use headers::{
    AnalyticsTaken, Applied, BucketMembers, Compare, Goodbye, Hello, Members, Refused, TransferHeader,
    Wanted, Welcome,
};

use super::inventory::BUCKETS;
use bytes::Bytes;
use frame::Frame;
use headers::{BucketKinds, Credit, MemberLists};

/// The version of the protocol, in [`Hello`] and [`Welcome`]. Both sides use the lower one.
pub const PROTOCOL_VERSION: u32 = 1;

/// The capability of a side that hands in analytics or takes them, in [`Hello`] and [`Welcome`].
pub const ANALYTICS_CAPABILITY: &str = "analytics.v1";

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Data plane: the first message.
    Hello(Hello),
    /// Control plane: the answer to it.
    Welcome(Welcome),
    /// Control plane: asks for the bucket digests of the kinds whose digests differ.
    Compare(Compare),
    /// Data plane: [`BUCKETS`] short digests for each of these kinds.
    Buckets(Vec<(String, Vec<u64>)>),
    /// Control plane: asks for the entities of buckets.
    Wanted(Wanted),
    /// Data plane: the entities of some of these buckets.
    Members(Members),
    /// Control plane: a transfer begins; with its first chunk.
    Transfer(TransferHeader, Bytes),
    /// Control plane: the next chunk of the transfer.
    Chunk(Bytes),
    /// Data plane: it has room for so many more chunks.
    Credit(u32),
    /// Data plane: every worker serves the transfer, and the cache has it.
    Applied(Applied),
    /// Data plane: it cannot serve the transfer, and serves what it served before.
    Refused(Refused),
    /// Data plane: its content is not what the transfer was made for; compare anew.
    Diverged,
    /// Either side: the last message.
    Goodbye(Goodbye),
    /// Data plane: a frame of what it has measured, if both sides have [`ANALYTICS_CAPABILITY`]. The next one follows the
    /// answer.
    Analytics(Bytes),
    /// Control plane: the answer to a frame.
    AnalyticsTaken(AnalyticsTaken),
    /// Of a later version; to be ignored.
    Unknown(u8),
}

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const COMPARE: u8 = 3;
const BUCKET_DIGESTS: u8 = 4;
const WANTED: u8 = 5;
const MEMBERS: u8 = 6;
const TRANSFER: u8 = 7;
const CHUNK: u8 = 8;
const CREDIT: u8 = 9;
const APPLIED: u8 = 10;
const REFUSED: u8 = 11;
const DIVERGED: u8 = 12;
const GOODBYE: u8 = 13;
const ANALYTICS: u8 = 14;
const ANALYTICS_TAKEN: u8 = 15;

impl Message {
    /// As bytes. The first chunk of a transfer must be written with [`transfer_frame`].
    pub fn encode(&self) -> Bytes {
        match self {
            Message::Hello(hello) => frame::encode(HELLO, hello, &[]),
            Message::Welcome(welcome) => frame::encode(WELCOME, welcome, &[]),
            Message::Compare(compare) => frame::encode(COMPARE, compare, &[]),
            Message::Buckets(kinds) => {
                let header = BucketKinds { kinds: kinds.iter().map(|(kind, _)| kind.clone()).collect() };
                let digests = kinds.iter().flat_map(|(_, digests)| digests);
                let body: Vec<u8> = digests.flat_map(|digest| digest.to_be_bytes()).collect();
                frame::encode(BUCKET_DIGESTS, &header, &body)
            }
            Message::Wanted(wanted) => frame::encode(WANTED, wanted, &[]),
            Message::Members(members) => {
                let (header, body) = members.to_parts();
                frame::encode(MEMBERS, &header, &body)
            }
            Message::Transfer(header, chunk) => transfer_frame(header, chunk),
            Message::Chunk(chunk) => frame::encode_chunk(CHUNK, &[], chunk),
            Message::Credit(chunks) => frame::encode(CREDIT, &Credit { chunks: *chunks }, &[]),
            Message::Applied(applied) => frame::encode(APPLIED, applied, &[]),
            Message::Refused(refused) => frame::encode(REFUSED, refused, &[]),
            Message::Diverged => frame::encode(DIVERGED, &frame::Empty {}, &[]),
            Message::Goodbye(goodbye) => frame::encode(GOODBYE, goodbye, &[]),
            Message::Analytics(frame) => frame::encode(ANALYTICS, &frame::Empty {}, frame),
            Message::AnalyticsTaken(taken) => frame::encode(ANALYTICS_TAKEN, taken, &[]),
            Message::Unknown(tag) => frame::encode(*tag, &frame::Empty {}, &[]),
        }
    }

    /// The message that bytes are.
    ///
    /// # Errors
    /// The bytes are no message, or it is longer than allowed.
    pub fn decode(bytes: Bytes) -> Result<Message, MessageError> {
        let frame = Frame::parse(bytes)?;
        Ok(match frame.tag {
            HELLO => Message::Hello(frame.header()?),
            WELCOME => Message::Welcome(frame.header()?),
            COMPARE => Message::Compare(frame.header()?),
            BUCKET_DIGESTS => Message::Buckets(buckets(&frame)?),
            WANTED => Message::Wanted(frame.header()?),
            MEMBERS => {
                let header: MemberLists = frame.header()?;
                Message::Members(Members::of_parts(header, &frame.body)?)
            }
            TRANSFER => Message::Transfer(frame.header()?, frame.body),
            CHUNK => Message::Chunk(frame.body),
            CREDIT => Message::Credit(frame.header::<Credit>()?.chunks),
            APPLIED => Message::Applied(frame.header()?),
            REFUSED => Message::Refused(frame.header()?),
            DIVERGED => Message::Diverged,
            GOODBYE => Message::Goodbye(frame.header()?),
            ANALYTICS => Message::Analytics(frame.body),
            ANALYTICS_TAKEN => Message::AnalyticsTaken(frame.header()?),
            tag => Message::Unknown(tag),
        })
    }
}

/// The message with which a transfer begins. Its chunk is compressed already.
pub fn transfer_frame(header: &TransferHeader, chunk: &[u8]) -> Bytes {
    frame::encode_chunk(TRANSFER, &frame::json(header), chunk)
}

fn buckets(frame: &Frame) -> Result<Vec<(String, Vec<u64>)>, MessageError> {
    let BucketKinds { kinds } = frame.header()?;
    let (digests, rest) = frame.body.as_chunks::<8>();
    if !rest.is_empty() || digests.len() != kinds.len().saturating_mul(BUCKETS) {
        return Err(MessageError::Body("the buckets of each kind are 1,024"));
    }
    let digests = digests.iter().map(|digest| u64::from_be_bytes(*digest)).collect::<Vec<_>>();
    Ok(kinds.into_iter().zip(digests.chunks(BUCKETS).map(<[u64]>::to_vec)).collect())
}

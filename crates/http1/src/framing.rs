//! Where a message ends, and whether its connection goes on (RFC 9112, 6 and 9).

use crate::fields::Headers;
use crate::known::Known;
use crate::message::Version;
use crate::reject::Reject;
use crate::syntax::{is_token, list};

/// How a message's body is delimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Framing {
    /// No body.
    #[default]
    None,
    /// That many bytes, from Content-Length.
    Length(u64),
    /// Chunks, then trailers.
    Chunked,
    /// Everything until the connection closes; responses only.
    UntilClose,
}

/// What the fields say of framing, before the kind of message decides.
pub(crate) struct Facts {
    pub(crate) length: Option<u64>,
    pub(crate) chunked: bool,
    pub(crate) keep_alive: bool,
    /// Connection lists `upgrade`, and there is an Upgrade field.
    pub(crate) upgrade: bool,
}

impl Facts {
    pub(crate) fn gather(headers: &Headers, version: Version) -> Result<Self, Reject> {
        let length = one(headers, Known::ContentLength, Reject::ContentLengthRepeated)?;
        let coding = one(headers, Known::TransferEncoding, Reject::TransferEncodingRepeated)?;
        let length = length.map(content_length).transpose()?;
        if let Some(coding) = coding {
            transfer_encoding(coding, headers, version)?;
            if length.is_some() {
                return Err(Reject::LengthAndEncoding);
            }
        }
        let connection = Connection::read(headers);
        Ok(Self {
            length,
            chunked: coding.is_some(),
            keep_alive: !connection.close && (version == Version::Http11 || connection.keep_alive),
            upgrade: connection.upgrade && headers.contains_known(Known::Upgrade),
        })
    }
}

/// The only value of a name that may be given once.
#[inline]
pub(crate) fn one(headers: &Headers, known: Known, repeated: Reject) -> Result<Option<&[u8]>, Reject> {
    let repeats = headers.may_repeat(known) && headers.get_all_known(known).nth(1).is_some();
    if repeats { Err(repeated) } else { Ok(headers.get_known(known)) }
}

/// Bounded to what a signed 64-bit reader further on can hold.
fn content_length(value: &[u8]) -> Result<u64, Reject> {
    if value.is_empty() {
        return Err(Reject::ContentLength);
    }
    let mut length = 0i64;
    for byte in value {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Reject::ContentLength);
        }
        length = length
            .checked_mul(10)
            .and_then(|length| length.checked_add(i64::from(digit)))
            .ok_or(Reject::ContentLength)?;
    }
    Ok(length.unsigned_abs())
}

/// Accepts `chunked` alone, written without spare whitespace.
fn transfer_encoding(value: &[u8], headers: &Headers, version: Version) -> Result<(), Reject> {
    if version == Version::Http10 {
        return Err(Reject::TransferEncodingVersion);
    }
    if value.eq_ignore_ascii_case(b"chunked") {
        return if headers.is_tight(Known::TransferEncoding) {
            Ok(())
        } else {
            Err(Reject::TransferEncoding)
        };
    }
    Err(if names_other_coding(value) { Reject::TransferEncodingUnknown } else { Reject::TransferEncoding })
}

/// Whether a value honestly names a coding that is not supported, rather than hiding `chunked`.
fn names_other_coding(value: &[u8]) -> bool {
    let mut members: Vec<&[u8]> = list(value).collect();
    if members.len() > 1 && members.last().is_some_and(|last| last.eq_ignore_ascii_case(b"chunked")) {
        members.pop();
    }
    let mentions_chunked =
        |member: &[u8]| member.windows(7).any(|part| part.eq_ignore_ascii_case(b"chunked"));
    !members.is_empty() && members.iter().all(|member| is_token(member) && !mentions_chunked(member))
}

#[derive(Default)]
struct Connection {
    close: bool,
    keep_alive: bool,
    upgrade: bool,
}

impl Connection {
    fn read(headers: &Headers) -> Self {
        let mut connection = Self::default();
        match headers.get_known(Known::Connection) {
            None => return connection,
            // As nearly everybody writes it.
            Some(b"keep-alive") if !headers.may_repeat(Known::Connection) => {
                connection.keep_alive = true;
                return connection;
            }
            Some(_) => {}
        }
        for option in headers.get_all_known(Known::Connection).flat_map(list) {
            connection.close |= option.eq_ignore_ascii_case(b"close");
            connection.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            connection.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
        connection
    }
}

//! Where a message ends, and whether its connection is kept alive (RFC 9112, 6 and 9).

use crate::fields::Headers;
use crate::known::Known;
use crate::message::Version;
use crate::parse_error::ParseError;
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

/// The fields that decide framing, as they are in requests and responses alike.
pub(crate) struct FramingFields {
    pub(crate) length: Option<u64>,
    pub(crate) chunked: bool,
    pub(crate) keep_alive: bool,
    /// Connection lists `upgrade`, and there is an Upgrade field.
    pub(crate) upgrade: bool,
}

impl FramingFields {
    /// Those of a request: `chunked` is written without spare whitespace.
    pub(crate) fn read(headers: &Headers, version: Version) -> Result<Self, ParseError> {
        let fields = Self::read_leniently(headers, version)?;
        if fields.chunked && !headers.has_plain_whitespace(Known::TransferEncoding) {
            return Err(ParseError::TransferEncoding);
        }
        Ok(fields)
    }

    /// Those of a response, with any whitespace around its values.
    pub(crate) fn read_leniently(headers: &Headers, version: Version) -> Result<Self, ParseError> {
        let length = single_value(headers, Known::ContentLength, ParseError::ContentLengthRepeated)?;
        let coding = single_value(headers, Known::TransferEncoding, ParseError::TransferEncodingRepeated)?;
        let length = length.map(content_length).transpose()?;
        if let Some(coding) = coding {
            transfer_encoding(coding, version)?;
            if length.is_some() {
                return Err(ParseError::LengthAndEncoding);
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

/// The value of a field that may be present once.
#[inline]
pub(crate) fn single_value(
    headers: &Headers,
    known: Known,
    repeated: ParseError,
) -> Result<Option<&[u8]>, ParseError> {
    if is_repeated(headers, known) { Err(repeated) } else { Ok(headers.get_known(known)) }
}

/// Whether there is more than one field of a name.
#[inline]
pub(crate) fn is_repeated(headers: &Headers, known: Known) -> bool {
    headers.may_repeat(known) && headers.get_all_known(known).nth(1).is_some()
}

/// Bounded to a signed 64-bit number, because programs behind the gateway may read it as one.
fn content_length(value: &[u8]) -> Result<u64, ParseError> {
    if value.is_empty() {
        return Err(ParseError::ContentLength);
    }
    let mut length = 0i64;
    for byte in value {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(ParseError::ContentLength);
        }
        length = length
            .checked_mul(10)
            .and_then(|length| length.checked_add(i64::from(digit)))
            .ok_or(ParseError::ContentLength)?;
    }
    Ok(length.unsigned_abs())
}

/// Accepts `chunked` alone.
fn transfer_encoding(value: &[u8], version: Version) -> Result<(), ParseError> {
    if version == Version::Http10 {
        return Err(ParseError::TransferEncodingVersion);
    }
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    Err(if names_other_coding(value) {
        ParseError::TransferEncodingUnknown
    } else {
        ParseError::TransferEncoding
    })
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
            // The common form.
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

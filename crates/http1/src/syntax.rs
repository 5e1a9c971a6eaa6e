//! How a field is written: its name, lists in its value, its line (RFC 9110, 5).

use crate::parse_error::ParseError;

/// The members of a comma-separated list, trimmed, empty ones left out.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(trim).filter(|member| !member.is_empty())
}

fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Replaces by spaces the bytes that would end a line or a string (RFC 9110, 5.5).
pub(crate) fn replace_control_bytes(value: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = memchr::memchr3(b'\r', b'\n', 0, &value[at..]) {
        at += found;
        value[at] = b' ';
    }
}

/// Appends `name: value CRLF`. Inlined, so that a name that is a constant is written without a call.
#[inline(always)]
pub(crate) fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Whether a field may have this name (RFC 9110, 5.6.2).
pub fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| is_token_byte(*byte))
}

/// Which bytes names are made of.
static TOKEN_BYTES: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        allowed[byte] = is_allowed(byte as u8);
        byte += 1;
    }
    allowed
};

#[inline]
pub(crate) fn is_token_byte(byte: u8) -> bool {
    TOKEN_BYTES[usize::from(byte)]
}

const fn is_allowed(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'!' | b'#'..=b'\'' | b'*' | b'+' | b'.' | b'^' | b'`' | b'|' | b'~')
}

/// The fields of `head`, which begin with its second line.
#[cold]
pub(crate) fn parse_fields<'s, 'h>(
    head: &'h [u8],
    slots: &'s mut [httparse::Header<'h>],
) -> Result<&'s [httparse::Header<'h>], ParseError> {
    let lines = memchr::memchr(b'\n', head).map_or(&head[head.len()..], |end| &head[end + 1..]);
    match httparse::parse_headers(lines, slots) {
        Ok(httparse::Status::Complete((length, fields))) if length == lines.len() => Ok(fields),
        Ok(_) => Err(ParseError::FieldName),
        Err(error) => Err(field_error(head, error).unwrap_or(ParseError::FieldName)),
    }
}

/// Why `httparse` rejected the fields of `head`, whose every LF is known to follow a CR.
pub(crate) fn field_error(head: &[u8], error: httparse::Error) -> Option<ParseError> {
    use httparse::Error;
    let bare_cr = memchr::memchr_iter(b'\r', head).any(|at| head.get(at + 1) != Some(&b'\n'));
    match error {
        Error::TooManyHeaders => Some(ParseError::TooManyFields),
        _ if bare_cr => Some(ParseError::BareCr),
        Error::HeaderName if head.windows(3).any(|at| matches!(at, b"\r\n " | b"\r\n\t")) => {
            Some(ParseError::ObsFold)
        }
        Error::HeaderName => Some(ParseError::FieldName),
        Error::HeaderValue => Some(ParseError::FieldValue),
        _ => None,
    }
}

//! The messages of LDAP (RFC 4511) that logins take, in BER: requests to bind and to start TLS, and their responses.

/// The longest response. Directories send some hundred bytes.
pub(super) const MAX_RESPONSE_LEN: usize = 64 * 1024;

/// The operations that responses are of.
pub(super) const BIND_RESPONSE: u8 = 0x61;
/// The response to an extended operation; also what a directory says before it closes a connection.
pub(super) const EXTENDED_RESPONSE: u8 = 0x78;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const ENUMERATED: u8 = 0x0a;
const BIND_REQUEST: u8 = 0x60;
const SIMPLE: u8 = 0x80;
const EXTENDED_REQUEST: u8 = 0x77;
const REQUEST_NAME: u8 = 0x80;
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";

/// A simple bind in version 3.
pub(super) fn bind_request(id: u8, name: &[u8], password: &[u8]) -> Vec<u8> {
    let mut operation = element(INTEGER, &[3]);
    operation.extend(element(OCTET_STRING, name));
    operation.extend(element(SIMPLE, password));
    message(id, &element(BIND_REQUEST, &operation))
}

/// The extended operation StartTLS.
pub(super) fn start_tls_request(id: u8) -> Vec<u8> {
    message(id, &element(EXTENDED_REQUEST, &element(REQUEST_NAME, START_TLS)))
}

fn message(id: u8, operation: &[u8]) -> Vec<u8> {
    // One byte is enough for up to 127.
    element(SEQUENCE, &[&element(INTEGER, &[id & 0x7f]), operation].concat())
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        short @ 0..=127 => out.push(short as u8),
        long => {
            let bytes = long.to_be_bytes();
            let bytes = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
            out.push(0x80 | bytes.len() as u8);
            out.extend(bytes);
        }
    }
    out.extend(content);
    out
}

/// How long a message is whose first bytes these are: none if more of them are needed.
pub(super) fn message_len(begin: &[u8]) -> Result<Option<usize>, &'static str> {
    match *begin {
        [] => Ok(None),
        [SEQUENCE, ref length @ ..] => match read_length(length)? {
            Some((length_len, content)) => match 1 + length_len + content {
                len @ ..=MAX_RESPONSE_LEN => Ok(Some(len)),
                _ => Err("the response is too long"),
            },
            None => Ok(None),
        },
        _ => Err("the response is no message of LDAP"),
    }
}

/// The length that an element states, and how many bytes state it.
fn read_length(bytes: &[u8]) -> Result<Option<(usize, usize)>, &'static str> {
    let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
    match first {
        0..=0x7f => Ok(Some((1, (*first).into()))),
        0x81..=0x84 => {
            let count = usize::from(first & 0x7f);
            let Some(octets) = rest.get(..count) else { return Ok(None) };
            let value = octets.iter().fold(0, |value, octet| value << 8 | usize::from(*octet));
            Ok(Some((1 + count, value)))
        }
        _ => Err("a length of the response is not one that LDAP allows"),
    }
}

/// A response to a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Response {
    /// The number of the request; 0 for what no request asked for.
    pub(super) id: u32,
    /// [`BIND_RESPONSE`] or another.
    pub(super) operation: u8,
    /// 0 is success.
    pub(super) result: u32,
}

impl Response {
    /// Reads a whole message.
    pub(super) fn read(message: &[u8]) -> Result<Response, &'static str> {
        let (tag, content, rest) = take(message)?;
        if tag != SEQUENCE || !rest.is_empty() {
            return Err("the response is no message of LDAP");
        }
        let (tag, id, rest) = take(content)?;
        let id = number(tag == INTEGER, id)?;
        let (operation, content, _) = take(rest)?;
        let (tag, result, rest) = take(content)?;
        let result = number(tag == ENUMERATED, result)?;
        // A name and a text follow; what they say is not needed, but they must be there.
        let (name, _, rest) = take(rest)?;
        let (text, ..) = take(rest)?;
        match (name, text) {
            (OCTET_STRING, OCTET_STRING) => Ok(Response { id, operation, result }),
            _ => Err("the response has no result"),
        }
    }
}

/// The tag, the content, and what follows.
fn take(bytes: &[u8]) -> Result<(u8, &[u8], &[u8]), &'static str> {
    const CUT: &str = "the response is cut off";
    let (tag, rest) = bytes.split_first().ok_or(CUT)?;
    let (length_len, length) = read_length(rest)?.ok_or(CUT)?;
    let (content, rest) = rest[length_len..].split_at_checked(length).ok_or(CUT)?;
    Ok((*tag, content, rest))
}

fn number(is_number: bool, octets: &[u8]) -> Result<u32, &'static str> {
    match (is_number, octets) {
        // Negative numbers mean nothing here.
        (true, [0..=0x7f, rest @ ..]) if rest.len() < 4 => {
            Ok(octets.iter().fold(0, |value, octet| value << 8 | u32::from(*octet)))
        }
        _ => Err("a number of the response is malformed"),
    }
}

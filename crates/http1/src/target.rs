//! The forms of a request target and the syntax of an authority (RFC 9112, 3.2; RFC 3986, 3.2).

use std::net::Ipv6Addr;
use std::ops::Range;

use crate::message::Method;
use crate::parse_error::ParseError;

/// Where the parts of a target are within it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) authority: Option<Range<usize>>,
    /// Empty in an absolute URL without one, and for CONNECT.
    pub(crate) path: Range<usize>,
    pub(crate) query: Option<Range<usize>>,
}

impl Target {
    pub(crate) fn split(method: Method, target: &str) -> Result<Self, ParseError> {
        let bytes = target.as_bytes();
        if memchr::memchr(b'#', bytes).is_some() {
            return Err(ParseError::TargetFragment);
        }
        if method == Method::Connect {
            return Self::authority_form(bytes);
        }
        match bytes {
            [b'/', ..] => Ok(Self::with_path(bytes, None, 0)),
            [b'*'] if method == Method::Options => Ok(Self::with_path(bytes, None, 0)),
            _ => Self::absolute_form(bytes),
        }
    }

    /// The parts of a path with its query; none if it is anything else, or has spaces or a fragment.
    #[inline]
    pub(crate) fn split_path(target: &[u8]) -> Option<Self> {
        if target.first() != Some(&b'/') {
            return None;
        }
        let Some(at) = memchr::memchr3(b'?', b'#', b' ', target) else {
            return Some(Self { authority: None, path: 0..target.len(), query: None });
        };
        let has_query = target[at] == b'?' && memchr::memchr2(b'#', b' ', &target[at..]).is_none();
        has_query.then(|| Self { authority: None, path: 0..at, query: Some(at + 1..target.len()) })
    }

    fn authority_form(bytes: &[u8]) -> Result<Self, ParseError> {
        let has_port = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        if has_port == 0 || !is_authority(bytes) || !bytes[..bytes.len() - has_port].ends_with(b":") {
            return Err(ParseError::Target);
        }
        Ok(Self { authority: Some(0..bytes.len()), path: 0..0, query: None })
    }

    fn absolute_form(bytes: &[u8]) -> Result<Self, ParseError> {
        let has_scheme =
            |scheme: &[u8]| bytes.get(..scheme.len()).is_some_and(|it| it.eq_ignore_ascii_case(scheme));
        let start = match () {
            () if has_scheme(b"http://") => 7,
            () if has_scheme(b"https://") => 8,
            () => return Err(ParseError::Target),
        };
        let rest = &bytes[start..];
        let end = start + rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
        if !is_authority(&bytes[start..end]) {
            return Err(ParseError::Authority);
        }
        Ok(Self::with_path(bytes, Some(start..end), end))
    }

    fn with_path(bytes: &[u8], authority: Option<Range<usize>>, start: usize) -> Self {
        match memchr::memchr(b'?', &bytes[start..]) {
            Some(at) => Self { authority, path: start..start + at, query: Some(start + at + 1..bytes.len()) },
            None => Self { authority, path: start..bytes.len(), query: None },
        }
    }
}

/// Whether `bytes` is `host`, `host:port`, `[ipv6]` or `[ipv6]:port`. An empty host is none.
pub(crate) fn is_authority(bytes: &[u8]) -> bool {
    if let Some(literal) = bytes.strip_prefix(b"[") {
        let Some(end) = memchr::memchr(b']', literal) else { return false };
        return is_ipv6(&literal[..end]) && is_port(&literal[end + 1..]);
    }
    let end = bytes.iter().position(|byte| !IN_NAMES[*byte as usize]).unwrap_or(bytes.len());
    match bytes.get(end) {
        None => end > 0,
        Some(b':') => end > 0 && is_port(&bytes[end..]),
        Some(_) => is_encoded_authority(bytes),
    }
}

#[cold]
fn is_encoded_authority(bytes: &[u8]) -> bool {
    let end = memchr::memchr(b':', bytes).unwrap_or(bytes.len());
    end > 0 && is_encoded_name(&bytes[..end]) && is_port(&bytes[end..])
}

/// A registered name or IPv4 address, in which bytes may be percent-encoded.
fn is_encoded_name(name: &[u8]) -> bool {
    name.iter().enumerate().all(|(at, byte)| match byte {
        b'%' => {
            matches!(name[at + 1..], [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
        }
        _ => IN_NAMES[*byte as usize],
    })
}

/// Which bytes may stand in a name for themselves. Of RFC 3986's sub-delimiters `,` is left out: it is how two Host fields
/// look once merged.
static IN_NAMES: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0u8;
    loop {
        allowed[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'-' | b'.'
                    | b'_'
                    | b'~'
                    | b'!'
                    | b'$'
                    | b'&'
                    | b'\''
                    | b'('
                    | b')'
                    | b'*'
                    | b'+'
                    | b';'
                    | b'='
            );
        if byte == u8::MAX {
            break allowed;
        }
        byte += 1;
    }
};

fn is_ipv6(literal: &[u8]) -> bool {
    str::from_utf8(literal).is_ok_and(|literal| literal.parse::<Ipv6Addr>().is_ok())
}

fn is_port(rest: &[u8]) -> bool {
    match rest {
        [] | [b':'] => true,
        [b':', digits @ ..] if digits.len() <= 5 => {
            let port = digits.iter().try_fold(0u32, |port, digit| {
                let digit = digit.wrapping_sub(b'0');
                (digit <= 9).then(|| port * 10 + u32::from(digit))
            });
            port.is_some_and(|port| port <= 65535)
        }
        _ => false,
    }
}

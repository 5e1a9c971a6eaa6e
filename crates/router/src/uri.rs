//! Normalises a request's path, and builds the path that is sent upstream.
use std::borrow::Cow;

/// The path as routes see it, like Kong's: percent-encoded bytes decoded unless reserved, dot segments
/// resolved, slashes merged.
///
/// The result may hold any character, including line breaks, so a caller that sends or logs a part of it must encode
/// that part again, as [`upstream_path`] does. Two rules are safer than Kong's: bytes that are not UTF-8 stay encoded
/// (Kong responds with 404), and decoding one escape never produces another (`%%341`).
pub fn normalize_path(path: &str) -> Cow<'_, str> {
    if is_normal(path.as_bytes()) {
        return Cow::Borrowed(path);
    }
    let decoded = match memchr::memchr(b'%', path.as_bytes()) {
        Some(_) => Cow::Owned(decode(path)),
        None => Cow::Borrowed(path),
    };
    if is_resolved(decoded.as_bytes()) { decoded } else { Cow::Owned(resolve(&decoded)) }
}

/// Whether the path, as nearly all, has no percent sign, no dot segment and no empty one. Looks at every byte without a
/// branch, which is quicker than to search three times.
fn is_normal(path: &[u8]) -> bool {
    let is_odd = |first, second| (first == b'%') | ((first == b'/') & ((second == b'/') | (second == b'.')));
    let has_odd = path.windows(2).fold(false, |odd, pair| odd | is_odd(pair[0], pair[1]));
    !has_odd && path.first() != Some(&b'.') && path.last() != Some(&b'%')
}

/// Whether the path has neither a dot segment nor an empty one.
fn is_resolved(path: &[u8]) -> bool {
    !path.starts_with(b".")
        && memchr::memchr_iter(b'/', path).all(|at| !matches!(path.get(at + 1), Some(b'/' | b'.')))
}

/// Decodes unreserved bytes; the hex digits of bytes that stay encoded become upper case.
fn decode(path: &str) -> String {
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some(&byte) = rest.first() {
        let Some(value) = escape_at(rest) else {
            out.push(byte);
            rest = &rest[1..];
            continue;
        };
        if is_reserved(value) || (value.is_ascii_hexdigit() && ends_in_stray_percent(&out)) {
            push_escape(&mut out, value);
        } else {
            out.push(value);
        }
        rest = &rest[3..];
    }
    String::from_utf8(out).unwrap_or_else(|error| encode_invalid(error.as_bytes()))
}

/// The byte that a leading percent-encoded triplet stands for.
fn escape_at(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(*high)? * 16 + digit(*low)?) as u8)
}

fn is_reserved(byte: u8) -> bool {
    b"!*'();:@&=+$,/?%#[]".contains(&byte)
}

/// Whether the output ends in an incomplete escape: a `%`, alone or with one hex digit.
fn ends_in_stray_percent(out: &[u8]) -> bool {
    match out {
        [.., b'%'] => true,
        [.., b'%', digit] => digit.is_ascii_hexdigit(),
        _ => false,
    }
}

fn push_escape(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

fn encode_invalid(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Resolves dot segments and merges slashes.
fn resolve(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while !rest.is_empty() {
        if matches!(rest, "." | "..") {
            break;
        }
        if let Some(tail) = rest.strip_prefix("../").or_else(|| rest.strip_prefix("./")) {
            rest = tail;
        } else if rest == "/." || rest.starts_with("/./") {
            rest = rest.get(2..).filter(|tail| !tail.is_empty()).unwrap_or("/");
        } else if rest == "/.." || rest.starts_with("/../") {
            out.truncate(out.rfind('/').unwrap_or(0));
            rest = rest.get(3..).filter(|tail| !tail.is_empty()).unwrap_or("/");
        } else if rest.starts_with("//") {
            rest = &rest[1..];
        } else {
            let end = memchr::memchr(b'/', &rest.as_bytes()[1..]).map_or(rest.len(), |at| at + 1);
            let (segment, tail) = rest.split_at(end);
            out.push_str(segment);
            rest = tail;
        }
    }
    out
}

/// Appends the path to send upstream: joins a service's path and a request's like Kong (`path_handling`
/// v0), percent-encoded where needed.
///
/// `request_path` is normalised, `matched` is [`Match::matched_path`](super::Match::matched_path), and a
/// service without a path counts as `/`.
pub fn upstream_path(
    out: &mut Vec<u8>,
    service_path: Option<&str>,
    request_path: &str,
    matched: usize,
    strip_path: bool,
) {
    let base = service_path.filter(|path| !path.is_empty()).unwrap_or("/").as_bytes();
    let request = request_path.as_bytes();
    let rest = without_dots(request.get(matched..).unwrap_or_default());
    let slash_after = request.len() > 1 && request.ends_with(b"/");
    let (base, between, rest): (&[u8], &[u8], &[u8]) = match (base.strip_suffix(b"/"), strip_path) {
        (Some([]), true) if rest.is_empty() => (b"/", b"", b""),
        (Some(trimmed), true) if rest.is_empty() && !request.ends_with(b"/") => (trimmed, b"", b""),
        (Some(_), true) if rest.is_empty() => (base, b"", b""),
        (Some(trimmed), true) if rest.starts_with(b"/") => (trimmed, b"", rest),
        (Some(_), true) => (base, b"", rest),
        (Some(_), false) => (base, b"", request.get(1..).unwrap_or_default()),
        (None, true) if rest.is_empty() => (base, if slash_after { b"/" } else { b"" }, b""),
        (None, true) if rest.starts_with(b"/") => (base, b"", rest),
        (None, true) => (base, b"/", rest),
        (None, false) if request == b"/" => (base, b"", b""),
        (None, false) => (base, b"", request),
    };
    push_encoded(out, base);
    out.extend(between);
    push_encoded(out, rest);
}

/// The same as [`upstream_path`] in Kong's older way, `path_handling` v1: what is left of the request's path is put behind
/// the service's path without a slash between them.
pub fn upstream_path_v1(
    out: &mut Vec<u8>,
    service_path: Option<&str>,
    request_path: &str,
    matched: usize,
    strip_path: bool,
) {
    let base = service_path.filter(|path| !path.is_empty()).unwrap_or("/").as_bytes();
    let rest = request_path.as_bytes().get(if strip_path { matched } else { 1 }..).unwrap_or_default();
    let rest = if strip_path { without_dots(rest) } else { rest };
    let one_slash = if rest.starts_with(b"/") { base.strip_suffix(b"/") } else { None };
    push_encoded(out, one_slash.filter(|_| strip_path).unwrap_or(base));
    push_encoded(out, rest);
}

/// Stripping may leave a dot segment in front (`/a` stripped of `/a../b`).
fn without_dots(rest: &[u8]) -> &[u8] {
    match rest {
        b"." | b".." => b"",
        [b'.', b'/', rest @ ..] | [b'.', b'.', b'/', rest @ ..] => rest,
        rest => rest,
    }
}

/// Appends a normalised path, with the bytes escaped that a request line must not contain.
pub fn push_encoded(out: &mut Vec<u8>, path: impl AsRef<[u8]>) {
    let mut path = path.as_ref();
    if path.is_empty() {
        return;
    }
    while let Some(at) = path.iter().position(|&byte| !SENDABLE[usize::from(byte)]) {
        out.extend_from_slice(&path[..at]);
        push_escape(out, path[at]);
        path = &path[at + 1..];
    }
    out.extend_from_slice(path);
}

/// The bytes that are sent unescaped.
static SENDABLE: [bool; 256] = {
    let mut table = [false; 256];
    let others = b"!$&'()*+,/:;=?@[]-_.~%";
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

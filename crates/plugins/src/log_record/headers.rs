//! The headers of a record: by name in lower case, without credentials.

use super::{MAX_ITEMS, lower, one_or_list};
use weir_plugin::json_text::{self, raw};
use weir_plugin::{FieldRef, Headers, Known};

/// The text between two header values, for a known second header. The buffer has a fixed size, so that it is copied in
/// one move.
struct Opening {
    text: [u8; ROOM],
    length: usize,
}

const ROOM: usize = 32;

/// For all known headers.
static OPENINGS: [Opening; Known::EVERY.len()] = {
    let mut openings = [const { Opening { text: [0; ROOM], length: 0 } }; Known::EVERY.len()];
    let mut at = 0;
    while at < openings.len() {
        openings[at] = Opening::of(Known::EVERY[at].name().as_bytes());
        at += 1;
    }
    openings
};

/// The text before a name, after the previous value.
const BETWEEN: &str = r#"",""#;

/// The text before the first name instead.
const FIRST: &str = r#":{""#;

/// The text after a name.
const BEHIND: &str = r#"":""#;

/// The value in place of a secret.
const REDACTED: &str = "REDACTED";

impl Opening {
    const fn of(name: &[u8]) -> Self {
        let parts = [BETWEEN.as_bytes(), name, BEHIND.as_bytes()];
        let (mut text, mut length, mut part) = ([0; ROOM], 0, 0);
        while part < parts.len() {
            let mut at = 0;
            while at < parts[part].len() {
                text[length] = parts[part][at];
                (length, at) = (length + 1, at + 1);
            }
            part += 1;
        }
        Self { text, length }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.text);
        out.truncate(out.len() - (ROOM - self.length));
    }
}

/// Writes the headers as an object, after its key. `plain` says whether no value needs escapes.
pub(super) fn headers(out: &mut Vec<u8>, headers: &Headers, plain: bool) {
    let start = out.len();
    if !are_single(out, headers, plain) {
        out.truncate(start);
        any(out, headers);
    }
}

/// Writes headers as they nearly always are, no two with one name. Returns whether they are.
fn are_single(out: &mut Vec<u8>, headers: &Headers, plain: bool) -> bool {
    if headers.is_empty() || headers.len() > MAX_ITEMS {
        return false;
    }
    let (start, mut traces) = (out.len(), 0);
    for field in headers.iter() {
        if field.known != Known::Other {
            if headers.may_repeat(field.known) {
                return false;
            }
            OPENINGS[field.known as usize].write(out);
        } else {
            let trace = trace(field.name);
            if traces & trace != 0 && is_repeated(headers, field.name) {
                return false;
            }
            traces |= trace;
            open(out, field.name);
        }
        if is_secret(field.known) {
            raw(out, REDACTED);
        } else if plain {
            field.write_value(out);
        } else {
            json_text::text(out, field.value);
        }
    }
    raw(out, "\"}");
    out[start..start + FIRST.len()].copy_from_slice(FIRST.as_bytes());
    true
}

/// What `Opening` does, for a header with any name. Not inlined, to keep the common path short.
#[inline(never)]
fn open(out: &mut Vec<u8>, name: &[u8]) {
    raw(out, BETWEEN);
    lower_name(out, name);
    raw(out, BEHIND);
}

#[cold]
fn is_repeated(headers: &Headers, name: &[u8]) -> bool {
    headers.iter().filter(|other| other.name.eq_ignore_ascii_case(name)).count() > 1
}

/// Writes any headers: the values of one name are a list.
fn any(out: &mut Vec<u8>, headers: &Headers) {
    let fields: Vec<_> = headers.iter().take(MAX_ITEMS).collect();
    raw(out, ":{");
    for (at, field) in fields.iter().enumerate() {
        if fields[..at].iter().any(|other| is_same(other, field)) {
            continue;
        }
        raw(out, if at > 0 { ",\"" } else { "\"" });
        lower_name(out, field.name);
        raw(out, "\":");
        if is_secret(field.known) {
            json_text::string(out, REDACTED.as_bytes());
        } else {
            let same = fields[at..].iter().filter(|other| is_same(other, field));
            one_or_list(out, same.map(|other| other.value), json_text::string);
        }
    }
    out.push(b'}');
}

fn is_secret(known: Known) -> bool {
    matches!(known, Known::Authorization | Known::ProxyAuthorization)
}

fn is_same(one: &FieldRef<'_>, other: &FieldRef<'_>) -> bool {
    one.known == other.known && one.name.eq_ignore_ascii_case(other.name)
}

/// Names need no escapes: they are tokens.
fn lower_name(out: &mut Vec<u8>, name: &[u8]) {
    let start = out.len();
    out.extend_from_slice(name);
    lower(&mut out[start..]);
}

/// One bit for a name in any case; few names share a bit.
fn trace(name: &[u8]) -> u64 {
    let letter = |at: Option<&u8>| usize::from(at.map_or(0, |byte| byte | 0x20));
    let sum = name.len()
        + 31 * letter(name.last())
        + 7 * letter(name.get(name.len() / 2))
        + 3 * letter(name.first());
    1 << (sum % 64)
}

//! Writes JSON text into a buffer piece by piece, without a tree of values.

use std::io::Write;
use std::time::Duration;

/// An object being written.
pub struct Object<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl<'a> Object<'a> {
    /// Begins an object.
    pub fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    /// Continues an object that has members already.
    pub fn resume(out: &'a mut Vec<u8>) -> Self {
        Self { out, empty: false }
    }

    fn separate(&mut self) {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
    }

    /// Writes any name, and returns the buffer for its value.
    pub fn name(&mut self, name: &[u8]) -> &mut Vec<u8> {
        self.separate();
        string(self.out, name);
        self.out.push(b':');
        self.out
    }

    /// Writes a key that needs no escapes, and returns the buffer for its value.
    #[inline]
    pub fn key(&mut self, key: &'static str) -> &mut Vec<u8> {
        raw(self.out, if std::mem::take(&mut self.empty) { "\"" } else { ",\"" });
        raw(self.out, key);
        raw(self.out, "\":");
        self.out
    }

    /// A member that is text.
    pub fn text(&mut self, key: &'static str, value: &[u8]) {
        string(self.key(key), value);
    }

    /// A member that is text, if there is any.
    pub fn some(&mut self, key: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value.as_bytes());
        }
    }

    /// A member that is a number.
    pub fn number(&mut self, key: &'static str, value: u64) {
        integer(self.key(key), value);
    }

    /// A member that is JSON already.
    pub fn raw(&mut self, key: &'static str, json: &str) {
        self.key(key).extend_from_slice(json.as_bytes());
    }

    /// A member that is a duration in milliseconds, with three decimals.
    pub fn milliseconds(&mut self, key: &'static str, value: Duration) {
        let micros = value.as_micros();
        // Writing to a Vec cannot fail.
        let _ = write!(self.key(key), "{}.{:03}", micros / 1000, micros % 1000);
    }

    /// Ends the object.
    pub fn close(self) {
        self.out.push(b'}');
    }
}

/// A list of values, each written by `write`.
pub fn array<T>(
    out: &mut Vec<u8>,
    values: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (at, value) in values.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(out, value);
    }
    out.push(b']');
}

/// JSON text that is already written.
#[inline(always)]
pub fn raw(out: &mut Vec<u8>, json: &'static str) {
    out.extend_from_slice(json.as_bytes());
}

/// A number.
#[inline]
pub fn integer(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=9 => out.push(b'0' + value as u8),
        _ => digits(out, value),
    }
}

/// Statuses, ports and sizes are short: their digits are written directly.
#[inline(never)]
fn digits(out: &mut Vec<u8>, value: u64) {
    let digit = |place: u32| b'0' + (value as u32 / place % 10) as u8;
    match value {
        0..=99 => out.extend_from_slice(&[digit(10), digit(1)]),
        100..=999 => out.extend_from_slice(&[digit(100), digit(10), digit(1)]),
        1000..=9999 => out.extend_from_slice(&[digit(1000), digit(100), digit(10), digit(1)]),
        _ => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
    }
}

/// A string. Control characters are escaped, bytes that are not UTF-8 become the replacement character.
pub fn string(out: &mut Vec<u8>, value: &[u8]) {
    out.reserve(value.len() + 2);
    out.push(b'"');
    text(out, value);
    out.push(b'"');
}

/// The text between the quotes of a string.
pub fn text(out: &mut Vec<u8>, value: &[u8]) {
    if is_plain(value) {
        out.extend_from_slice(value);
    } else {
        escape(out, value);
    }
}

/// A string that `write` appends unescaped. Escapes are added afterwards; nearly always there is nothing to escape.
pub fn string_with(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    let start = out.len();
    write(out);
    if !is_plain(&out[start..]) {
        let value = out.split_off(start);
        escape(out, &value);
    }
    out.push(b'"');
}

/// Whether nothing needs an escape: printable ASCII without quotes and backslashes.
fn is_plain(value: &[u8]) -> bool {
    !has(value, is_odd)
}

/// Whether nothing in lines needs an escape, except their line feeds.
pub fn are_plain(lines: &[u8]) -> bool {
    !has(lines, |byte| is_odd(byte) & (byte != b'\r') & (byte != b'\n'))
}

/// Whether any byte fulfils the condition. The last bytes are checked together with some before them.
#[inline(always)]
fn has(value: &[u8], such: impl Fn(u8) -> bool + Copy) -> bool {
    if let Some(last) = value.last_chunk::<32>() {
        value.as_chunks::<32>().0.iter().any(|block| block_has(block, such)) || block_has(last, such)
    } else if let (Some(first), Some(last)) = (value.first_chunk::<16>(), value.last_chunk::<16>()) {
        block_has(first, such) || block_has(last, such)
    } else if let (Some(first), Some(last)) = (value.first_chunk::<8>(), value.last_chunk::<8>()) {
        block_has(first, such) || block_has(last, such)
    } else if let (Some(first), Some(last)) = (value.first_chunk::<4>(), value.last_chunk::<4>()) {
        block_has(first, such) || block_has(last, such)
    } else {
        value.iter().any(|byte| such(*byte))
    }
}

/// The compiler compares all bytes of a block at once, because there is no early exit.
#[inline(always)]
fn block_has<const N: usize>(block: &[u8; N], such: impl Fn(u8) -> bool) -> bool {
    block.iter().fold(false, |found, byte| found | such(*byte))
}

#[inline]
fn is_odd(byte: u8) -> bool {
    !matches!(byte, b' '..=b'~') | (byte == b'"') | (byte == b'\\')
}

/// Where one byte needs an escape, quotes are common, so the text between them is copied in one move.
fn escape(out: &mut Vec<u8>, mut value: &[u8]) {
    while let Some(at) = value.iter().position(|byte| is_odd(*byte)) {
        let (plain, rest) = value.split_at(at);
        out.extend_from_slice(plain);
        match rest {
            [byte @ (b'"' | b'\\'), rest @ ..] => {
                out.extend_from_slice(&[b'\\', *byte]);
                value = rest;
            }
            _ => return escape_any(out, rest),
        }
    }
    out.extend_from_slice(value);
}

fn escape_any(out: &mut Vec<u8>, value: &[u8]) {
    for chunk in value.utf8_chunks() {
        chunk.valid().chars().for_each(|character| escape_char(out, character));
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

fn escape_char(out: &mut Vec<u8>, character: char) {
    match character {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        character if character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') => {
            // Writing to a Vec cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(character));
        }
        character => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &[u8]) -> String {
        let mut out = Vec::new();
        string(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_byte_in_every_place_comes_back() {
        for byte in 0..=127u8 {
            for (length, at) in (1..20).flat_map(|length| (0..length).map(move |at| (length, at))) {
                let mut value = vec![b'x'; length];
                value[at] = byte;
                let text = of(&value);
                let read: String = serde_json::from_str(&text).unwrap();
                assert_eq!(read.as_bytes(), value, "{byte:#x} at {at} of {length}: {text}");
                assert!(text.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{text}");
            }
        }
    }

    #[test]
    fn what_is_no_utf8_is_replaced_and_the_rest_stays() {
        assert_eq!(of("ä – \u{2028}".as_bytes()), "\"ä – \\u2028\"");
        assert_eq!(of(b"plain and \xff\xc3"), "\"plain and \u{fffd}\u{fffd}\"");
    }

    proptest::proptest! {
        #[test]
        fn bytes_of_any_kind_come_back(value in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
            let read: String = serde_json::from_str(&of(&value)).unwrap();
            assert_eq!(read, String::from_utf8_lossy(&value));
        }
    }

    #[test]
    fn lines_are_plain_but_for_their_ends() {
        assert!(are_plain(b"Host: a\r\nUser-Agent: b\r\n") && are_plain(b"A: b\r\n") && are_plain(b""));
        for odd in [&b"User-Agent: a\"b\r\nHost: a\r\n"[..], b"Host: a\r\nUser-Agent: a\tb\r\n", b"\xc3"] {
            assert!(!are_plain(odd), "{}", odd.escape_ascii());
        }
    }

    #[test]
    fn what_is_written_in_place_is_escaped_too() {
        let mut out = b"before ".to_vec();
        string_with(&mut out, |out| out.extend_from_slice(b"/a\"b\\"));
        string_with(&mut out, |out| out.extend_from_slice(b"/plain"));
        assert_eq!(out, b"before \"/a\\\"b\\\\\"\"/plain\"");
    }
}

//! Query strings and urlencoded forms: `name=value` pairs between `&`.

use std::borrow::Cow;

/// One pair, as written and decoded.
pub struct Pair<'a> {
    /// As it is written.
    pub raw: Cow<'a, str>,
    /// Its name, decoded.
    pub name: Cow<'a, [u8]>,
    /// Its value, decoded; none where there is no `=`.
    pub value: Option<Cow<'a, [u8]>>,
}

impl<'a> Pair<'a> {
    /// A pair that was not in the request.
    pub fn new(name: &str, value: Option<Cow<'a, [u8]>>) -> Self {
        let mut raw = String::new();
        encode(name.as_bytes(), &mut raw);
        if let Some(value) = &value {
            raw.push('=');
            encode(value, &mut raw);
        }
        Self { raw: raw.into(), name: name.as_bytes().to_vec().into(), value }
    }
}

/// Escapes all but what RFC 3986 leaves unreserved.
pub fn encode(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            out.push(char::from(*byte));
        } else {
            out.push('%');
            out.extend(
                [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789ABCDEF"[usize::from(digit)])),
            );
        }
    }
}

/// A form as text: bytes that are no UTF-8 are escaped, which means the same.
pub fn text(form: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(form) {
        return text.into();
    }
    let mut text = String::with_capacity(form.len() + 64);
    for chunk in form.utf8_chunks() {
        text.push_str(chunk.valid());
        encode(chunk.invalid(), &mut text);
    }
    text.into()
}

/// The pairs of a query string or form, in order.
pub fn pairs(text: &str) -> impl Iterator<Item = Pair<'_>> {
    text.split('&').filter(|raw| !raw.is_empty()).map(|raw| match raw.split_once('=') {
        Some((name, value)) => Pair { raw: raw.into(), name: decode(name), value: Some(decode(value)) },
        None => Pair { raw: raw.into(), name: decode(raw), value: None },
    })
}

/// The same text without the pairs of this name; the others stay as they were written.
pub fn without(text: &str, name: &str) -> String {
    let kept: Vec<_> =
        pairs(text).filter(|pair| *pair.name != *name.as_bytes()).map(|pair| pair.raw).collect();
    kept.join("&")
}

/// Undoes percent-encoding and `+`. What is no valid escape stays.
fn decode(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    if !bytes.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(bytes);
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escaped = (*byte == b'%').then(|| bytes.get(at + 1..at + 3).and_then(hexadecimal)).flatten();
        at += if escaped.is_some() { 3 } else { 1 };
        decoded.push(escaped.unwrap_or(if *byte == b'+' { b' ' } else { *byte }));
    }
    Cow::Owned(decoded)
}

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    Some(digit(digits[0])? << 4 | digit(digits[1])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded() {
        let text = "a=1&&b%20c=%41+%zz%4&flag&empty=&=x";
        let expected =
            ["a=Some(\"1\")", "b c=Some(\"A %zz%4\")", "flag=None", "empty=Some(\"\")", "=Some(\"x\")"];
        let show = |pair: Pair<'_>| {
            let value = pair.value.map(|value| String::from_utf8_lossy(&value).into_owned());
            format!("{}={value:?}", String::from_utf8_lossy(&pair.name))
        };
        assert_eq!(pairs(text).map(show).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_no_text_is_escaped() {
        assert_eq!(text(b"a=\xc3\xa9&b=\xff+%41\xc3"), "a=\u{e9}&b=%FF+%41%C3");
    }

    #[test]
    fn new_pairs_are_escaped() {
        let raw = |name, value: Option<&'static str>| Pair::new(name, value.map(|v| v.as_bytes().into())).raw;
        assert_eq!(raw("a b", Some("1&2=\u{e9}~")), "a%20b=1%262%3D%C3%A9~");
        assert_eq!((raw("flag", None), raw("none", Some(""))), ("flag".into(), "none=".into()));
    }

    #[test]
    fn removing_a_name_leaves_the_rest_as_written() {
        assert_eq!(without("x=%41&key=1&y=+&ke%79=2&key", "key"), "x=%41&y=+");
        assert_eq!(without("key=1", "key"), "");
    }
}

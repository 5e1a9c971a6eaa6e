//! Reads the value of a predicate: a text, a number, an address or a network.
use super::ast::{Literal, Network};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::ParseIntError;

const EXPECTED: &str =
    "expected a value: a text such as \"/a\" or r#\"/a\"#, a number, an address or a network";

/// The value that a text begins with, and its length. The error says what is wrong with it.
pub(super) fn parse(text: &str) -> Result<(Literal<'_>, usize), String> {
    if let Some(rest) = text.strip_prefix('"') {
        return quoted(rest).map(|(value, length)| (Literal::Text(value), length + 2));
    }
    if let Some(rest) = text.strip_prefix("r#\"") {
        let length = rest.find("\"#").ok_or("the text has no end: write \"# behind it")?;
        return Ok((Literal::Text(rest[..length].into()), length + 5));
    }
    match address_length(text) {
        Some((length, is_v4)) => address(text, length, is_v4),
        None => integer(text),
    }
}

/// A text behind its first quote, and how long it is up to the last.
fn quoted(text: &str) -> Result<(Cow<'_, str>, usize), String> {
    let mut value = String::new();
    let mut start = 0;
    loop {
        let length = text[start..].find(['"', '\\']).ok_or("the text has no end: write \" behind it")?;
        let end = start + length;
        let part = &text[start..end];
        if text[end..].starts_with('"') {
            let whole = start == 0;
            value.push_str(part);
            return Ok((if whole { part.into() } else { value.into() }, end));
        }
        value.push_str(part);
        value.push(escaped(&text[end + 1..])?);
        start = end + 2;
    }
}

fn escaped(text: &str) -> Result<char, String> {
    match text.bytes().next() {
        Some(b'"') => Ok('"'),
        Some(b'\\') => Ok('\\'),
        Some(b'n') => Ok('\n'),
        Some(b'r') => Ok('\r'),
        Some(b't') => Ok('\t'),
        _ => Err("there is no such escape: write \\\\ for a backslash, or the text as r#\"…\"#".to_owned()),
    }
}

/// How long the address is that a text begins with, and whether it is one of IPv4.
fn address_length(text: &str) -> Option<(usize, bool)> {
    v4_length(text.as_bytes()).map(|length| (length, true)).or_else(|| {
        let length = v6_length(text.as_bytes())?;
        Some((length, false))
    })
}

/// Four numbers of at most three digits.
fn v4_length(text: &[u8]) -> Option<usize> {
    let mut at = digits(text, 3)?;
    for _ in 0..3 {
        let number = text.get(at..)?.strip_prefix(b".")?;
        at += 1 + digits(number, 3)?;
    }
    Some(at)
}

/// A group of hexadecimal digits or a colon, a colon, then any of these.
fn v6_length(text: &[u8]) -> Option<usize> {
    let hex = text.iter().take(4).take_while(|byte| byte.is_ascii_hexdigit()).count();
    let first = if text.first() == Some(&b':') { 1 } else { hex };
    if first == 0 || text.get(first) != Some(&b':') {
        return None;
    }
    let is_part = |byte: &&u8| byte.is_ascii_hexdigit() || **byte == b':';
    Some(text.iter().take_while(is_part).count())
}

/// How many digits a text begins with, at most this many.
fn digits(text: &[u8], most: usize) -> Option<usize> {
    let count = text.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
    (count > 0).then_some(count)
}

/// An address, or a network if a prefix follows.
fn address(text: &str, length: usize, is_v4: bool) -> Result<(Literal<'_>, usize), String> {
    let (written, rest) = text.split_at(length);
    let address = match is_v4 {
        true => written.parse::<Ipv4Addr>().map(IpAddr::V4),
        false => written.parse::<Ipv6Addr>().map(IpAddr::V6),
    };
    let address = address.map_err(|_| format!("`{written}` is no IP address"))?;
    let most = if is_v4 { 2 } else { 3 };
    let prefix = rest.strip_prefix('/').and_then(|prefix| prefix.get(..digits(prefix.as_bytes(), most)?));
    let Some(prefix) = prefix else { return Ok((Literal::Address(address), length)) };
    let bits = prefix.parse().unwrap_or(u32::MAX);
    let network = Network::new(address, bits).map_err(|reason| format!("`{written}/{prefix}`: {reason}"))?;
    Ok((Literal::Network(network), length + 1 + prefix.len()))
}

/// A number: decimal, hexadecimal behind `0x`, or octal behind `0`.
fn integer(text: &str) -> Result<(Literal<'_>, usize), String> {
    let sign = usize::from(text.starts_with('-'));
    let bytes = &text.as_bytes()[sign..];
    let count = |from: usize, is_digit: fn(&u8) -> bool| {
        bytes.get(from..).map_or(0, |rest| rest.iter().take_while(|byte| is_digit(byte)).count())
    };
    let octal = if bytes.first() == Some(&b'0') { count(1, |byte| (b'0'..=b'7').contains(byte)) } else { 0 };
    let hex = if bytes.starts_with(b"0x") { count(2, u8::is_ascii_hexdigit) } else { 0 };
    let (start, length, radix) = match (octal, hex) {
        (1.., _) => (1, octal, 8),
        (_, 1..) => (2, hex, 16),
        _ => (0, count(0, u8::is_ascii_digit), 10),
    };
    if length == 0 {
        return Err(EXPECTED.to_owned());
    }
    let end = sign + start + length;
    let number = i64::from_str_radix(&text[sign + start..end], radix);
    let number = number.map_err(|error: ParseIntError| format!("`{}`: {error}", &text[..end]))?;
    Ok((Literal::Integer(if sign == 1 { -number } else { number }), end))
}

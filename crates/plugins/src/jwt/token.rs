//! Finds a request's token, and splits it into its parts.

use super::Config;
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::borrow::Cow;
use weir_plugin::form;
use weir_plugin::{Exchange, Known};

/// What a request contains.
pub(super) enum Found<'a> {
    Nothing,
    Token(Cow<'a, [u8]>),
    /// A query argument without a value.
    NoText,
    Several,
}

impl<'a> Found<'a> {
    /// Adds another token, which may be the same.
    fn and(self, other: Option<Cow<'a, [u8]>>) -> Self {
        match (self, other) {
            (found, Some(token)) if token.is_empty() => found,
            (Found::Nothing, Some(token)) => Found::Token(token),
            (Found::Nothing | Found::NoText, None) => Found::NoText,
            (Found::Token(known), Some(token)) if known == token => Found::Token(known),
            _ => Found::Several,
        }
    }
}

/// The token of a request, from the query, the cookies and the headers.
pub(super) fn find<'a>(exchange: &'a Exchange, config: &'a Config) -> Found<'a> {
    let mut found = Found::Nothing;
    if let Some(query) = exchange.query() {
        let named = |name: &[u8]| config.uri_param_names.iter().any(|named| named.as_bytes() == name);
        for pair in form::pairs(query).filter(|pair| named(&pair.name)) {
            found = found.and(pair.value);
        }
    }
    for name in &config.cookie_names {
        if let Some(token) = cookie(exchange, name) {
            found = found.and(Some(token.into()));
        }
    }
    for name in &config.header_names {
        if let Some(token) = exchange.request.headers.get(name).and_then(bearer) {
            found = found.and(Some(token.into()));
        }
    }
    found
}

/// The first cookie of a name, in any case, as nginx finds it.
fn cookie<'a>(exchange: &'a Exchange, name: &str) -> Option<&'a [u8]> {
    let lines = exchange.request.headers.get_all_known(Known::Cookie);
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    let mut values = pairs.filter_map(|pair| {
        let equals = memchr::memchr(b'=', pair)?;
        let of_name = pair[..equals].trim_ascii().eq_ignore_ascii_case(name.as_bytes());
        of_name.then(|| pair[equals + 1..].trim_ascii())
    });
    values.next()
}

/// The text after `Bearer`, anywhere in the value.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let at = memchr::memmem::find_iter(value, b"earer").find(|at| {
        let before = at.checked_sub(1).is_some_and(|before| matches!(value[before], b'B' | b'b'));
        before && value.get(at + 5).is_some_and(u8::is_ascii_whitespace)
    })?;
    Some(value[at + 5..].trim_ascii())
}

/// The parts of a token (RFC 7515, 7.1).
pub(crate) struct Token<'a> {
    pub(crate) header: Vec<u8>,
    pub(crate) claims: Vec<u8>,
    /// None if it is not base64.
    pub(crate) signature: Option<Vec<u8>>,
    /// The signed part.
    pub(crate) signed: &'a [u8],
}

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl<'a> Token<'a> {
    /// Splits and decodes a token. In Kong's words, whatever cannot be decoded is invalid JSON.
    pub(crate) fn decode(token: &'a [u8]) -> Result<Self, &'static str> {
        let first = memchr::memchr(b'.', token).ok_or("JSON")?;
        let second = first + 1 + memchr::memchr(b'.', &token[first + 1..]).ok_or("JSON")?;
        let decode = |part: &[u8]| BASE64.decode(part).ok();
        Ok(Self {
            header: decode(&token[..first]).ok_or("JSON")?,
            claims: decode(&token[first + 1..second]).ok_or("JSON")?,
            signature: decode(&token[second + 1..]),
            signed: &token[..second],
        })
    }
}

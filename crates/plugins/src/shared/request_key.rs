//! The key that requests are counted by: a variable, a text with several variables, or one constant for all.

use super::variables::{Part, Variable};
use std::borrow::Cow;
use std::net::IpAddr;
use weir_plugin::{Exchange, Fingerprint, Fingerprinter};

/// The key that requests are counted by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    Variable(Variable),
    Combination(Vec<Part>),
    Constant(Vec<u8>),
}

impl Key {
    /// By `key_type` and `key` of a configuration.
    pub(crate) fn read(key_type: &str, key: &str) -> Result<Self, String> {
        match key_type {
            "constant" => Ok(Key::Constant(key.as_bytes().to_vec())),
            "var_combination" => combination(key).map(Key::Combination),
            _ => Variable::named(key).map(Key::Variable),
        }
    }

    /// The key of this request; none if it is counted by its client's address.
    pub(crate) fn value<'e>(&'e self, exchange: &'e Exchange) -> Option<Cow<'e, [u8]>> {
        match self {
            Key::Variable(Variable::RemoteAddr) => None,
            Key::Variable(variable) => variable.value(exchange),
            Key::Combination(parts) => combined(parts, exchange),
            Key::Constant(text) => Some(text.as_slice().into()),
        }
    }

    /// The same as a fingerprint, of the address if the key has no value.
    pub(crate) fn of(
        &self,
        exchange: &Exchange,
        keys: &Fingerprinter,
        addresses: &Fingerprinter,
    ) -> Fingerprint {
        match (self.value(exchange), exchange.client_ip) {
            (Some(value), _) => keys.of(&value),
            (None, IpAddr::V4(address)) => addresses.of(&address.octets()),
            (None, IpAddr::V6(address)) => addresses.of(&address.octets()),
        }
    }
}

/// `$remote_addr $http_x` and `${uri}` as parts.
fn combination(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, variable)) = rest.split_once('$') {
        let (name, after) = match variable.strip_prefix('{') {
            Some(braced) => braced.split_once('}').ok_or("`${` is not closed by `}`")?,
            None => {
                let end = variable.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                variable.split_at(end.unwrap_or(variable.len()))
            }
        };
        parts.push(Part::Text(before.to_owned()));
        parts.push(Part::Variable(Variable::named(name)?));
        rest = after;
    }
    if parts.is_empty() {
        return Err("it contains no variable; write one, such as `$remote_addr`, or, where there is a `key_type`, `key_type: constant`".to_owned());
    }
    parts.push(Part::Text(rest.to_owned()));
    Ok(parts)
}

/// None if no variable has a value.
fn combined<'e>(parts: &[Part], exchange: &Exchange) -> Option<Cow<'e, [u8]>> {
    let (mut text, mut found) = (Vec::new(), false);
    for part in parts {
        match part {
            Part::Text(piece) => text.extend_from_slice(piece.as_bytes()),
            Part::Group(_) => {}
            Part::Variable(variable) => {
                if let Some(value) = variable.value(exchange) {
                    text.extend_from_slice(&value);
                    found = true;
                }
            }
        }
    }
    found.then_some(text.into())
}

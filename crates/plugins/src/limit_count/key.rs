//! The key that requests are counted by: a variable, a text with several variables, or one constant for all.

use std::borrow::Cow;
use std::net::IpAddr;
use weir_plugin::form;
use weir_plugin::schema::{did_you_mean, quoted};
use weir_plugin::{Exchange, Fingerprint, Fingerprinter, Known};

/// A variable of a request, with APISIX's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Variable {
    RemoteAddr,
    RemotePort,
    ServerAddr,
    ServerPort,
    ConsumerName,
    Host,
    Uri,
    RequestUri,
    Args,
    RequestMethod,
    Scheme,
    RouteId,
    ServiceId,
    Header(String),
    Argument(String),
    Cookie(String),
}

static NAMES: [(&str, Variable); 15] = [
    ("remote_addr", Variable::RemoteAddr),
    ("remote_port", Variable::RemotePort),
    ("server_addr", Variable::ServerAddr),
    ("server_port", Variable::ServerPort),
    ("consumer_name", Variable::ConsumerName),
    ("host", Variable::Host),
    ("http_host", Variable::Host),
    ("uri", Variable::Uri),
    ("request_uri", Variable::RequestUri),
    ("args", Variable::Args),
    ("query_string", Variable::Args),
    ("request_method", Variable::RequestMethod),
    ("scheme", Variable::Scheme),
    ("route_id", Variable::RouteId),
    ("service_id", Variable::ServiceId),
];

/// Makes the variable of a family from the rest of its name.
type Family = fn(String) -> Variable;

const FAMILIES: [(&str, Family); 3] =
    [("http_", Variable::Header), ("arg_", Variable::Argument), ("cookie_", Variable::Cookie)];

impl Variable {
    /// The variable of this name, or why there is none.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        if let Some((_, variable)) = NAMES.iter().find(|(known, _)| *known == name) {
            return Ok(variable.clone());
        }
        let family = FAMILIES.iter().find_map(|(prefix, of)| Some((name.strip_prefix(prefix)?, of)));
        match family.filter(|(rest, _)| !rest.is_empty()) {
            Some((rest, of)) => {
                let is_header = name.starts_with("http_");
                Ok(of(if is_header { rest.replace('_', "-") } else { rest.to_owned() }))
            }
            None => {
                let names: Vec<_> = NAMES.iter().map(|(known, _)| *known).collect();
                let hint = did_you_mean(name, names.iter().copied());
                let (shown, names) = (quoted(name), names.join(", "));
                Err(format!(
                    "unknown variable `{shown}`; expected one of {names}, http_NAME, arg_NAME and cookie_NAME{hint}"
                ))
            }
        }
    }

    /// Its value; none if the request has none.
    pub(super) fn value<'e>(&'e self, exchange: &'e Exchange) -> Option<Cow<'e, [u8]>> {
        let text = |text: String| Some(Cow::Owned(text.into_bytes()));
        match self {
            Variable::RemoteAddr => text(exchange.client_ip.to_string()),
            Variable::RemotePort => text(exchange.peer.port().to_string()),
            Variable::ServerAddr => text(exchange.local().ip().to_string()),
            Variable::ServerPort => text(exchange.local().port().to_string()),
            Variable::ConsumerName => {
                exchange.consumer()?.entity.username.as_deref().map(|name| name.as_bytes().into())
            }
            Variable::Host => exchange.header(Known::Host).map(Cow::Borrowed),
            Variable::Uri => Some(exchange.path().as_bytes().into()),
            Variable::RequestUri => text(match exchange.query() {
                Some(query) => format!("{}?{query}", exchange.path()),
                None => exchange.path().to_owned(),
            }),
            Variable::Args => exchange.query().map(|query| query.as_bytes().into()),
            Variable::RequestMethod => Some(exchange.request.method_str().as_bytes().into()),
            Variable::Scheme => Some(exchange.scheme().as_bytes().into()),
            Variable::RouteId => text(exchange.route()?.entity.id.to_string()),
            Variable::ServiceId => text(exchange.service()?.id.to_string()),
            Variable::Header(name) => exchange.request.headers.get(name).map(Cow::Borrowed),
            Variable::Argument(name) => argument(exchange.query().unwrap_or_default(), name),
            Variable::Cookie(name) => cookie(exchange, name),
        }
    }
}

fn argument<'e>(query: &'e str, name: &str) -> Option<Cow<'e, [u8]>> {
    form::pairs(query).find(|pair| *pair.name == *name.as_bytes())?.value
}

fn cookie<'e>(exchange: &'e Exchange, name: &str) -> Option<Cow<'e, [u8]>> {
    let pairs =
        exchange.request.headers.get_all("cookie").flat_map(|value| value.split(|byte| *byte == b';'));
    pairs
        .filter_map(|pair| {
            let pair = pair.trim_ascii();
            let at = pair.iter().position(|byte| *byte == b'=')?;
            Some((&pair[..at], &pair[at + 1..]))
        })
        .find(|(cookie, _)| *cookie == name.as_bytes())
        .map(|(_, value)| value.into())
}

/// The key that requests are counted by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    Variable(Variable),
    Combination(Vec<Part>),
    Constant(Vec<u8>),
}

/// A piece of a combination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    Variable(Variable),
}

impl Key {
    /// By `key_type` and `key` of a configuration.
    pub(super) fn read(key_type: &str, key: &str) -> Result<Self, String> {
        match key_type {
            "constant" => Ok(Key::Constant(key.as_bytes().to_vec())),
            "var_combination" => combination(key).map(Key::Combination),
            _ => Variable::named(key).map(Key::Variable),
        }
    }

    /// The key of this request; none if it is counted by its client's address.
    pub(super) fn value<'e>(&'e self, exchange: &'e Exchange) -> Option<Cow<'e, [u8]>> {
        match self {
            Key::Variable(Variable::RemoteAddr) => None,
            Key::Variable(variable) => variable.value(exchange),
            Key::Combination(parts) => combined(parts, exchange),
            Key::Constant(text) => Some(text.as_slice().into()),
        }
    }

    /// The same as a fingerprint, of the address if the key has no value.
    pub(super) fn of(
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
        return Err("it contains no variable; write `$remote_addr`, or `key_type: constant`".to_owned());
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

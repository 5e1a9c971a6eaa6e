//! The variables of a request that has no route yet.
use super::{Condition, Variables};
use crate::expressions::Request;
use crate::{Scheme, header_name};
use std::io::Write;
use weir_model::schema::Json;

/// A number or an address as text is no longer than this.
const MAX_TEXT: usize = 64;

/// A variable that a route may look at, by APISIX's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestVariable {
    RemoteAddr,
    RemotePort,
    ServerAddr,
    ServerPort,
    Host,
    Uri,
    RequestUri,
    Args,
    IsArgs,
    Method,
    Scheme,
    Header(String),
    Argument(String),
    Cookie(String),
}

static NAMES: [(&str, RequestVariable); 14] = [
    ("remote_addr", RequestVariable::RemoteAddr),
    ("remote_port", RequestVariable::RemotePort),
    ("server_addr", RequestVariable::ServerAddr),
    ("server_port", RequestVariable::ServerPort),
    ("host", RequestVariable::Host),
    ("uri", RequestVariable::Uri),
    ("document_uri", RequestVariable::Uri),
    ("request_uri", RequestVariable::RequestUri),
    ("args", RequestVariable::Args),
    ("query_string", RequestVariable::Args),
    ("is_args", RequestVariable::IsArgs),
    ("request_method", RequestVariable::Method),
    ("method", RequestVariable::Method),
    ("scheme", RequestVariable::Scheme),
];

impl RequestVariable {
    /// The variable of this name, or why there is none.
    fn named(name: &str) -> Result<Self, String> {
        if let Some((_, variable)) = NAMES.iter().find(|(known, _)| *known == name) {
            return Ok(variable.clone());
        }
        let found = match name.split_once('_') {
            Some(("http", name)) => Some((header_name(name), Self::Header as fn(String) -> Self)),
            Some(("arg", name)) => Some((name.to_owned(), Self::Argument as fn(String) -> Self)),
            Some(("cookie", name)) => Some((name.to_owned(), Self::Cookie as fn(String) -> Self)),
            _ => None,
        };
        let found = found.filter(|(name, _)| !name.is_empty()).map(|(name, of)| of(name));
        found.ok_or_else(|| {
            let names: Vec<_> = NAMES.iter().map(|(known, _)| *known).collect();
            format!(
                "routes cannot look at the variable `{name}`; expected one of {}, http_NAME, arg_NAME and cookie_NAME",
                names.join(", ")
            )
        })
    }
}

impl Condition<RequestVariable> {
    /// The condition of a route's `vars`.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub(crate) fn of_route(written: &Json) -> Result<Self, String> {
        Self::parse(written, RequestVariable::named)
    }
}

impl Variables<RequestVariable> for Request<'_> {
    fn test(&self, variable: &RequestVariable, predicate: &dyn Fn(Option<&[u8]>) -> bool) -> bool {
        let query = self.query;
        let has_arguments = !query.query.is_empty();
        let text = |text: &str| predicate(Some(text.as_bytes()));
        match variable {
            RequestVariable::RemoteAddr => formatted(format_args!("{}", query.source.ip()), predicate),
            RequestVariable::RemotePort => formatted(format_args!("{}", query.source.port()), predicate),
            RequestVariable::ServerAddr => formatted(format_args!("{}", query.destination), predicate),
            RequestVariable::ServerPort => formatted(format_args!("{}", query.dst_port), predicate),
            RequestVariable::Host => text(self.host.name()),
            RequestVariable::Uri => text(query.path),
            RequestVariable::RequestUri if has_arguments => text(&[query.path, query.query].join("?")),
            RequestVariable::RequestUri => text(query.path),
            RequestVariable::Args => predicate(has_arguments.then_some(query.query.as_bytes())),
            RequestVariable::IsArgs => predicate(has_arguments.then_some(b"?")),
            RequestVariable::Method => text(query.method),
            RequestVariable::Scheme => text(match query.scheme {
                Scheme::Http => "http",
                Scheme::Https => "https",
            }),
            RequestVariable::Header(name) => first(&|visit| (query.header)(name, visit), predicate),
            RequestVariable::Argument(name) => first(&|visit| self.argument(name, visit), predicate),
            RequestVariable::Cookie(name) => {
                let visit_cookies = |visit: &mut dyn FnMut(&[u8]) -> bool| {
                    (query.header)("cookie", &mut |header| cookie(header, name).is_some_and(&mut *visit))
                };
                first(&visit_cookies, predicate)
            }
        }
    }
}

/// Tests a number or an address as text, without an allocation.
fn formatted(text: std::fmt::Arguments<'_>, predicate: &dyn Fn(Option<&[u8]>) -> bool) -> bool {
    let mut room = [0; MAX_TEXT];
    let mut rest = room.as_mut_slice();
    let written = rest.write_fmt(text).map(|()| rest.len());
    predicate(written.ok().map(|left| &room[..MAX_TEXT - left]))
}

/// Visits values until the visitor returns true.
type Visit<'v> = dyn Fn(&mut dyn FnMut(&[u8]) -> bool) -> bool + 'v;

/// Tests the first of several values, or that there is none.
fn first(values: &Visit<'_>, predicate: &dyn Fn(Option<&[u8]>) -> bool) -> bool {
    let mut result = None;
    values(&mut |value| {
        result = Some(predicate(Some(value)));
        true
    });
    result.unwrap_or_else(|| predicate(None))
}

/// The value of a cookie in one header.
fn cookie<'h>(header: &'h [u8], name: &str) -> Option<&'h [u8]> {
    header.split(|byte| *byte == b';').find_map(|pair| {
        let pair = pair.trim_ascii().strip_prefix(name.as_bytes())?;
        pair.strip_prefix(b"=")
    })
}

//! Headers of the response that code sets before there is a response.

use crate::fields::{listed, wire_name};
use crate::kept;
use mlua::{Lua, Value};
use weir_plugin::{Exchange, Headers, HeadersOf, LocalResponse};

/// The response that code writes by `ngx.print` and its like. Once there is one, its head counts as sent.
#[derive(Default)]
pub(crate) struct Printed {
    pub(crate) text: Vec<u8>,
    has_ended: bool,
}

impl Printed {
    /// That of an exchange, which begins now if it has not.
    fn of(exchange: &mut Exchange) -> &mut Self {
        if exchange.extensions.get::<Self>().is_none() {
            exchange.extensions.insert(Self::default());
        }
        // It was just inserted.
        exchange.extensions.get_mut::<Self>().unwrap_or_else(|| unreachable!())
    }

    /// Begins it.
    pub(crate) fn begin(exchange: &mut Exchange) {
        Self::of(exchange);
    }

    /// Adds to it. Returns whether it had not ended.
    pub(crate) fn append(exchange: &mut Exchange, text: &[u8]) -> mlua::Result<bool> {
        kept::keep(exchange, text.len())?;
        let printed = Self::of(exchange);
        if !printed.has_ended {
            printed.text.extend_from_slice(text);
        }
        Ok(!printed.has_ended)
    }

    /// Ends it. Returns whether it had not ended.
    pub(crate) fn end(exchange: &mut Exchange) -> bool {
        !std::mem::replace(&mut Self::of(exchange).has_ended, true)
    }

    /// Whether it has ended, if it has begun.
    pub(crate) fn has_ended(exchange: &Exchange) -> Option<bool> {
        exchange.extensions.get::<Self>().map(|printed| printed.has_ended)
    }

    /// Takes it, if it has begun.
    pub(crate) fn take(exchange: &mut Exchange) -> Option<Self> {
        exchange.extensions.remove()
    }

    /// It, and the body of the service's response behind it, unless code has ended it.
    pub(crate) fn before(mut self, body: Vec<u8>) -> Vec<u8> {
        if !self.has_ended {
            self.text.extend_from_slice(&body);
        }
        self.text
    }
}

/// Headers that a response will get, whichever it is.
#[derive(Default)]
pub(crate) struct PendingHeaders(Vec<(String, Vec<u8>)>);

impl PendingHeaders {
    /// Those of an exchange.
    pub(crate) fn of(exchange: &mut Exchange) -> &mut Self {
        if exchange.extensions.get::<Self>().is_none() {
            exchange.extensions.insert(Self::default());
        }
        // It was just inserted.
        exchange.extensions.get_mut::<Self>().unwrap_or_else(|| unreachable!())
    }

    /// Takes those of an exchange.
    pub(crate) fn take(exchange: &mut Exchange) -> Self {
        exchange.extensions.remove().unwrap_or_default()
    }

    /// Sets a header, in the place of those of its name.
    pub(crate) fn set(&mut self, (name, values): &(String, Vec<Vec<u8>>)) {
        let name = wire_name(name);
        self.0.retain(|(other, _)| !other.eq_ignore_ascii_case(&name));
        self.0.extend(values.iter().map(|value| (name.to_string(), value.clone())));
    }

    /// Adds a header to those of its name.
    pub(crate) fn add(&mut self, (name, values): &(String, Vec<Vec<u8>>)) {
        let name = wire_name(name);
        self.0.extend(values.iter().map(|value| (name.to_string(), value.clone())));
    }

    /// What code has set of this name.
    pub(crate) fn get(&self, lua: &Lua, name: &str) -> mlua::Result<Value> {
        let name = wire_name(name);
        let of_name = self.0.iter().filter(|(other, _)| other.eq_ignore_ascii_case(&name));
        listed(lua, of_name.map(|(_, value)| value.as_slice()))
    }

    /// All of them.
    pub(crate) fn headers(&self) -> Headers {
        let mut headers = Headers::default();
        for (name, value) in &self.0 {
            headers.append(name, value);
        }
        headers
    }

    /// Whether code has set one of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(other, _)| other.eq_ignore_ascii_case(name))
    }

    /// Puts them onto a response of the gateway's own.
    pub(crate) fn onto(self, answer: LocalResponse) -> LocalResponse {
        self.0.into_iter().fold(answer, |answer, (name, value)| answer.header(name, value))
    }

    /// Puts those of an exchange onto its response, which has come.
    pub(crate) fn apply(exchange: &mut Exchange) {
        let Some(Self(fields)) = exchange.extensions.remove::<Self>() else { return };
        for (name, value) in fields {
            if let Err(error) = exchange.add_header(HeadersOf::Response, &name, &value) {
                tracing::warn!(header = name, "a header that Lua has set was left out: {error}");
            }
        }
    }
}

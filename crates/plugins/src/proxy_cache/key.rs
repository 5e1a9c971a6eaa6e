//! The cache key: what requests must have in common to get the same response.

use super::config::Config;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::sync::Arc;
use weir_plugin::form;
use weir_plugin::{Exchange, Known, Uuid};

/// Headers that identify the consumer to the upstream, and the address that the client used, beside `Authorization`.
const TELLING: [Known; 6] = [
    Known::XForwardedHost,
    Known::XForwardedProto,
    Known::XClientCertDn,
    Known::XClientCertSan,
    Known::ClientCert,
    Known::XAnonymousConsumer,
];

/// For which requests a response is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those with the same method and `Authorization`.
    Same,
    /// GET and HEAD, whatever `Authorization` they have.
    Shared,
}

/// Length-prefixed parts, so that neighbours cannot run into each other.
#[derive(Default)]
pub(super) struct Parts(pub(super) Vec<u8>);

impl Parts {
    pub(super) fn add(&mut self, part: &[u8]) {
        self.0.extend_from_slice(&(part.len() as u32).to_le_bytes());
        self.0.extend_from_slice(part);
    }

    /// Adds all parts, and their number.
    fn add_all<'p>(&mut self, parts: impl Iterator<Item = &'p [u8]>) {
        let at = self.0.len();
        self.0.extend_from_slice(&[0; 4]);
        let mut count = 0u32;
        for part in parts {
            count += 1;
            self.add(part);
        }
        self.0[at..at + 4].copy_from_slice(&count.to_le_bytes());
    }

    /// Adds the parameters sorted by name; those with one name stay in their order.
    pub(super) fn add_query(&mut self, config: &Config, query: Option<&str>) {
        let mut pairs: Vec<_> = form::pairs(query.unwrap_or_default()).collect();
        if let Some(names) = config.vary_query_params.as_ref().filter(|names| !names.is_empty()) {
            pairs.retain(|pair| names.iter().any(|wanted| *wanted.as_bytes() == *pair.name));
        }
        pairs.sort_by(|one, other| one.name.cmp(&other.name));
        for pair in &pairs {
            self.add(&pair.name);
            self.add_all(pair.value.as_deref().into_iter());
        }
        // The number ends them.
        self.add(&(pairs.len() as u32).to_le_bytes());
    }
}

/// All parts of the key.
pub(super) fn parts(config: &Config, exchange: &Exchange, scope: Scope) -> Vec<u8> {
    let mut parts = Parts(Vec::with_capacity(256));
    let id = |id: Option<Uuid>| id.map(Uuid::into_bytes).unwrap_or_default();
    parts.add(config.memory.dictionary_name.as_bytes());
    parts.add(&id(exchange.route().map(|route| route.entity.id)));
    match scope {
        Scope::Same => parts.add(exchange.request.method_str().as_bytes()),
        Scope::Shared => parts.add(b"GET"),
    }
    parts.add(exchange.scheme().as_bytes());
    parts.add(exchange.request.host().unwrap_or_default().to_ascii_lowercase().as_bytes());
    add_path(&mut parts, config, exchange);
    parts.add_query(config, exchange.query());
    let headers = &exchange.request.headers;
    for name in config.vary_headers.iter().flatten() {
        parts.add_all(headers.get_all(name));
    }
    add_caller(&mut parts, exchange, scope);
    parts.0
}

/// Adds what identifies the caller to the upstream, and the body.
pub(super) fn add_caller(parts: &mut Parts, exchange: &Exchange, scope: Scope) {
    let headers = &exchange.request.headers;
    let consumer = exchange.consumer().map(|consumer| consumer.entity.id);
    parts.add(&consumer.map(Uuid::into_bytes).unwrap_or_default());
    match scope {
        Scope::Same => parts.add_all(headers.get_all_known(Known::Authorization)),
        Scope::Shared => parts.add_all(std::iter::empty()),
    }
    for known in TELLING {
        parts.add_all(headers.get_all_known(known));
    }
    parts.add(exchange.caller());
    parts.add_all(exchange.authenticated_groups().iter().map(String::as_bytes));
    if exchange.has_body() {
        parts.add_all(headers.get_all_known(Known::ContentType));
        parts.add(exchange.body().unwrap_or_default());
    }
}

fn add_path(parts: &mut Parts, config: &Config, exchange: &Exchange) {
    match config.ignore_uri_case {
        true => parts.add(exchange.path().to_lowercase().as_bytes()),
        false => parts.add(exchange.path().as_bytes()),
    }
    // The upstream also gets the path as it was sent.
    let sent = Some(exchange.request.path()).filter(|sent| *sent != exchange.path());
    parts.add_all(sent.into_iter().map(str::as_bytes));
    parts.add_all(exchange.upstream_path().into_iter().map(str::as_bytes));
    parts.add_all(exchange.upstream_host().into_iter().map(str::as_bytes));
    // Plugins of a higher priority may have sent it elsewhere.
    let change = exchange.service_override();
    let target = change.and_then(|change| change.target.as_ref());
    parts.add_all(target.into_iter().map(|target| target.host.as_bytes()));
    parts.add(&target.and_then(|target| target.port).unwrap_or_default().to_le_bytes());
    parts.add(&[change.and_then(|change| change.tls).map_or(2, u8::from)]);
}

/// The key as clients and the Admin API see it.
pub(super) fn text(parts: &[u8]) -> Arc<str> {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(parts) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

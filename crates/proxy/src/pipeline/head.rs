//! Builds the request's head for the upstream.

use crate::exchange::{Connection, Exchange};
use crate::pipeline::forward::UpstreamCall;
use std::borrow::Cow;
use weir_http1::{Framing, Headers, Known, KnownSet, Version, encode};
use weir_plugin::engine::{write_secret_headers, write_secret_query, write_target};
use weir_plugin::host_end;
use weir_router::push_encoded;
use weir_upstream::UpstreamRequest;

/// The request as it goes to an endpoint of this authority.
pub(crate) struct Outgoing<'r> {
    pub(crate) exchange: &'r Exchange,
    pub(crate) call: &'r UpstreamCall<'r>,
    pub(crate) authority: &'r str,
}

impl UpstreamRequest for Outgoing<'_> {
    const REWRITTEN: KnownSet = REWRITTEN;

    fn method(&self) -> &str {
        self.exchange.request.method_str()
    }

    fn authority(&self) -> &str {
        authority(self.exchange, self.call, self.authority)
    }

    fn is_tls(&self) -> bool {
        self.call.service.is_tls()
    }

    fn is_grpc(&self) -> bool {
        self.call.service.is_grpc()
    }

    fn takes_trailers(&self) -> bool {
        self.exchange.engine.takes_trailers
    }

    fn write_target(&self, out: &mut Vec<u8>) {
        write_target(out, self.exchange, self.call.route.strips_path, &self.call.service.entity);
        write_secret_query(out, self.exchange);
    }

    fn headers(&self) -> &Headers {
        &self.exchange.request.headers
    }

    fn write_forwarded(&self, out: &mut Vec<u8>) {
        write_forwarded(out, self.exchange, self.call);
        write_secret_headers(out, self.exchange);
    }

    fn upgrade(&self) -> Option<&str> {
        self.exchange.engine.upgrade.as_deref()
    }

    fn framing(&self) -> Framing {
        self.call.framing
    }
}

/// The host that the upstream is asked for: a plugin's, the client's where it is preserved, else the endpoint's.
pub(crate) fn authority<'a>(exchange: &'a Exchange, call: &UpstreamCall<'_>, endpoint: &'a str) -> &'a str {
    let preserved = || if call.route.preserve_host { exchange.request.host() } else { None };
    exchange.upstream_host().or_else(preserved).unwrap_or(endpoint)
}

/// Fields that `write_forwarded` writes itself, or that are hop-by-hop, whether the client or a plugin has added them.
pub(crate) const REWRITTEN: KnownSet = KnownSet::of(&[
    Known::Host,
    Known::ContentLength,
    Known::TransferEncoding,
    Known::Connection,
    Known::KeepAlive,
    Known::ProxyConnection,
    Known::Proxy,
    Known::Te,
    Known::Expect,
    Known::Upgrade,
    Known::XForwardedFor,
    Known::XForwardedProto,
    Known::XForwardedHost,
    Known::XForwardedPort,
    Known::XForwardedPath,
    Known::XForwardedPrefix,
    Known::XRealIp,
    Known::XKongRequestId,
    Known::Via,
]);

/// Appends the forwarded headers, each as its line.
fn write_forwarded(out: &mut Vec<u8>, exchange: &Exchange, call: &UpstreamCall<'_>) {
    let connection = &*exchange.engine.connection;
    let earlier = exchange.request.headers.contains_known(Known::XForwardedFor);
    if connection.trusted || earlier {
        write_forwarded_on(out, exchange, connection);
    } else {
        out.extend_from_slice(connection.forwarded.as_bytes());
    }
    let trusted = |known| exchange.header(known).filter(|_| connection.trusted);
    let host = exchange.header(Known::Host).unwrap_or_default();
    let host = &host[..host_end(host)];
    match trusted(Known::XForwardedHost) {
        Some(named) => encode::header(out, b"X-Forwarded-Host", named),
        None => write_host(out, host),
    }
    let path = trusted(Known::XForwardedPath).unwrap_or(exchange.request.path().as_bytes());
    encode::header(out, b"X-Forwarded-Path", path);
    write_prefix(out, exchange, trusted(Known::XForwardedPrefix), call.route.strips_path);
    for earlier in exchange.request.headers.get_all_known(Known::Via) {
        encode::header(out, b"Via", earlier);
    }
    out.extend_from_slice(match exchange.request.version {
        Version::Http2 => b"Via: 2 weir\r\n",
        Version::Http3 => b"Via: 3 weir\r\n",
        _ => b"Via: 1.1 weir\r\n",
    });
    if call.worker.options.headers.request_id_upstream {
        encode::header(out, b"X-Kong-Request-Id", exchange.id);
    }
}

/// In lower case, as Kong writes it.
fn write_host(out: &mut Vec<u8>, host: &[u8]) {
    out.extend_from_slice(b"X-Forwarded-Host: ");
    let start = out.len();
    out.extend_from_slice(host);
    out[start..].make_ascii_lowercase();
    out.extend_from_slice(b"\r\n");
}

/// What `strip_path` took away, encoded again: the normal form is decoded and could end the line.
fn write_prefix(out: &mut Vec<u8>, exchange: &Exchange, trusted: Option<&[u8]>, strip: bool) {
    let matched = &exchange.path()[..exchange.engine.matched_path as usize];
    if let Some(prefix) = trusted {
        encode::header(out, b"X-Forwarded-Prefix", prefix);
    } else if strip && !matched.is_empty() && matched != "/" {
        out.extend_from_slice(b"X-Forwarded-Prefix: ");
        push_encoded(out, matched);
        out.extend_from_slice(b"\r\n");
    }
}

/// The forwarded headers of a request that came through other proxies.
fn write_forwarded_on(out: &mut Vec<u8>, exchange: &Exchange, connection: &Connection) {
    let trusted = |known| exchange.header(known).filter(|_| connection.trusted);
    out.extend_from_slice(b"X-Forwarded-For: ");
    let client_ip =
        exchange.client_ip_text().map_or_else(|| Cow::Owned(exchange.client_ip.to_string()), Cow::Borrowed);
    // A list is continued with the peer; one that begins here begins with the client that the peer spoke for.
    let mut last = &*client_ip;
    for earlier in exchange.request.headers.get_all_known(Known::XForwardedFor) {
        out.extend_from_slice(earlier);
        out.extend_from_slice(b", ");
        last = &connection.peer_text;
    }
    out.extend_from_slice(last.as_bytes());
    out.extend_from_slice(b"\r\n");
    let scheme = trusted(Known::XForwardedProto).unwrap_or(exchange.scheme().as_bytes());
    encode::header(out, b"X-Forwarded-Proto", scheme);
    let mut digits = itoa::Buffer::new();
    let port = digits.format(connection.local_port).as_bytes();
    encode::header(out, b"X-Forwarded-Port", trusted(Known::XForwardedPort).unwrap_or(port));
    encode::header(out, b"X-Real-IP", client_ip.as_bytes());
}

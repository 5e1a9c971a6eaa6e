//! What log plugins tell of a request: Kong's record, written straight as JSON text.

mod custom;
mod session;
#[cfg(test)]
mod tests;

pub(super) use custom::{CustomFields, constant};

use super::form;
use crate::plugin::json_text::{self, Object};
use crate::plugin::{Exchange, FailedTry, Headers, Known, Session, Source, WORKSPACE, without_port};
use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

/// How many headers and query arguments are told, as many as Kong tells.
const MOST: usize = 100;

/// Writes records of requests and sessions, with a plugin's own fields.
pub(super) struct LogRecord {
    custom: CustomFields,
}

impl LogRecord {
    pub(super) fn new(custom: &Option<std::collections::BTreeMap<String, String>>) -> Self {
        Self { custom: CustomFields::new(custom) }
    }

    /// Appends the record of a request.
    pub(super) fn write(&self, out: &mut Vec<u8>, exchange: &Exchange) {
        self.custom.apply(out, |out| write(out, exchange));
    }

    /// Appends the record of a session of a stream listener.
    pub(super) fn write_session(&self, out: &mut Vec<u8>, session: &Session) {
        self.custom.apply(out, |out| session::write(out, session));
    }

    /// The record of a request.
    pub(super) fn of(&self, exchange: &Exchange) -> Vec<u8> {
        let mut out = Vec::with_capacity(2048);
        self.write(&mut out, exchange);
        out
    }

    /// The record of a session.
    pub(super) fn of_session(&self, session: &Session) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        self.write_session(&mut out, session);
        out
    }
}

/// The id of the request's trace in each format that the upstream is told it in, kept by plugins that trace.
#[derive(Default)]
pub(super) struct TraceIds(Vec<(&'static str, String)>);

impl TraceIds {
    pub(super) fn add(&mut self, format: &'static str, id: String) {
        self.0.push((format, id));
    }
}

fn write(out: &mut Vec<u8>, exchange: &Exchange) {
    let started = exchange.started_at();
    let mut object = Object::open(out);
    request(object.key("request"), exchange);
    json_text::string_with(object.key("upstream_uri"), |out| exchange.write_upstream_uri(out));
    let status = exchange.upstream_status();
    json_text::string_with(object.key("upstream_status"), |out| {
        status.into_iter().for_each(|status| json_text::integer(out, status.into()));
    });
    let mut response = Object::open(object.key("response"));
    response.number("status", exchange.response.status.into());
    headers(response.key("headers"), &exchange.response.headers);
    response.number("size", exchange.bytes_out);
    response.close();
    latencies(object.key("latencies"), exchange);
    entities(&mut object, exchange, started);
    address(object.key("client_ip"), exchange.client_ip);
    object.number("started_at", milliseconds(started));
    object.text("source", source(exchange).as_bytes());
    workspace(&mut object);
    if let Some(TraceIds(ids)) = exchange.kept().filter(|TraceIds(ids)| !ids.is_empty()) {
        let mut inner = Object::open(object.key("trace_id"));
        ids.iter().for_each(|(format, id)| inner.text(format, id.as_bytes()));
        inner.close();
    }
    object.close();
}

fn workspace(object: &mut Object<'_>) {
    object.text("workspace", WORKSPACE.as_bytes());
    object.text("workspace_name", b"default");
}

fn request(out: &mut Vec<u8>, exchange: &Exchange) {
    let (request, target) = (&exchange.request, exchange.request.target().as_bytes());
    let mut object = Object::open(out);
    object.text("id", &exchange.id);
    object.text("uri", target);
    json_text::string_with(object.key("url"), |out| {
        out.extend_from_slice(exchange.scheme().as_bytes());
        out.extend_from_slice(b"://");
        let start = out.len();
        out.extend_from_slice(without_port(request.host().unwrap_or_default()).as_bytes());
        out[start..].make_ascii_lowercase();
        out.push(b':');
        json_text::integer(out, exchange.local().port().into());
        out.extend_from_slice(target);
    });
    querystring(object.key("querystring"), exchange.query().unwrap_or_default());
    object.text("method", request.method_str().as_bytes());
    headers(object.key("headers"), &request.headers);
    object.number("size", exchange.bytes_in);
    if let Some((version, cipher)) = exchange.tls_session() {
        let mut tls = Object::open(object.key("tls"));
        tls.text("version", version.as_bytes());
        tls.text("cipher", cipher.as_bytes());
        if exchange.client_certificate().is_none() {
            tls.text("client_verify", b"NONE");
        }
        tls.close();
    }
    object.close();
}

/// The arguments by name, decoded: `true` for one without a value, a list for several of one name.
fn querystring(out: &mut Vec<u8>, query: &str) {
    let mut object = Object::open(out);
    if !query.is_empty() {
        let arguments: Vec<_> = form::pairs(query).take(MOST).collect();
        for (at, first) in arguments.iter().enumerate() {
            let same = |other: &&form::Pair<'_>| other.name == first.name;
            if arguments[..at].iter().any(|other| same(&other)) {
                continue;
            }
            let values = arguments[at..].iter().filter(same).map(|pair| pair.value.as_deref());
            one_or_list(object.name(&first.name), values, |out, value| match value {
                Some(value) => json_text::string(out, value),
                None => out.extend_from_slice(b"true"),
            });
        }
    }
    object.close();
}

/// A value, or a list of them where there are several.
fn one_or_list<T>(
    out: &mut Vec<u8>,
    values: impl Iterator<Item = T> + Clone,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    let mut few = values.clone().take(2);
    match (few.next(), few.next()) {
        (Some(only), None) => write(out, only),
        _ => json_text::array(out, values, write),
    }
}

/// Headers by name in small letters, without what proves who the client is.
fn headers(out: &mut Vec<u8>, headers: &Headers) {
    let repeated = repeated(headers);
    let mut object = Object::open(out);
    for (at, field) in headers.iter().take(MOST).enumerate() {
        let same = |name: &[u8]| name.eq_ignore_ascii_case(field.name);
        let may_repeat = repeated & trace(field.name) != 0;
        if may_repeat && headers.iter().take(at).any(|other| same(other.name)) {
            continue;
        }
        let out = object.lower_name(field.name);
        if matches!(field.known, Known::Authorization | Known::ProxyAuthorization) {
            out.extend_from_slice(b"\"REDACTED\"");
        } else if may_repeat {
            let values = headers.iter().take(MOST).filter(|other| same(other.name)).map(|other| other.value);
            let values: Vec<_> = values.collect();
            one_or_list(out, values.into_iter(), json_text::string);
        } else {
            json_text::string(out, field.value);
        }
    }
    object.close();
}

/// The traces of names that there may be several headers of.
fn repeated(headers: &Headers) -> u128 {
    let (_, repeated) = headers.iter().fold((0, 0), |(seen, repeated), field| {
        let trace = trace(field.name);
        (seen | trace, repeated | seen & trace)
    });
    repeated
}

/// One bit for a name in any case, the same for few names.
fn trace(name: &[u8]) -> u128 {
    let letter = |at: Option<&u8>| usize::from(at.map_or(0, |byte| byte | 0x20));
    let sum = name.len()
        + 31 * letter(name.last())
        + 7 * letter(name.get(name.len() / 2))
        + 3 * letter(name.first());
    1 << (sum % 127)
}

/// Whole milliseconds. What did not happen is -1, or 0 for what was not received.
fn latencies(out: &mut Vec<u8>, exchange: &Exchange) {
    let latencies = exchange.latencies();
    let mut object = Object::open(out);
    object.number("kong", whole(latencies.kong));
    match latencies.proxy {
        Some(proxy) => object.number("proxy", whole(proxy)),
        None => object.raw("proxy", "-1"),
    }
    object.number("request", whole(latencies.request));
    object.number("receive", whole(latencies.receive.unwrap_or_default()));
    object.close();
}

fn whole(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn entities(object: &mut Object<'_>, exchange: &Exchange, started: SystemTime) {
    if let Some(route) = exchange.route() {
        if let Some(service) = &route.service {
            tries(object.key("tries"), exchange, started);
            object.raw("service", service.json());
        }
        object.raw("route", route.json());
    }
    if let Some(id) = exchange.credential() {
        let mut entity = Object::open(object.key("authenticated_entity"));
        let mut text = uuid::Uuid::encode_buffer();
        entity.text("id", id.hyphenated().encode_lower(&mut text).as_bytes());
        entity.some("consumer_id", exchange.consumer().map(|consumer| &*consumer.id_text));
        entity.close();
    }
    if let Some(consumer) = exchange.consumer() {
        object.raw("consumer", consumer.json());
    }
}

/// The attempts to reach the upstream: those that failed, then the one that did not.
fn tries(out: &mut Vec<u8>, exchange: &Exchange, started: SystemTime) {
    let failed = exchange.failed_tries();
    let at = |moment: Instant| started + moment.saturating_duration_since(exchange.timing.start);
    let start = failed.last().map_or(exchange.timing.upstream_start, |last| Some(last.end));
    let succeeded = exchange.upstream_address().zip(start.or(exchange.timing.upstream_start));
    let failed = failed.iter().map(|failed| {
        let FailedTry { address, port, start, end } = *failed;
        (address.map(|address| address.ip()), port, at(start), Some(end.saturating_duration_since(start)))
    });
    let succeeded = succeeded.map(|(address, start)| (Some(address.ip()), address.port(), at(start), None));
    json_text::array(out, failed.chain(succeeded), |out, (ip, port, start, failed)| {
        let mut object = Object::open(out);
        object.number("balancer_start", milliseconds(start));
        object.number("balancer_start_ns", nanoseconds(start));
        if let Some(ip) = ip {
            address(object.key("ip"), ip);
        }
        object.number("port", port.into());
        let latency = failed.unwrap_or_default();
        object.number("balancer_latency", whole(latency));
        object.number("balancer_latency_ns", u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        if failed.is_some() {
            object.text("state", b"failed");
            object.number("code", 502);
        }
        object.close();
    });
}

fn source(exchange: &Exchange) -> &'static str {
    match exchange.source {
        Source::Service => "upstream",
        Source::Kong if exchange.is_failure() => "error",
        Source::Kong => "exit",
    }
}

/// An IP address in quotes.
fn address(out: &mut Vec<u8>, address: IpAddr) {
    out.push(b'"');
    match address {
        IpAddr::V4(address) => {
            for (at, byte) in address.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                json_text::integer(out, byte.into());
            }
        }
        // Writing to a Vec cannot fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
    out.push(b'"');
}

/// Since 1970.
fn milliseconds(moment: SystemTime) -> u64 {
    whole(moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn nanoseconds(moment: SystemTime) -> u64 {
    let since = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

//! The record that log plugins write about a request: Kong's record, written directly as JSON text.

mod custom;
mod headers;
mod session;
#[cfg(test)]
mod tests;
mod tries;

pub(super) use custom::lua_code;

use crate::correlation_id::CorrelationIdOf;
use custom::{CustomFields, ScriptedFields};
use headers::headers;
use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use weir_plugin::form;
use weir_plugin::json_text::{self, Object, integer, raw};
use weir_plugin::{BuildContext, Exchange, Known, Latencies, Session, Source, WORKSPACE, host_end};

/// Nanoseconds in a millisecond.
const NANOSECONDS: u64 = 1_000_000;

/// How many headers and query arguments are in the record, as in Kong.
const MAX_ITEMS: usize = 100;

/// Writes records of requests and sessions, with a plugin's own fields.
pub(super) struct LogRecord {
    custom: CustomFields,
}

impl LogRecord {
    /// With the fields of a configuration of the plugin.
    pub(super) fn new(
        custom: &Option<std::collections::BTreeMap<String, String>>,
        plugin: &'static str,
        build: &BuildContext<'_>,
    ) -> Result<Self, String> {
        Ok(Self { custom: CustomFields::new(custom, plugin, build)? })
    }

    /// Runs the code of the configuration, if it has any. That comes before the record is written, because code may take long
    /// and writers may hold a lock.
    pub(super) fn evaluate(&self, exchange: &mut Exchange) -> ScriptedFields {
        self.custom.evaluate(exchange)
    }

    /// Appends the record of a request.
    pub(super) fn write(&self, out: &mut Vec<u8>, exchange: &Exchange, scripted: &ScriptedFields) {
        self.custom.apply(out, (exchange.log_fields(), scripted), |out| write(out, exchange));
    }

    /// The same for a session of a stream listener, of which the code sees nothing.
    pub(super) fn evaluate_session(&self) -> ScriptedFields {
        self.custom.evaluate(&mut Exchange::vacant())
    }

    /// Appends the record of a session of a stream listener.
    pub(super) fn write_session(&self, out: &mut Vec<u8>, session: &Session, scripted: &ScriptedFields) {
        self.custom.apply(out, (None, scripted), |out| session::write(out, session));
    }

    /// The record of a request.
    pub(super) fn of(&self, exchange: &mut Exchange) -> Vec<u8> {
        let scripted = self.evaluate(exchange);
        let mut out = Vec::with_capacity(2048);
        self.write(&mut out, exchange, &scripted);
        out
    }

    /// The record of a session.
    pub(super) fn of_session(&self, session: &Session) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        self.write_session(&mut out, session, &self.evaluate_session());
        out
    }
}

/// The record of a request without fields of a log plugin's own.
pub(super) fn request_record(exchange: &Exchange) -> Vec<u8> {
    let (mut out, none) = (Vec::with_capacity(2048), ScriptedFields::default());
    LogRecord { custom: CustomFields::default() }.write(&mut out, exchange, &none);
    out
}

/// The trace id in each format that the client sent and that the upstream gets, stored by tracing plugins.
#[derive(Default)]
pub(super) struct TraceIds(Vec<(&'static str, String)>);

impl TraceIds {
    /// Adds a format, unless it is there already.
    pub(super) fn add(&mut self, format: &'static str, id: String) {
        if self.0.iter().all(|(known, _)| *known != format) {
            self.0.push((format, id));
        }
    }
}

/// The text between the values is written as literals, so that it takes few copies.
fn write(out: &mut Vec<u8>, exchange: &Exchange) {
    let latencies = exchange.latencies();
    let started = nanoseconds(latencies.began_before(exchange.ended_at()));
    request(out, exchange);
    raw(out, r#","upstream_uri":"#);
    upstream_uri(out, exchange);
    raw(out, r#","upstream_status":""#);
    upstream_statuses(out, exchange);
    raw(out, r#"","response":{"status":"#);
    integer(out, exchange.response.status.into());
    raw(out, r#","headers""#);
    let fields = &exchange.response.headers;
    headers(out, fields, json_text::are_plain(fields.lines()));
    raw(out, r#","size":"#);
    integer(out, exchange.bytes_out);
    raw(out, r#"},"latencies":"#);
    self::latencies(out, &latencies);
    entities(out, exchange, started, &latencies);
    raw(out, r#","client_ip":""#);
    match exchange.client_ip_text() {
        Some(text) => out.extend_from_slice(text.as_bytes()),
        None => address(out, exchange.client_ip),
    }
    raw(out, r#"","started_at":"#);
    integer(out, started / NANOSECONDS);
    source(out, exchange);
    error(out, exchange);
    workspace(out);
    let mut object = Object::resume(out);
    if let Some(CorrelationIdOf(id)) = exchange.extensions.get() {
        object.text("correlation_id", id);
    }
    if let Some(TraceIds(ids)) = exchange.extensions.get().filter(|TraceIds(ids)| !ids.is_empty()) {
        let mut inner = Object::open(object.key("trace_id"));
        ids.iter().for_each(|(format, id)| inner.text(format, id.as_bytes()));
        inner.close();
    }
    object.close();
}

/// The status of each attempt in turn, as nginx lists them: what the upstream sent, or the error that took its place.
fn upstream_statuses(out: &mut Vec<u8>, exchange: &Exchange) {
    let failed = exchange.failed_tries().iter().map(|tried| tried.code);
    // An attempt that another one did not follow is not among the failed ones, if there was a connection.
    let unanswered =
        || exchange.upstream_address().map(|_| exchange.response.status).filter(|status| *status >= 500);
    let last = exchange.upstream_status().or_else(unanswered);
    for (at, status) in failed.chain(last).enumerate() {
        if at > 0 {
            raw(out, ", ");
        }
        integer(out, status.into());
    }
}

fn workspace(out: &mut Vec<u8>) {
    raw(out, r#","workspace":""#);
    raw(out, WORKSPACE);
    raw(out, r#"","workspace_name":"default""#);
}

/// Converts to lower case, a few bytes at a time.
fn lower(text: &mut [u8]) {
    text.as_chunks_mut::<8>().0.iter_mut().for_each(|few| few.make_ascii_lowercase());
    match text.last_chunk_mut::<8>() {
        Some(last) => last.make_ascii_lowercase(),
        None => text.make_ascii_lowercase(),
    }
}

/// Paths are sent with everything escaped that needs escapes here; queries may not be.
fn upstream_uri(out: &mut Vec<u8>, exchange: &Exchange) {
    if exchange.query().is_some() {
        return json_text::string_with(out, |out| exchange.write_upstream_uri(out));
    }
    out.push(b'"');
    exchange.write_upstream_uri(out);
    out.push(b'"');
}

fn request(out: &mut Vec<u8>, exchange: &Exchange) {
    let (request, target) = (&exchange.request, exchange.request.target().as_bytes());
    raw(out, r#"{"request":{"id":""#);
    out.extend_from_slice(&exchange.id);
    raw(out, r#"","uri":""#);
    let start = out.len();
    json_text::text(out, target);
    let uri = start..out.len();
    if exchange.tls {
        raw(out, r#"","url":"https://"#)
    } else {
        raw(out, r#"","url":"http://"#)
    }
    let plain = json_text::are_plain(request.headers.lines());
    let authority = exchange.header(Known::Host).unwrap_or_default();
    let (host, start) = (&authority[..host_end(authority)], out.len());
    if plain {
        out.extend_from_slice(host)
    } else {
        json_text::text(out, host)
    }
    lower(&mut out[start..]);
    out.push(b':');
    integer(out, exchange.local().port().into());
    out.extend_from_within(uri);
    raw(out, r#"","querystring":"#);
    querystring(out, exchange.query().unwrap_or_default());
    // A method is a token, which needs no escapes.
    raw(out, r#","method":""#);
    out.extend_from_slice(request.method_str().as_bytes());
    raw(out, r#"","headers""#);
    headers(out, &request.headers, plain);
    raw(out, r#","size":"#);
    integer(out, exchange.bytes_in);
    let mut object = Object::resume(out);
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
        let arguments: Vec<_> = form::pairs(query).take(MAX_ITEMS).collect();
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

/// One value, or a list if there are several.
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

/// Whole milliseconds: -1 for what did not happen, 0 if nothing was received.
fn latencies(out: &mut Vec<u8>, latencies: &Latencies) {
    raw(out, r#"{"kong":"#);
    integer(out, whole(latencies.kong));
    raw(out, r#","proxy":"#);
    match latencies.proxy {
        Some(proxy) => integer(out, whole(proxy)),
        None => raw(out, "-1"),
    }
    raw(out, r#","request":"#);
    integer(out, whole(latencies.request));
    raw(out, r#","receive":"#);
    integer(out, whole(latencies.receive.unwrap_or_default()));
    out.push(b'}');
}

fn whole(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1000).saturating_add(duration.subsec_millis().into())
}

fn whole_nanoseconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1000 * NANOSECONDS).saturating_add(duration.subsec_nanos().into())
}

fn entities(out: &mut Vec<u8>, exchange: &Exchange, started: u64, latencies: &Latencies) {
    if let Some(route) = exchange.route() {
        if let Some(service) = &route.service {
            raw(out, r#","tries":"#);
            tries(out, exchange, started, latencies);
            raw(out, r#","service":"#);
            out.extend_from_slice(service.json().as_bytes());
        }
        raw(out, r#","route":"#);
        out.extend_from_slice(route.json().as_bytes());
    }
    let mut object = Object::resume(out);
    if let Some(id) = exchange.credential_text() {
        let mut entity = Object::open(object.key("authenticated_entity"));
        entity.text("id", id.as_bytes());
        entity.some("consumer_id", exchange.consumer().map(|consumer| &*consumer.id_text));
        entity.close();
    }
    if let Some(consumer) = exchange.consumer() {
        object.raw("consumer", consumer.json());
    }
}

/// The attempts to reach the upstream.
fn tries(out: &mut Vec<u8>, exchange: &Exchange, started: u64, latencies: &Latencies) {
    let failed = exchange.failed_tries();
    let after = |duration: Duration| started.saturating_add(whole_nanoseconds(duration));
    let at = |moment: Instant| after(moment.saturating_duration_since(exchange.timing.start));
    let start = match failed.last() {
        Some(last) => Some(at(last.end)),
        None => exchange.timing.upstream_start.map(|_| after(latencies.kong)),
    };
    tries::write(out, failed, at, exchange.upstream_address().zip(start));
}

/// Who made the response.
fn source(out: &mut Vec<u8>, exchange: &Exchange) {
    match exchange.source {
        Source::Service => raw(out, r#","source":"upstream""#),
        Source::Kong if exchange.is_failure() => raw(out, r#","source":"error""#),
        Source::Kong => raw(out, r#","source":"exit""#),
    }
}

/// Why there is no response, or not all of it.
fn error(out: &mut Vec<u8>, exchange: &Exchange) {
    if let Some(error) = exchange.error() {
        raw(out, r#","error":""#);
        raw(out, error);
        out.push(b'"');
    }
}

fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            for (at, byte) in address.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                integer(out, byte.into());
            }
        }
        // Writing to a Vec cannot fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

/// Since 1970.
fn milliseconds(moment: SystemTime) -> u64 {
    whole(moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn nanoseconds(moment: SystemTime) -> u64 {
    whole_nanoseconds(moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

//! Records as text. Whatever a client sent is escaped, so that it can neither end a line nor look like another field.

use super::date::{Dates, since_epoch};
use super::record::{Consumer, Entity, Record, SessionRecord, Tls, Upstream};
use std::io::Write;
use weir_plugin::json_text::{Object, array, integer, string};

/// How many query arguments a JSON record names one by one, as many as Kong does.
const ARGUMENTS: usize = 100;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Kong's and nginx's combined format, with the time at which the response ended.
pub(super) fn combined(out: &mut Vec<u8>, record: &Record<'_>, dates: &mut Dates) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{} - ", record.client_ip);
    quoted(out, record.remote_user);
    out.extend_from_slice(b" [");
    let end = record.time.checked_add(record.latency).unwrap_or(record.time);
    out.extend_from_slice(dates.text(end).as_bytes());
    out.extend_from_slice(b"] \"");
    escaped(out, record.method);
    out.push(b' ');
    escaped(out, record.target);
    out.push(b' ');
    out.extend_from_slice(record.version.as_bytes());
    out.extend_from_slice(b"\" ");
    integer(out, record.status.into());
    out.push(b' ');
    integer(out, record.bytes_sent);
    out.extend_from_slice(b" \"");
    quoted(out, record.referer);
    out.extend_from_slice(b"\" \"");
    quoted(out, record.user_agent);
    out.extend_from_slice(b"\" kong_request_id: \"");
    escaped(out, record.request_id.as_bytes());
    out.extend_from_slice(b"\"\n");
}

/// Kong's format of sessions.
pub(super) fn basic(out: &mut Vec<u8>, record: &SessionRecord, dates: &mut Dates) {
    let SessionRecord { client_ip, ended, protocol, status, sent, received, duration } = record;
    let date = dates.text(*ended);
    let seconds = duration.as_secs_f64();
    // Writing to a Vec cannot fail.
    let _ = writeln!(out, "{client_ip} [{date}] {protocol} {status} {sent} {received} {seconds:.3}");
}

fn quoted(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(value) if !value.is_empty() => escaped(out, value),
        _ => out.push(b'-'),
    }
}

/// As nginx does: everything but printable ASCII, the quote and the backslash become `\xHH`.
fn escaped(out: &mut Vec<u8>, value: &[u8]) {
    let unsafe_byte = |byte: &u8| !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'\\');
    let mut rest = value;
    while let Some(at) = rest.iter().position(unsafe_byte) {
        out.extend_from_slice(&rest[..at]);
        let (high, low) = (usize::from(rest[at] >> 4), usize::from(rest[at] & 15));
        out.extend_from_slice(&[b'\\', b'x', HEX[high], HEX[low]]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// One JSON object with Kong's keys. Latencies are milliseconds with three decimals.
pub(super) fn json(out: &mut Vec<u8>, record: &Record<'_>) {
    let mut object = Object::open(out);
    request(object.key("request"), record);
    let mut response = Object::open(object.key("response"));
    response.number("status", record.status.into());
    response.number("size", record.response_size);
    response.close();
    latencies(object.key("latencies"), record);
    tries(object.key("tries"), record.upstream.as_ref());
    if let Some(upstream) = &record.upstream {
        object.text("upstream_uri", upstream.uri);
        object.some("upstream_status", upstream.status.map(|status| status.to_string()).as_deref());
    }
    entity(&mut object, "route", record.route.as_ref());
    entity(&mut object, "service", record.service.as_ref());
    if let Some(who) = &record.consumer {
        consumer(object.key("consumer"), who);
    }
    object.text("client_ip", record.client_ip.to_string().as_bytes());
    object.number("started_at", u64::try_from(since_epoch(record.time).as_millis()).unwrap_or(u64::MAX));
    object.text("source", record.source.as_bytes());
    object.some("error", record.error);
    object.close();
    out.push(b'\n');
}

fn request(out: &mut Vec<u8>, record: &Record<'_>) {
    let mut object = Object::open(out);
    object.text("id", record.request_id.as_bytes());
    object.text("method", record.method);
    object.text("uri", record.target);
    object.text("url", &url(record));
    let query = record.target.iter().position(|&byte| byte == b'?').map(|at| &record.target[at + 1..]);
    query_string(object.key("querystring"), query.unwrap_or_default());
    let mut headers = Object::open(object.key("headers"));
    for (name, value) in
        [("host", record.host), ("referer", record.referer), ("user-agent", record.user_agent)]
    {
        if let Some(value) = value {
            headers.text(name, value);
        }
    }
    headers.close();
    object.number("size", record.request_size);
    if let Some(Tls { version, cipher }) = &record.tls {
        let mut tls = Object::open(object.key("tls"));
        tls.text("version", version.as_bytes());
        tls.text("cipher", cipher.as_bytes());
        tls.close();
    }
    object.close();
}

fn url(record: &Record<'_>) -> Vec<u8> {
    [record.scheme.as_bytes(), b"://", record.host.unwrap_or_default(), record.target].concat()
}

/// The arguments by name: `true` for one without a value, an array for several of the same name.
fn query_string(out: &mut Vec<u8>, query: &[u8]) {
    let split = |argument: &[u8]| match argument.iter().position(|&byte| byte == b'=') {
        Some(at) => (decoded(&argument[..at]), Some(decoded(&argument[at + 1..]))),
        None => (decoded(argument), None),
    };
    let arguments = query.split(|&byte| byte == b'&').filter(|argument| !argument.is_empty());
    let arguments: Vec<_> = arguments.take(ARGUMENTS).map(split).collect();
    let mut object = Object::open(out);
    for (at, (name, _)) in arguments.iter().enumerate() {
        let same = |other: &&(Vec<u8>, _)| other.0 == *name;
        if arguments[..at].iter().any(|other| same(&other)) {
            continue;
        }
        let values: Vec<_> = arguments[at..].iter().filter(same).map(|(_, value)| value.as_deref()).collect();
        let out = object.name(name);
        match values[..] {
            [value] => argument(out, value),
            _ => array(out, values, argument),
        }
    }
    object.close();
}

fn argument(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(value) => string(out, value),
        None => out.extend_from_slice(b"true"),
    }
}

/// Percent-decoded, with `+` for a space.
fn decoded(text: &[u8]) -> Vec<u8> {
    let digit = |at: usize| text.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match (text[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                plain.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) => plain.push(b' '),
            (byte, ..) => plain.push(byte),
        }
        at += 1;
    }
    plain
}

fn latencies(out: &mut Vec<u8>, record: &Record<'_>) {
    let upstream = record.upstream_latency.unwrap_or_default();
    let receive = record.receive_latency.unwrap_or_default();
    let mut object = Object::open(out);
    object.milliseconds("request", record.latency);
    object.milliseconds("kong", record.latency.saturating_sub(upstream + receive));
    if let Some(upstream) = record.upstream_latency {
        object.milliseconds("proxy", upstream);
    }
    if let Some(receive) = record.receive_latency {
        object.milliseconds("receive", receive);
    }
    object.close();
}

/// The last try alone is known.
fn tries(out: &mut Vec<u8>, upstream: Option<&Upstream<'_>>) {
    array(out, upstream.as_slice(), |out, upstream| {
        let mut object = Object::open(out);
        object.text("ip", upstream.address.ip().to_string().as_bytes());
        object.number("port", upstream.address.port().into());
        object.close();
    });
}

fn entity(object: &mut Object<'_>, key: &'static str, entity: Option<&Entity<'_>>) {
    let Some(entity) = entity else { return };
    let mut inner = Object::open(object.key(key));
    inner.text("id", entity.id.to_string().as_bytes());
    inner.some("name", entity.name);
    inner.close();
}

fn consumer(out: &mut Vec<u8>, consumer: &Consumer<'_>) {
    let mut object = Object::open(out);
    object.text("id", consumer.id.to_string().as_bytes());
    object.some("username", consumer.username);
    object.some("custom_id", consumer.custom_id);
    object.close();
}

//! The record of a session of a stream listener.

use super::{address, milliseconds, nanoseconds, tries, whole, workspace};
use tokio::time::Instant;
use weir_plugin::json_text::Object;
use weir_plugin::{Route, Service, Session};

pub(super) fn write(out: &mut Vec<u8>, session: &Session) {
    let mut object = Object::open(out);
    let mut inner = Object::open(object.key("session"));
    if let Some(session_tls) = &session.tls {
        let mut tls = Object::open(inner.key("tls"));
        tls.text("version", session_tls.version.as_bytes());
        tls.text("cipher", session_tls.cipher.as_bytes());
        // Stream listeners ask for no certificate.
        tls.text("client_verify", b"NONE");
        tls.close();
    }
    inner.number("received", session.received);
    inner.number("sent", session.sent);
    inner.number("status", session.status.into());
    inner.number("server_port", session.local.port().into());
    inner.close();
    // What is received on one side is sent on the other.
    let mut upstream = Object::open(object.key("upstream"));
    upstream.number("received", session.sent);
    upstream.number("sent", session.received);
    upstream.close();
    let mut latencies = Object::open(object.key("latencies"));
    latencies.number("session", whole(session.duration()));
    latencies.close();
    if let Some(json) = session.route().map(Route::json) {
        object.raw("route", json);
    }
    if let Some(json) = session.service().map(Service::json) {
        object.raw("service", json);
        let at = |moment: Instant| nanoseconds(session.time_of(moment));
        let reached = session.upstream().map(|(address, start, _)| (address, at(start)));
        tries::write(object.key("tries"), session.failed_tries(), at, reached);
    }
    let place = object.key("client_ip");
    place.push(b'"');
    address(place, session.client.ip());
    place.push(b'"');
    object.number("started_at", milliseconds(session.started_at()));
    workspace(out);
    out.push(b'}');
}

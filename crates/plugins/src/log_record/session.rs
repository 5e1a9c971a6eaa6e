//! The record of a session of a stream listener.

use super::{address, milliseconds, whole, workspace};
use weir_plugin::json_text::Object;
use weir_plugin::{Route, Service, Session};

pub(super) fn write(out: &mut Vec<u8>, session: &Session) {
    let mut object = Object::open(out);
    let mut inner = Object::open(object.key("session"));
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
    }
    let place = object.key("client_ip");
    place.push(b'"');
    address(place, session.client.ip());
    place.push(b'"');
    object.number("started_at", milliseconds(session.started_at()));
    workspace(out);
    out.push(b'}');
}

//! One span, in the form of Zipkin's API v2.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use weir_plugin::json_text::{self, Object};

/// The data of a span. Times are microseconds since the epoch.
#[derive(Default)]
pub(super) struct Span<'a> {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) id: u64,
    pub(super) parent: Option<u64>,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) remote: Remote<'a>,
    pub(super) tags: Tags<'a>,
    pub(super) annotations: Vec<(&'static str, u64)>,
}

/// The peer.
#[derive(Default)]
pub(super) struct Remote<'a> {
    pub(super) service: Option<&'a str>,
    pub(super) ip: Option<IpAddr>,
    pub(super) port: Option<u16>,
}

/// Tags by name; the last value counts.
#[derive(Default)]
pub(super) struct Tags<'a>(BTreeMap<Cow<'a, str>, Cow<'a, str>>);

impl<'a> Tags<'a> {
    pub(super) fn set(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) {
        self.0.insert(name.into(), value.into());
    }

    pub(super) fn set_some(&mut self, name: &'static str, value: Option<impl Into<Cow<'a, str>>>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }
}

impl Span<'_> {
    /// Its JSON, for this trace and this local service.
    pub(super) fn json(&self, trace: &str, local: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        let mut object = Object::open(&mut out);
        object.text("traceId", trace.as_bytes());
        object.text("name", self.name.as_bytes());
        object.some("parentId", self.parent.map(hex).as_deref());
        object.text("id", hex(self.id).as_bytes());
        object.text("kind", self.kind.as_bytes());
        object.number("timestamp", self.start);
        object.number("duration", self.end.saturating_sub(self.start));
        let mut endpoint = Object::open(object.key("localEndpoint"));
        endpoint.text("serviceName", local.as_bytes());
        endpoint.close();
        self.remote.write(&mut object);
        let mut tags = self.tags.0.iter().filter(|(_, value)| !value.is_empty()).peekable();
        if tags.peek().is_some() {
            let mut members = Object::open(object.key("tags"));
            tags.for_each(|(name, value)| json_text::string(members.name(name.as_bytes()), value.as_bytes()));
            members.close();
        }
        if !self.annotations.is_empty() {
            json_text::array(object.key("annotations"), &self.annotations, |out, (value, moment)| {
                let mut annotation = Object::open(out);
                annotation.text("value", value.as_bytes());
                annotation.number("timestamp", *moment);
                annotation.close();
            });
        }
        object.close();
        out
    }
}

impl Remote<'_> {
    fn write(&self, object: &mut Object<'_>) {
        if self.port.is_none() && self.service.is_none() {
            return object.raw("remoteEndpoint", "null");
        }
        let mut endpoint = Object::open(object.key("remoteEndpoint"));
        endpoint.some("serviceName", self.service);
        if let Some(port) = self.port {
            endpoint.number("port", port.into());
        }
        if let Some(ip) = self.ip {
            endpoint.text(if ip.is_ipv4() { "ipv4" } else { "ipv6" }, ip.to_string().as_bytes());
        }
        endpoint.close();
    }
}

fn hex(id: u64) -> String {
    format!("{id:016x}")
}

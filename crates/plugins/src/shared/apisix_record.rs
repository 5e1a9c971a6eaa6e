//! The record that log plugins with APISIX's configuration write about a request, as JSON: APISIX's own, or a format of
//! the user's.

use super::expression::Expression;
use super::variables::{Variable, route_id, service_id};
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};
use weir_plugin::json_text::{self, Object};
use weir_plugin::{Exchange, Headers, Json, Version};

/// Writes records.
#[derive(Debug)]
pub(crate) struct ApisixRecord {
    /// The user's format; APISIX's record if there is none.
    format: Option<Vec<(String, Field)>>,
    /// The requests that are logged: those that meet one of the conditions.
    conditions: Option<Vec<Expression>>,
    hostname: String,
}

/// What a member of a format contains.
#[derive(Debug)]
enum Field {
    /// None if there is no such variable: the member is left out.
    Variable(Option<Variable>),
    Constant(Json),
}

/// The bodies that a record of APISIX's own format has, or their beginnings.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bodies<'b> {
    pub(crate) request: Option<&'b [u8]>,
    pub(crate) response: Option<&'b [u8]>,
}

impl ApisixRecord {
    /// Of the fields `log_format` and `match`.
    pub(crate) fn new(
        format: Option<&BTreeMap<String, Json>>,
        conditions: Option<&Vec<Json>>,
        hostname: String,
    ) -> Result<Self, String> {
        let field = |(name, value): (&String, &Json)| {
            let variable = value.as_str().and_then(|text| text.strip_prefix('$'));
            let field = match variable {
                Some(variable) => Field::Variable(Variable::find(variable)),
                None => Field::Constant(value.clone()),
            };
            (name.clone(), field)
        };
        let parse = |all: &Vec<Json>| all.iter().map(Expression::parse).collect::<Result<Vec<_>, _>>();
        Ok(Self {
            format: format
                .filter(|format| !format.is_empty())
                .map(|format| format.iter().map(field).collect()),
            conditions: conditions.map(parse).transpose()?,
            hostname,
        })
    }

    /// Whether the request is logged.
    pub(crate) fn wants(&self, exchange: &Exchange) -> bool {
        self.conditions.as_ref().is_none_or(|any| any.iter().any(|one| one.is_met(exchange)))
    }

    /// Appends the record of a request.
    pub(crate) fn write(&self, out: &mut Vec<u8>, exchange: &Exchange) {
        self.write_with(out, exchange, Bodies::default());
    }

    /// The same, with bodies unless the format is the user's.
    pub(crate) fn write_with(&self, out: &mut Vec<u8>, exchange: &Exchange, bodies: Bodies<'_>) {
        let mut object = Object::open(out);
        match &self.format {
            Some(format) => custom(&mut object, format, exchange),
            None => self.full(&mut object, exchange, bodies),
        }
        for (name, id) in [("route_id", route_id(exchange)), ("service_id", service_id(exchange))] {
            object.some(name, id.as_deref());
        }
        object.close();
    }

    fn full(&self, object: &mut Object<'_>, exchange: &Exchange, bodies: Bodies<'_>) {
        let value = |variable: Variable| variable.value(exchange).unwrap_or_default().into_owned();
        let uri = value(Variable::RequestUri);
        let mut request = Object::open(object.key("request"));
        let url = [exchange.scheme().as_bytes(), b"://", &value(Variable::HttpHost), &uri].concat();
        request.text("url", &url);
        request.text("uri", &uri);
        request.text("method", exchange.request.method_str().as_bytes());
        headers(request.key("headers"), &exchange.request.headers);
        let mut arguments = Object::open(request.key("querystring"));
        for pair in exchange.query_args(100) {
            json_text::string(arguments.name(&pair.name), pair.value.as_deref().unwrap_or_default());
        }
        arguments.close();
        request.number("size", exchange.bytes_in);
        body(&mut request, bodies.request);
        request.close();
        let mut response = Object::open(object.key("response"));
        response.number("status", exchange.response.status.into());
        headers(response.key("headers"), &exchange.response.headers);
        response.number("size", exchange.bytes_out);
        body(&mut response, bodies.response);
        response.close();
        let mut server = Object::open(object.key("server"));
        server.text("hostname", self.hostname.as_bytes());
        server.text("version", env!("CARGO_PKG_VERSION").as_bytes());
        server.close();
        object.some("upstream", exchange.upstream_address().map(|address| address.to_string()).as_deref());
        if let Some(name) = exchange.consumer().and_then(|consumer| consumer.entity.username.as_deref()) {
            let mut consumer = Object::open(object.key("consumer"));
            consumer.text("username", name.as_bytes());
            consumer.close();
        }
        object.text("client_ip", exchange.client_ip.to_string().as_bytes());
        latencies(object, exchange);
    }
}

fn body(object: &mut Object<'_>, bytes: Option<&[u8]>) {
    if let Some(bytes) = bytes {
        object.text("body", bytes);
    }
}

/// Appends a request as HTTP/1.1 has it: its line, its headers without credentials, and a body.
pub(crate) fn write_original(out: &mut Vec<u8>, exchange: &Exchange, body: Option<&[u8]>) {
    let request = &exchange.request;
    let version = match request.version {
        Version::Http10 => "1.0",
        Version::Http11 => "1.1",
        Version::Http2 => "2.0",
        Version::Http3 => "3.0",
    };
    let target = Variable::RequestUri.value(exchange).unwrap_or_default();
    for part in [request.method_str().as_bytes(), b" ", &target, b" HTTP/", version.as_bytes(), b"\r\n"] {
        out.extend_from_slice(part);
    }
    for field in request.headers.iter() {
        let name = field.name.to_ascii_lowercase();
        for part in [&*name, b": ", shown(&name, field.value), b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body.unwrap_or_default());
}

/// The value of a header, unless it is a credential.
fn shown<'v>(name: &[u8], value: &'v [u8]) -> &'v [u8] {
    const SECRET: [&[u8]; 2] = [b"authorization", b"proxy-authorization"];
    if SECRET.contains(&name) { b"REDACTED" } else { value }
}

fn custom(object: &mut Object<'_>, format: &[(String, Field)], exchange: &Exchange) {
    for (name, field) in format {
        match field {
            Field::Constant(Json::String(text)) => {
                json_text::string(object.name(name.as_bytes()), text.as_bytes());
            }
            Field::Constant(value) => {
                object.name(name.as_bytes()).extend_from_slice(value.to_string().as_bytes());
            }
            Field::Variable(variable) => {
                if let Some(value) = variable.as_ref().and_then(|variable| variable.value(exchange)) {
                    json_text::string(object.name(name.as_bytes()), &value);
                }
            }
        }
    }
}

fn latencies(object: &mut Object<'_>, exchange: &Exchange) {
    let latencies = exchange.latencies();
    let started = exchange.started_at().duration_since(UNIX_EPOCH).unwrap_or_default();
    object.number("start_time", u64::try_from(started.as_millis()).unwrap_or(u64::MAX));
    object.milliseconds("latency", latencies.request);
    let upstream = latencies.proxy.map(|proxy| proxy + latencies.receive.unwrap_or_default());
    if let Some(upstream) = upstream {
        object.milliseconds("upstream_latency", upstream);
    }
    let own = latencies.request.saturating_sub(upstream.unwrap_or(Duration::ZERO));
    object.milliseconds("apisix_latency", own);
}

/// The headers by name in lower case, without credentials; of several with one name the first.
fn headers(out: &mut Vec<u8>, headers: &Headers) {
    let mut object = Object::open(out);
    let mut written: Vec<Vec<u8>> = Vec::new();
    for field in headers.iter().take(100) {
        let name = field.name.to_ascii_lowercase();
        if written.contains(&name) {
            continue;
        }
        json_text::string(object.name(&name), shown(&name, field.value));
        written.push(name);
    }
    object.close();
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_plugin::testing::Gateway;

    fn record(format: Option<Json>, request: &str) -> Json {
        let format: Option<BTreeMap<String, Json>> =
            format.map(|format| format.as_object().unwrap().clone().into_iter().collect());
        let record = ApisixRecord::new(format.as_ref(), None, "here".to_owned()).unwrap();
        let mut text = Vec::new();
        record.write(&mut text, &Gateway::new(&[]).exchange(request));
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn a_format_has_variables_and_constants() {
        let format =
            json!({ "host": "$host", "env": "test", "no": "$nothing", "n": 1, "who": "$consumer_name" });
        let found = record(Some(format), "GET /a?b=c");
        assert_eq!(
            (&found["host"], &found["env"], &found["n"]),
            (&json!("gateway.test"), &json!("test"), &json!(1))
        );
        assert!(found.get("no").is_none() && found.get("who").is_none() && found["route_id"].is_string());
    }

    #[test]
    fn without_a_format_the_record_is_apisixs() {
        let found = record(None, "GET /a?b=c\nX-A: 1\nx-a: 2\nAuthorization: hunter2");
        let request = &found["request"];
        assert_eq!(request["url"], "http://gateway.test:8000/a?b=c");
        assert_eq!((&request["uri"], &request["method"]), (&json!("/a?b=c"), &json!("GET")));
        assert_eq!((&request["headers"]["x-a"], &request["querystring"]["b"]), (&json!("1"), &json!("c")));
        assert_eq!(request["headers"]["authorization"], "REDACTED");
        assert!(found["latency"].is_number() && found["server"]["hostname"] == "here");
    }
}

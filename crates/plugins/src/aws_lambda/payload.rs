//! What the function gets: the event of Amazon's API Gateway, parts of the request, or its arguments alone.

use super::Config;
use crate::shared::body_arguments::{self, NoArguments};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json, json};
use std::time::UNIX_EPOCH;
use time::OffsetDateTime;
use weir_plugin::{Exchange, Version};

/// Bodies of these types are sent as they are.
const TEXTS: [&str; 5] = ["text/plain", "text/html", "application/xml", "text/xml", "application/soap+xml"];

/// The payload of a request.
pub(super) fn payload(config: &Config, exchange: &Exchange) -> Json {
    let Config { forward_request_body, forward_request_headers, .. } = *config;
    let Config { forward_request_method, forward_request_uri, .. } = *config;
    if config.awsgateway_compatible {
        return event(config, exchange);
    }
    if forward_request_body || forward_request_headers || forward_request_method || forward_request_uri {
        return parts(config, exchange);
    }
    arguments(exchange)
}

/// The arguments of query and body together; those of the body win.
fn arguments(exchange: &Exchange) -> Json {
    let mut merged = body_arguments::query(exchange);
    match body_arguments::body(exchange) {
        Ok(Json::Object(members)) => merged.extend(members),
        Ok(list @ Json::Array(_)) if merged.is_empty() => return list,
        Ok(Json::Array(items)) => {
            merged.extend((1..).zip(items).map(|(at, item): (usize, _)| (at.to_string(), item)));
        }
        Ok(_) | Err(_) => {}
    }
    merged.into()
}

/// The parts of the request that are to be forwarded.
fn parts(config: &Config, exchange: &Exchange) -> Json {
    let mut parts = Map::new();
    let mut add = |name: &str, value: Json| drop(parts.insert(name.to_owned(), value));
    if config.forward_request_method {
        add("request_method", exchange.request.method_str().into());
    }
    if config.forward_request_headers {
        add("request_headers", body_arguments::headers(&exchange.request.headers).into());
    }
    if config.forward_request_uri {
        add("request_uri", exchange.path_with_query().into());
        add("request_uri_args", body_arguments::query(exchange).into());
    }
    if config.forward_request_body {
        let arguments = body_arguments::body(exchange);
        let content_type = exchange.request.headers.get("Content-Type");
        let is_text = TEXTS.iter().any(|text| content_type == Some(text.as_bytes()));
        if arguments == Err(NoArguments::Type) && !is_text && config.base64_encode_body {
            add("request_body", STANDARD.encode(body(exchange).unwrap_or_default()).into());
            add("request_body_base64", true.into());
        } else if let Some(body) = body(exchange) {
            add("request_body", String::from_utf8_lossy(body).into());
        }
        match arguments {
            Ok(arguments) => add("request_body_args", arguments),
            Err(NoArguments::Type) => add("request_body_args", json!({})),
            Err(NoArguments::Body) => {}
        }
    }
    parts.into()
}

/// The body, unless it is empty.
fn body(exchange: &Exchange) -> Option<&[u8]> {
    exchange.body().filter(|body| !body.is_empty())
}

/// The event of version 1.0 that API Gateway sends to functions.
fn event(config: &Config, exchange: &Exchange) -> Json {
    let (headers, many_headers) = single(body_arguments::headers(&exchange.request.headers));
    let (query, many_query) = single(body_arguments::query(exchange));
    let mut event = json!({
        "version": "1.0",
        "resource": resource(exchange),
        "path": exchange.upstream_target_path(),
        "httpMethod": exchange.request.method_str(),
        "multiValueHeaders": many_headers,
        "pathParameters": path_parameters(exchange),
        "queryStringParameters": query,
        "multiValueQueryStringParameters": many_query,
        "isBase64Encoded": config.base64_encode_body,
        "requestContext": context(exchange, headers.get("user-agent")),
    });
    event["headers"] = headers.into();
    if config.base64_encode_body {
        event["body"] = STANDARD.encode(body(exchange).unwrap_or_default()).into();
    } else if let Some(body) = body(exchange) {
        event["body"] = String::from_utf8_lossy(body).into();
    }
    event
}

/// The first value of each name, and all of them as lists.
fn single(many: Map<String, Json>) -> (Map<String, Json>, Map<String, Json>) {
    let lists = many.into_iter().map(|(name, value)| match value {
        list @ Json::Array(_) => (name, list),
        one => (name, Json::Array(vec![one])),
    });
    let lists: Map<_, _> = lists.collect();
    let first = lists.iter().map(|(name, list)| (name.clone(), list[0].clone()));
    (first.collect(), lists)
}

fn context(exchange: &Exchange, user_agent: Option<&Json>) -> Json {
    let (host, path) = (exchange.host(), exchange.upstream_target_path());
    let started = exchange.started_at();
    let mut context = json!({
        "path": path,
        "protocol": protocol(exchange.request.version),
        "httpMethod": exchange.request.method_str(),
        "domainName": host,
        "domainPrefix": host.split('.').next(),
        "identity": { "sourceIp": exchange.peer.ip().to_string() },
        "requestId": exchange.id(),
        "requestTime": log_time(started.into()),
        "requestTimeEpoch": started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
        "resourcePath": path,
    });
    if let Some(user_agent) = user_agent {
        context["identity"]["userAgent"] = user_agent.clone();
    }
    context
}

/// The route's path that the request matched: the longest prefix, or the first regex.
fn resource(exchange: &Exchange) -> Option<&str> {
    let paths = || exchange.route().into_iter().flat_map(|route| route.entity.paths.iter().flatten());
    let regex = paths().find_map(|path| path.strip_prefix('~'));
    let matched = paths().filter(|path| exchange.path().starts_with(path.as_str()));
    let prefix = matched.max_by_key(|path| path.len()).map(String::as_str);
    if exchange.uri_captures().is_some() { regex.or(prefix) } else { prefix.or(regex) }
}

/// What the named groups of the route's regex captured.
fn path_parameters(exchange: &Exchange) -> Json {
    let captures = exchange.uri_captures().into_iter().flat_map(|captures| captures.iter());
    let named = captures.filter_map(|(name, text)| Some((name?.to_owned(), Json::from(text?))));
    Json::Object(named.collect())
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 => "HTTP/2",
        Version::Http3 => "HTTP/3",
    }
}

/// The time as in Apache's log: `02/Jan/2006:15:04:05 +0000`.
fn log_time(at: OffsetDateTime) -> String {
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second) = at.to_hms();
    let month = month.to_string();
    let month = month.get(..3).unwrap_or_default();
    format!("{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000")
}

//! Responses that the gateway makes itself, for plugins and the engine.

use super::engine::grpc_status;
use super::exchange::{Exchange, Source};
use bytes::Bytes;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use weir_http1::{Headers, Known};

/// A response made by the gateway.
#[derive(Debug, Clone)]
pub struct LocalResponse {
    /// Its status.
    pub status: u16,
    /// The headers of a cached response.
    pub cached_headers: Option<Arc<Headers>>,
    pub(crate) headers: Vec<(Cow<'static, str>, Vec<u8>)>,
    pub(crate) body: Body,
    /// Whether the client has gone: the status is only for the log.
    pub client_gone: bool,
    /// Whether something failed; false if a plugin decided.
    pub failed: bool,
    /// The gRPC status, if the HTTP status does not determine it.
    pub grpc_status: Option<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// Kong's error template, in the form that the client accepts.
    Template(String),
    Raw(Option<Cow<'static, str>>, Bytes),
}

impl LocalResponse {
    /// An error in Kong's template: JSON, text, HTML or XML by `Accept`, with the request's id.
    pub fn error(status: u16, message: &str) -> Self {
        Self::new(status, Body::Template(message.to_owned()))
    }

    /// `{"message":"…"}`, whatever the client accepts.
    pub fn message(status: u16, message: &str) -> Self {
        let body = format!("{{\"message\":{}}}", serde_json::Value::from(message));
        Self::raw(status, Some("application/json; charset=utf-8"), body)
    }

    /// A body as it is. Shared [`Bytes`] are not copied.
    pub fn raw(status: u16, content_type: Option<&str>, body: impl Into<Bytes>) -> Self {
        Self::new(status, Body::Raw(content_type.map(|text| text.to_owned().into()), body.into()))
    }

    /// A cached response: its headers and body are shared, not copied.
    pub fn cached(status: u16, headers: Arc<Headers>, body: Bytes) -> Self {
        Self { cached_headers: Some(headers), ..Self::new(status, Body::Raw(None, body)) }
    }

    fn new(status: u16, body: Body) -> Self {
        // An interim status ends no exchange: the client would wait for another response.
        let status = if status < 200 { 500 } else { status };
        let (cached_headers, headers, grpc_status) = (None, Vec::new(), None);
        Self { status, cached_headers, headers, body, client_gone: false, failed: false, grpc_status }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<Cow<'static, str>>, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.into(), value.as_ref().to_vec()));
        self
    }

    /// The message in its body, if it has one.
    pub fn message_text(&self) -> Option<String> {
        match &self.body {
            Body::Template(message) => Some(message.clone()),
            Body::Raw(_, body) => {
                let body: serde_json::Value = serde_json::from_slice(body).ok()?;
                Some(body.get("message")?.as_str()?.to_owned())
            }
        }
    }

    /// Makes this the exchange's response, and returns its body.
    pub fn write(self, exchange: &mut Exchange) -> Bytes {
        exchange.source = Source::Kong;
        let message = if grpc_status::is_call(exchange) { Some(self.message_text()) } else { None };
        let (content_type, body) = match self.body {
            Body::Raw(content_type, body) => (content_type, body),
            Body::Template(message) => {
                let form = Form::accepted(exchange.header(Known::Accept));
                (Some(form.content_type().into()), form.render(&message, exchange.id()).into())
            }
        };
        let response = &mut exchange.response;
        response.clear();
        response.status = final_status(self.status);
        if let Some(cached) = &self.cached_headers {
            response.headers.clone_from(cached);
        }
        if let Some(content_type) = content_type {
            response.headers.append("Content-Type", content_type.as_bytes());
        }
        for (name, value) in &self.headers {
            response.headers.append(&**name, value);
        }
        let Some(message) = message else { return body };
        let code = self.grpc_status.unwrap_or_else(|| grpc_status::code(self.status));
        grpc_status::say(&mut response.headers, code, message.as_deref());
        Bytes::new()
    }
}

/// The status of a final response. Any other that a plugin sets becomes 500, because a client would take the next response
/// for this one.
pub fn final_status(status: u16) -> u16 {
    if (200..=999).contains(&status) {
        return status;
    }
    tracing::error!(
        status,
        "a plugin has set a status that is not of a final response; set one from 200 to 599"
    );
    500
}

/// The forms of Kong's error template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Text,
    Html,
    Xml,
}

impl Form {
    /// The form of highest quality in `Accept`; JSON where nothing else is asked for.
    fn accepted(accept: Option<&[u8]>) -> Self {
        let accept = accept.and_then(|accept| std::str::from_utf8(accept).ok()).unwrap_or_default();
        let mut best = (0.0, Form::Json);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let form = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
                "application/json" | "application/*" | "*/*" => Form::Json,
                "text/plain" | "text/*" => Form::Text,
                "text/html" => Form::Html,
                "application/xml" | "text/xml" => Form::Xml,
                _ => continue,
            };
            let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
            if quality > best.0 {
                best = (quality, form);
            }
        }
        best.1
    }

    fn content_type(self) -> &'static str {
        match self {
            Form::Json => "application/json; charset=utf-8",
            Form::Text => "text/plain; charset=utf-8",
            Form::Html => "text/html; charset=utf-8",
            Form::Xml => "application/xml; charset=utf-8",
        }
    }

    fn render(self, message: &str, id: &str) -> String {
        match self {
            Form::Json => {
                let message = serde_json::Value::from(message);
                format!("{{\n  \"message\":{message},\n  \"request_id\":\"{id}\"\n}}")
            }
            Form::Text => format!("{message}\nrequest_id: {id}\n"),
            Form::Html => format!(
                "<!doctype html>\n<html>\n  <head>\n    <meta charset=\"utf-8\">\n    <title>Error</title>\n  </head>\n  \
                 <body>\n    <h1>Error</h1>\n    <p>{message}.</p>\n    <p>request_id: {id}</p>\n  </body>\n</html>\n",
                message = Escaped(message)
            ),
            Form::Xml => format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<error>\n  <message>{message}</message>\n  \
                 <requestid>{id}</requestid>\n</error>\n",
                message = Escaped(message)
            ),
        }
    }
}

struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::final_status;

    #[test]
    fn a_status_that_ends_no_response_becomes_500() {
        assert_eq!([7, 103, 199, 200, 599, 999, 1000].map(final_status), [500, 500, 500, 200, 599, 999, 500]);
    }
}

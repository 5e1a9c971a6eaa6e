//! Responses that the gateway makes itself, for plugins and the engine.

use super::grpc_status;
use super::{Exchange, Source};
use crate::error_templates::ErrorTemplates;
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::Arc;
use tokio::time::Instant;
use weir_http1::Headers;

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
    /// Whether another server made it, and the gateway passes it on.
    pub relayed: bool,
    /// The gRPC status, if the HTTP status does not determine it.
    pub grpc_status: Option<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// An error, as a template of the type that the client accepts renders it.
    Template {
        message: String,
        is_of_proxy: bool,
    },
    Raw(Option<Cow<'static, str>>, Bytes),
}

impl LocalResponse {
    /// An error in Kong's template: JSON, text, HTML or XML by `Accept`, with the request's id.
    pub fn error(status: u16, message: &str) -> Self {
        Self::new(status, Body::Template { message: message.to_owned(), is_of_proxy: false })
    }

    /// An error of the proxy itself, which nginx answers in Kong: `error_default_type` applies to it.
    pub fn proxy_error(status: u16, message: &str) -> Self {
        Self::new(status, Body::Template { message: message.to_owned(), is_of_proxy: true })
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
        Self {
            status,
            cached_headers: None,
            headers: Vec::new(),
            body,
            client_gone: false,
            failed: false,
            relayed: false,
            grpc_status: None,
        }
    }

    /// Says that another server made the response, which was asked at `asked`: the client sees that in `Via`, and logs
    /// count the time as that of an upstream.
    #[must_use]
    pub fn relayed(self, exchange: &mut Exchange, asked: Instant) -> Self {
        exchange.timing.upstream_start = Some(asked);
        exchange.timing.upstream_head = Some(Instant::now());
        Self { relayed: true, ..self }
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
            Body::Template { message, .. } => Some(message.clone()),
            Body::Raw(_, body) => {
                let body: serde_json::Value = serde_json::from_slice(body).ok()?;
                Some(body.get("message")?.as_str()?.to_owned())
            }
        }
    }

    /// Makes this the exchange's response, and returns its body.
    pub fn write(self, exchange: &mut Exchange, templates: &ErrorTemplates) -> Bytes {
        exchange.source = Source::Kong;
        let message = if grpc_status::is_call(exchange) { Some(self.message_text()) } else { None };
        let (content_type, body) = match self.body {
            Body::Raw(content_type, body) => (content_type, body),
            Body::Template { message, is_of_proxy } => {
                let header = |known| exchange.header(known);
                let (content_type, body) = templates.render((&message, exchange.id()), is_of_proxy, header);
                (Some(content_type.into()), body.into())
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

#[cfg(test)]
mod tests {
    use super::final_status;

    #[test]
    fn a_status_that_ends_no_response_becomes_500() {
        assert_eq!([7, 103, 199, 200, 599, 999, 1000].map(final_status), [500, 500, 500, 200, 599, 999, 500]);
    }
}

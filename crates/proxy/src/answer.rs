//! Every response that the gateway makes itself, whether a plugin's or an error's, becomes bytes here and only here.

use crate::grpc;
use crate::plugin::exchange::{Exchange, Source};
use bytes::Bytes;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use weir_http1::{Headers, Known, Reject};

/// The response to a request, whatever it is, that comes in clear where TLS is spoken.
pub(crate) const PLAIN_TO_TLS: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json; charset=utf-8\r\n\
     Content-Length: 59\r\nConnection: close\r\n\r\n{\"message\":\"The plain HTTP request was sent to HTTPS port\"}";

/// A response made by the gateway.
#[derive(Debug, Clone)]
pub struct Answer {
    pub(crate) status: u16,
    /// Those of a response that was kept.
    pub(crate) kept_headers: Option<Arc<Headers>>,
    pub(crate) headers: Vec<(Cow<'static, str>, Vec<u8>)>,
    pub(crate) body: Body,
    /// There is nobody to answer: the status is for the log alone.
    pub(crate) unheard: bool,
    /// Something failed, rather than a plugin having decided.
    pub(crate) failed: bool,
    /// What a gRPC call is answered with, where the status does not say it.
    pub(crate) grpc_status: Option<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// Kong's error template, in the form that the client accepts.
    Template(String),
    Raw(Option<Cow<'static, str>>, Bytes),
}

impl Answer {
    /// An error in Kong's template: JSON, text, HTML or XML by `Accept`, with the request's id.
    pub fn error(status: u16, message: &str) -> Self {
        Self::new(status, Body::Template(message.to_owned()))
    }

    /// `{"message":"…"}`, whatever the client accepts.
    pub fn message(status: u16, message: &str) -> Self {
        let body = format!("{{\"message\":{}}}", serde_json::Value::from(message));
        Self::raw(status, Some("application/json; charset=utf-8"), body)
    }

    /// A body as it is. One that others hold too, as [`Bytes`], is not copied.
    pub fn raw(status: u16, content_type: Option<&str>, body: impl Into<Bytes>) -> Self {
        Self::new(status, Body::Raw(content_type.map(|text| text.to_owned().into()), body.into()))
    }

    /// A response that was kept: its headers and body are shared with whoever keeps it.
    pub fn kept(status: u16, headers: Arc<Headers>, body: Bytes) -> Self {
        Self { kept_headers: Some(headers), ..Self::new(status, Body::Raw(None, body)) }
    }

    fn new(status: u16, body: Body) -> Self {
        let (kept_headers, headers, grpc_status) = (None, Vec::new(), None);
        Self { status, kept_headers, headers, body, unheard: false, failed: false, grpc_status }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<Cow<'static, str>>, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.into(), value.as_ref().to_vec()));
        self
    }

    /// The message in its body, if it has one.
    pub(crate) fn message_text(&self) -> Option<String> {
        match &self.body {
            Body::Template(message) => Some(message.clone()),
            Body::Raw(_, body) => {
                let body: serde_json::Value = serde_json::from_slice(body).ok()?;
                Some(body.get("message")?.as_str()?.to_owned())
            }
        }
    }

    /// Makes this the exchange's response, and returns its body.
    pub(crate) fn write(self, exchange: &mut Exchange) -> Bytes {
        exchange.source = Source::Kong;
        let message = if grpc::is_call(exchange) { Some(self.message_text()) } else { None };
        let (content_type, body) = match self.body {
            Body::Raw(content_type, body) => (content_type, body),
            Body::Template(message) => {
                let form = Form::accepted(exchange.header(Known::Accept));
                (Some(form.content_type().into()), form.render(&message, exchange.id()).into())
            }
        };
        let response = &mut exchange.response;
        response.status = self.status;
        response.headers.clear();
        if let Some(kept) = &self.kept_headers {
            response.headers.clone_from(kept);
        }
        if let Some(content_type) = content_type {
            response.headers.append("Content-Type", content_type.as_bytes());
        }
        for (name, value) in &self.headers {
            response.headers.append(&**name, value);
        }
        let Some(message) = message else { return body };
        let code = self.grpc_status.unwrap_or_else(|| grpc::code(self.status));
        grpc::say(&mut response.headers, code, message.as_deref());
        Bytes::new()
    }
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

/// Why an exchange could not be served as asked. Only this module says what the client sees of it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The client's message is ambiguous, malformed or too large.
    Rejected(Reject),
    /// The body is larger than `client_max_body_size`.
    BodyTooLarge,
    /// The client did not send its request in time.
    ClientTimeout,
    /// The client left.
    ClientGone,
    MethodNotAllowed,
    /// The request needs a connection that is made for its host.
    Misdirected,
    /// The gateway itself failed: a panic, which is a defect.
    Internal,
    NoRoute,
    NoService,
    /// The upstream has no target that may be used.
    NoPeer,
    /// The request asks to change the protocol, which no connection over HTTP/2 is used for.
    NoTunnel,
    NameResolution(String),
    Connect(std::io::Error),
    ConnectTimeout,
    /// The upstream closed or broke the connection before its response's head.
    UpstreamClosed(std::io::Error),
    /// The upstream reset the request's stream before its response's head.
    UpstreamReset(h2::Reason),
    /// The upstream's bytes are no HTTP response.
    UpstreamGarbage(Reject),
    UpstreamTimeout,
    /// The client's own time for the call is over.
    DeadlineExceeded,
    /// The node has no room for the request's body, which plugins are to read.
    NoRoomForRequest,
    /// The same of the upstream's response.
    NoRoomForResponse,
    /// A plugin refused the request's body on its way.
    Refused(Box<Answer>),
}

impl Failure {
    pub(crate) fn answer(&self) -> Answer {
        let (status, message) = match self {
            Failure::Refused(answer) => return Answer::clone(answer),
            Failure::Rejected(reject) => (reject.status(), rejection(reject.status())),
            Failure::BodyTooLarge => (413, "Payload too large"),
            Failure::ClientTimeout => (408, "Request timeout"),
            Failure::ClientGone => (499, "Client closed request"),
            Failure::MethodNotAllowed => (405, "Method not allowed"),
            Failure::Misdirected => (421, "Misdirected request"),
            Failure::Internal => (500, "An unexpected error occurred"),
            Failure::NoRoute => (404, "no Route matched with those values"),
            Failure::NoService => (503, "no Service found with those values"),
            Failure::NoPeer => (503, "failure to get a peer from the ring-balancer"),
            Failure::NoTunnel => (502, "The upstream server is not asked to change the protocol"),
            Failure::NameResolution(_) => (503, "name resolution failed"),
            Failure::Connect(_)
            | Failure::UpstreamClosed(_)
            | Failure::UpstreamReset(_)
            | Failure::UpstreamGarbage(_) => {
                (502, "An invalid response was received from the upstream server")
            }
            Failure::DeadlineExceeded => (504, "The time for the call is over"),
            Failure::ConnectTimeout | Failure::UpstreamTimeout => (504, "The upstream server is timing out"),
            Failure::NoRoomForRequest => (503, "The request's body cannot be held now"),
            Failure::NoRoomForResponse => (503, "The response's body cannot be held now"),
        };
        let unheard = matches!(self, Failure::ClientGone);
        let answer = Answer { unheard, failed: true, ..Answer::error(status, message) };
        match self {
            Failure::UpstreamReset(reason) => {
                Answer { grpc_status: Some(grpc::code_of_reset(*reason)), ..answer }
            }
            // Whoever has had the upstream asked is not invited to have it asked again.
            Failure::NoRoomForRequest => answer.header("Retry-After", "5"),
            _ => answer,
        }
    }
}

impl Failure {
    /// What logs call it, where the status does not say what failed.
    pub(crate) fn name(&self) -> Option<&'static str> {
        Some(match self {
            Failure::ClientGone => "client_closed",
            Failure::ClientTimeout => "client_timeout",
            Failure::NameResolution(_) => "name_resolution_failed",
            Failure::Connect(_) => "upstream_connect_failed",
            Failure::ConnectTimeout => "upstream_connect_timeout",
            Failure::UpstreamClosed(_) | Failure::UpstreamReset(_) => "upstream_closed",
            Failure::UpstreamGarbage(_) => "upstream_invalid_response",
            Failure::UpstreamTimeout => "upstream_timeout",
            Failure::DeadlineExceeded => "deadline_exceeded",
            Failure::NoPeer => "no_healthy_target",
            _ => return None,
        })
    }
}

fn rejection(status: u16) -> &'static str {
    match status {
        413 => "Payload too large",
        414 => "URI too long",
        417 => "Expectation failed",
        431 => "Request header or cookie too large",
        501 => "Not implemented",
        505 => "HTTP version not supported",
        _ => "Bad request",
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Rejected(reject) => write!(f, "the request was refused: {reject}"),
            Failure::NameResolution(why) => write!(f, "name resolution failed: {why}"),
            Failure::Connect(error) => write!(f, "connecting to the upstream failed: {error}"),
            Failure::UpstreamClosed(error) => write!(f, "the upstream closed the connection early: {error}"),
            Failure::UpstreamReset(reason) => write!(f, "the upstream reset the stream: {reason}"),
            Failure::UpstreamGarbage(reject) => write!(f, "the upstream's response was refused: {reject}"),
            Failure::Refused(answer) => write!(f, "a plugin refused the request's body with {}", answer.status),
            Failure::NoRoomForRequest | Failure::NoRoomForResponse => {
                f.write_str("there is no room for the body within mem_bodies_size")
            }
            Failure::BodyTooLarge => f.write_str("the request's body is larger than client_max_body_size"),
            Failure::ClientTimeout => f.write_str("the client did not send its request in time"),
            Failure::ClientGone => f.write_str("the client left"),
            Failure::MethodNotAllowed => f.write_str("the method is not proxied"),
            Failure::Misdirected => f.write_str("the connection was made for another host"),
            Failure::Internal => f.write_str("the gateway failed; this is a defect"),
            Failure::NoRoute => f.write_str("no route matched"),
            Failure::NoService => f.write_str("the route has no service, and no plugin answered"),
            Failure::NoPeer => f.write_str("the upstream has no target that may be asked"),
            Failure::NoTunnel => f.write_str(
                "changes of protocol, as WebSocket's, need HTTP/1.1, and the service is spoken to over HTTP/2 alone: \
                 lead them to a service without the tag weir-upstream-http2",
            ),
            Failure::ConnectTimeout => {
                f.write_str("connecting to the upstream took longer than connect_timeout")
            }
            Failure::DeadlineExceeded => f.write_str("the call took longer than its grpc-timeout"),
            Failure::UpstreamTimeout => {
                f.write_str("the upstream took longer than read_timeout or write_timeout")
            }
        }
    }
}

//! Every response that the gateway makes itself, whether a plugin's or an error's, becomes bytes here and only here.

use crate::exchange::Exchange;
use crate::pipeline::grpc;
use std::fmt;
use weir_http1::ParseError;
use weir_plugin::Answer;
use weir_upstream::UpstreamError;

/// The response to a request, whatever it is, that comes in clear where TLS is spoken.
pub(crate) const PLAIN_TO_TLS: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json; charset=utf-8\r\n\
     Content-Length: 59\r\nConnection: close\r\n\r\n{\"message\":\"The plain HTTP request was sent to HTTPS port\"}";

/// Why an exchange could not be served as asked. Only this module says what the client sees of it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The client's message is ambiguous, malformed or too large.
    Rejected(ParseError),
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
    /// The request asks to change the protocol, which no connection over HTTP/2 is used for.
    NoTunnel,
    /// The upstream gave no response, or no whole one.
    Upstream(UpstreamError),
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
            Failure::NoTunnel => (502, "The upstream server is not asked to change the protocol"),
            Failure::Upstream(error) => upstream_error(error),
            Failure::DeadlineExceeded => (504, "The time for the call is over"),
            Failure::NoRoomForRequest => (503, "The request's body cannot be held now"),
            Failure::NoRoomForResponse => (503, "The response's body cannot be held now"),
        };
        let unheard = matches!(self, Failure::ClientGone);
        let mut answer = Answer::error(status, message);
        (answer.unheard, answer.failed) = (unheard, true);
        match self {
            Failure::Upstream(UpstreamError::Reset(reason)) => {
                answer.grpc_status = Some(grpc::code_of_reset(*reason));
                answer
            }
            // Whoever has had the upstream asked is not invited to have it asked again.
            Failure::NoRoomForRequest => answer.header("Retry-After", "5"),
            _ => answer,
        }
    }
}

impl From<Box<Answer>> for Failure {
    fn from(refusal: Box<Answer>) -> Self {
        Failure::Refused(refusal)
    }
}

impl Failure {
    /// Has the exchange say what failed.
    pub(crate) fn note(&self, exchange: &mut Exchange) {
        if let Some(name) = self.name() {
            exchange.engine.set_error(name);
        }
    }

    /// What logs call it, where the status does not say what failed.
    pub(crate) fn name(&self) -> Option<&'static str> {
        Some(match self {
            Failure::ClientGone => "client_closed",
            Failure::ClientTimeout => "client_timeout",
            Failure::Upstream(error) => error.kind(),
            Failure::DeadlineExceeded => "deadline_exceeded",
            _ => return None,
        })
    }
}

impl From<UpstreamError> for Failure {
    fn from(error: UpstreamError) -> Self {
        Self::Upstream(error)
    }
}

/// Status and message as Kong has them.
fn upstream_error(error: &UpstreamError) -> (u16, &'static str) {
    match error {
        UpstreamError::NoTarget => (503, "failure to get a peer from the ring-balancer"),
        UpstreamError::NameResolution(_) => (503, "name resolution failed"),
        UpstreamError::Connect(_)
        | UpstreamError::Closed(_)
        | UpstreamError::Reset(_)
        | UpstreamError::InvalidResponse(_) => {
            (502, "An invalid response was received from the upstream server")
        }
        UpstreamError::ConnectTimeout | UpstreamError::Timeout => (504, "The upstream server is timing out"),
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
            Failure::Upstream(error) => error.fmt(f),
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
            Failure::NoTunnel => f.write_str(
                "changes of protocol, as WebSocket's, need HTTP/1.1, and the service is spoken to over HTTP/2 alone: \
                 lead them to a service without the tag weir-upstream-http2",
            ),
            Failure::DeadlineExceeded => f.write_str("the call took longer than its grpc-timeout"),
        }
    }
}

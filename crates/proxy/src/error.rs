//! The errors of a request, in one enum: the kind of each, the side that caused it, and the response that the client
//! gets.

use crate::limits::NodeLimit;
use h2::Reason;
use std::{fmt, io};
use weir_analytics::cause::Cause;
use weir_http1::ParseError;
use weir_plugin::engine::grpc_status::UNAVAILABLE;
use weir_plugin::{Exchange, LocalResponse};
use weir_upstream::UpstreamError;

/// Why an exchange could not be served as asked. Only this module says what the client sees of it.
#[derive(Debug)]
pub(crate) enum RequestError {
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
    /// The node has no memory for the request's body, which plugins are to read.
    NoMemoryForRequest,
    /// The same of the upstream's response.
    NoMemoryForResponse,
    /// A plugin refused the request's body on its way.
    Refused(Box<LocalResponse>),
    /// There are too many requests: this one is shed, so that the others are served.
    Overloaded(Overload),
}

/// What has too many requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overload {
    /// The upstream, or each of its targets.
    Upstream,
    /// The node.
    Node,
    /// The memory of the process.
    Memory,
}

/// After how many seconds a request that was shed may be sent again.
const RETRY_AFTER: &str = "1";

/// Whose side an error came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorOrigin {
    Client,
    Gateway,
    Upstream,
}

impl RequestError {
    /// Whose side it came from. What a plugin refuses is the client's.
    pub(crate) fn origin(&self) -> ErrorOrigin {
        match self {
            Self::Rejected(_)
            | Self::BodyTooLarge
            | Self::ClientTimeout
            | Self::ClientGone
            | Self::MethodNotAllowed
            | Self::Misdirected
            | Self::DeadlineExceeded
            | Self::Refused(_) => ErrorOrigin::Client,
            Self::Upstream(_) => ErrorOrigin::Upstream,
            Self::Internal
            | Self::NoRoute
            | Self::NoService
            | Self::NoTunnel
            | Self::NoMemoryForRequest
            | Self::NoMemoryForResponse
            | Self::Overloaded(_) => ErrorOrigin::Gateway,
        }
    }

    /// What analytics call it.
    pub(crate) fn cause(&self) -> Cause {
        match self {
            Self::Rejected(_) | Self::MethodNotAllowed | Self::Misdirected => Cause::Rejected,
            Self::BodyTooLarge => Cause::BodyTooLarge,
            Self::ClientTimeout => Cause::ClientTimeout,
            Self::ClientGone => Cause::ClientGone,
            Self::DeadlineExceeded => Cause::DeadlineExceeded,
            Self::Refused(_) => Cause::Plugin(0),
            Self::Upstream(error) => upstream_cause(error),
            Self::Internal => Cause::Internal,
            Self::NoRoute => Cause::NoRoute,
            Self::NoService => Cause::NoService,
            Self::NoTunnel => Cause::Local,
            Self::NoMemoryForRequest | Self::NoMemoryForResponse => Cause::NoMemory,
            Self::Overloaded(_) => Cause::Overload,
        }
    }

    /// The response that reports the error to the client.
    pub(crate) fn answer(&self) -> LocalResponse {
        let (status, message) = match self {
            RequestError::Refused(answer) => return LocalResponse::clone(answer),
            RequestError::Rejected(reject) => (reject.status(), rejection(*reject)),
            RequestError::BodyTooLarge => (413, "Payload too large"),
            RequestError::ClientTimeout => (408, "Request timeout"),
            RequestError::ClientGone => (499, "Client closed request"),
            RequestError::MethodNotAllowed => (405, "Method not allowed"),
            RequestError::Misdirected => (421, "Misdirected request"),
            RequestError::Internal => (500, "An unexpected error occurred"),
            RequestError::NoRoute => (404, "no Route matched with those values"),
            RequestError::NoService => (503, "no Service found with those values"),
            RequestError::NoTunnel => (502, "The upstream server is not asked to change the protocol"),
            RequestError::Upstream(error) => upstream_error(error),
            RequestError::DeadlineExceeded => (504, "The time for the call is over"),
            RequestError::NoMemoryForRequest => (503, "The request's body cannot be held now"),
            RequestError::NoMemoryForResponse => (503, "The response's body cannot be held now"),
            RequestError::Overloaded(Overload::Upstream) => (503, "The upstream has too many requests"),
            RequestError::Overloaded(Overload::Node) => (503, "The gateway has too many requests"),
            RequestError::Overloaded(Overload::Memory) => (503, "The gateway has no memory for the request"),
        };
        let client_gone = matches!(self, RequestError::ClientGone);
        let respond = if self.is_of_nginx() { LocalResponse::proxy_error } else { LocalResponse::error };
        let mut answer = respond(status, message);
        (answer.client_gone, answer.failed) = (client_gone, true);
        match self {
            RequestError::Upstream(UpstreamError::Reset(reason)) => {
                answer.grpc_status = Some(code_of_reset(*reason));
                answer
            }
            // Only these errors get `Retry-After`, because the upstream may have processed the other requests.
            RequestError::NoMemoryForRequest => answer.header("Retry-After", "5"),
            RequestError::Overloaded(_) => answer.header("Retry-After", RETRY_AFTER),
            _ => answer,
        }
    }
}

impl RequestError {
    /// Whether nginx answers it in Kong, rather than Kong's own code.
    fn is_of_nginx(&self) -> bool {
        !matches!(
            self,
            Self::Upstream(UpstreamError::NoTarget | UpstreamError::NameResolution(_))
                | Self::NoRoute
                | Self::NoService
                | Self::NoMemoryForRequest
                | Self::NoMemoryForResponse
                | Self::Overloaded(_)
        )
    }
}

impl From<Box<LocalResponse>> for RequestError {
    fn from(refusal: Box<LocalResponse>) -> Self {
        RequestError::Refused(refusal)
    }
}

impl RequestError {
    /// The limit of the node that the client has met, if it is one that this says.
    pub(crate) fn limit(&self) -> Option<NodeLimit> {
        use ParseError::{
            ChunkOverhead, FieldTooLarge, HeadTooLarge, TargetTooLong, TooManyFields, TrailersTooLarge,
        };
        match self {
            Self::Rejected(
                HeadTooLarge | FieldTooLarge | TargetTooLong | TooManyFields | TrailersTooLarge,
            ) => Some(NodeLimit::HeadSize),
            Self::BodyTooLarge | Self::Rejected(ChunkOverhead) => Some(NodeLimit::BodySize),
            Self::ClientTimeout => Some(NodeLimit::BodyTime),
            _ => None,
        }
    }

    /// Has the exchange say what failed.
    pub(crate) fn note(&self, exchange: &mut Exchange) {
        if let Some(name) = self.kind() {
            exchange.engine.set_error(name);
        }
    }

    /// Its kind, as logs name it, where the status does not say what failed.
    pub(crate) fn kind(&self) -> Option<&'static str> {
        Some(match self {
            RequestError::ClientGone => "client_closed",
            RequestError::ClientTimeout => "client_timeout",
            RequestError::Upstream(error) => error.kind(),
            RequestError::DeadlineExceeded => "deadline_exceeded",
            RequestError::Overloaded(_) => "overload",
            _ => return None,
        })
    }
}

impl From<UpstreamError> for RequestError {
    fn from(error: UpstreamError) -> Self {
        Self::Upstream(error)
    }
}

/// What analytics call a failure of an upstream.
pub(crate) fn upstream_cause(error: &UpstreamError) -> Cause {
    match error {
        UpstreamError::NoTarget => Cause::NoTarget,
        UpstreamError::NameResolution(_) => Cause::Dns,
        UpstreamError::Connect(error) if error.get_ref().is_some_and(|it| it.is::<rustls::Error>()) => {
            Cause::Tls
        }
        UpstreamError::Connect(_) => Cause::Connect,
        UpstreamError::ConnectTimeout => Cause::ConnectTimeout,
        UpstreamError::Closed(_) | UpstreamError::Reset(_) => Cause::Reset,
        UpstreamError::InvalidResponse(_) => Cause::InvalidResponse,
        UpstreamError::Timeout => Cause::Timeout,
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

fn rejection(reject: ParseError) -> &'static str {
    match reject.status() {
        400 if matches!(reject, ParseError::HeadTooLarge | ParseError::FieldTooLarge) => {
            "Request header or cookie too large"
        }
        413 => "Payload too large",
        414 => "URI too long",
        417 => "Expectation failed",
        431 => "Request header or cookie too large",
        501 => "Not implemented",
        505 => "HTTP version not supported",
        _ => "Bad request",
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Rejected(reject) => write!(f, "the request was refused: {reject}"),
            RequestError::Upstream(error) => error.fmt(f),
            RequestError::Refused(answer) => write!(f, "a plugin refused the request's body with {}", answer.status),
            RequestError::NoMemoryForRequest | RequestError::NoMemoryForResponse => {
                f.write_str("there is no room for the body within mem_bodies_size")
            }
            RequestError::Overloaded(Overload::Upstream) => f.write_str(
                "the request was shed, because the upstream has as many requests as weir-adaptive-concurrency, \
                 weir-max-requests or weir-target-max-requests allow",
            ),
            RequestError::Overloaded(Overload::Node) => {
                f.write_str("the request was shed, because the worker has as many as worker_requests_in_flight allows")
            }
            RequestError::Overloaded(Overload::Memory) => {
                f.write_str("the request was shed, because the process uses more memory than memory_limit")
            }
            RequestError::BodyTooLarge => f.write_str("the request's body is larger than client_max_body_size"),
            RequestError::ClientTimeout => f.write_str("the client did not send its request in time"),
            RequestError::ClientGone => f.write_str("the client left"),
            RequestError::MethodNotAllowed => f.write_str("the method is not proxied"),
            RequestError::Misdirected => f.write_str("the connection was made for another host"),
            RequestError::Internal => f.write_str("the gateway failed; this is a defect"),
            RequestError::NoRoute => f.write_str("no route matched"),
            RequestError::NoService => f.write_str("the route has no service, and no plugin answered"),
            RequestError::NoTunnel => f.write_str(
                "changes of protocol, as WebSocket's, need HTTP/1.1, and the service is spoken to over HTTP/2 alone: \
                 lead them to a service without the tag weir-upstream-http2",
            ),
            RequestError::DeadlineExceeded => f.write_str("the call took longer than its grpc-timeout"),
        }
    }
}

/// Why a response that had begun could not be completed. The client sees its connection close, never a whole message.
#[derive(Debug)]
pub(crate) enum RelayError {
    Client(io::Error),
    Garbage(ParseError),
    Truncated,
    /// The upstream reset the stream.
    Reset(Reason),
    /// Nothing moved for too long: what did not, and which setting limits that.
    Timeout(&'static str),
    /// The client's own time for the call is over.
    Deadline,
    /// The node has no memory for a body that plugins replace. Nothing of it was sent.
    BodyMemoryExhausted,
}

impl std::fmt::Display for RelayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RelayError::Client(error) => write!(f, "the client took no more of the response: {error}"),
            RelayError::Garbage(reject) => write!(f, "the response's body was refused: {reject}"),
            RelayError::Truncated => f.write_str("the upstream closed the connection within a response"),
            RelayError::Reset(reason) => {
                write!(f, "the upstream reset the stream within a response: {reason}")
            }
            RelayError::Deadline => write!(f, "{}", RequestError::DeadlineExceeded),
            RelayError::BodyMemoryExhausted => write!(f, "{}", RequestError::NoMemoryForResponse),
            RelayError::Timeout(what) => write!(f, "a response was cut off: {what} allows"),
        }
    }
}

/// gRPC's code for a stream that the upstream reset; the table is gRPC's own, in its description of HTTP/2.
pub(crate) fn code_of_reset(reason: Reason) -> u8 {
    match reason {
        Reason::CANCEL => 1,
        Reason::INADEQUATE_SECURITY => 7,
        Reason::ENHANCE_YOUR_CALM => 8,
        Reason::REFUSED_STREAM => UNAVAILABLE,
        Reason::NO_ERROR
        | Reason::PROTOCOL_ERROR
        | Reason::INTERNAL_ERROR
        | Reason::FLOW_CONTROL_ERROR
        | Reason::SETTINGS_TIMEOUT
        | Reason::FRAME_SIZE_ERROR
        | Reason::COMPRESSION_ERROR
        | Reason::CONNECT_ERROR => 13,
        _ => 2,
    }
}

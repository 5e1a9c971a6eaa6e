//! A client for gRPC calls to other servers, unary or with a stream of replies, for tasks off the request path.

use crate::http_client::{Connector, with_causes};
use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::fmt;
use std::time::Duration;
use weir_net::dialer::Dialer;

/// The longest reply, unless a client has another limit.
const MAX_REPLY_LEN: usize = 1024 * 1024;

/// How often a server that owes replies is asked whether it is there, and how long it may take to say so.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The prefix of each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

const UNKNOWN: u32 = 2;

/// A client for gRPC, plaintext and TLS, with a connection pool.
#[derive(Clone)]
pub struct GrpcClient {
    client: Client<Connector, Full<Bytes>>,
    max_reply_len: usize,
}

/// The replies of one call.
pub struct GrpcStream {
    body: Incoming,
    received: BytesMut,
    max_reply_len: usize,
}

/// Why there is no reply.
#[derive(Debug, PartialEq, Eq)]
pub enum CallError {
    /// It took too long.
    Timeout,
    /// The connection failed.
    Failed(String),
    /// The server returned an error.
    Status {
        /// gRPC's code, not 0.
        code: u32,
        /// The message.
        message: String,
    },
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("the server took too long"),
            Self::Failed(why) => f.write_str(why),
            Self::Status { code, message } => write!(f, "the server says: gRPC status {code} {message}"),
        }
    }
}

impl std::error::Error for CallError {}

impl GrpcClient {
    /// A client that connects with this dialer.
    pub fn new(dialer: Dialer) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).timer(TokioTimer::new()).http2_only(true);
        builder.http2_keep_alive_interval(KEEP_ALIVE).http2_keep_alive_timeout(KEEP_ALIVE);
        Self { client: builder.build(Connector::new(dialer.with_alpn(b"h2"))), max_reply_len: MAX_REPLY_LEN }
    }

    /// The same client, with this limit of replies, in bytes.
    pub fn with_max_reply_len(self, max_reply_len: usize) -> Self {
        Self { max_reply_len, ..self }
    }

    /// Calls the method of an absolute URL, with metadata. Returns the reply.
    pub async fn call(
        &self,
        method: Uri,
        metadata: HeaderMap,
        message: &[u8],
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        let mut request = request(method, metadata, message);
        if let Ok(timeout) = HeaderValue::from_str(&format!("{}m", timeout.as_millis().min(99_999_999))) {
            request.headers_mut().insert(HeaderName::from_static("grpc-timeout"), timeout);
        }
        let called = async {
            let Some(body) = accepted(self.client.request(request).await)? else { return Ok(Bytes::new()) };
            let limited = Limited::new(body, self.max_reply_len);
            let reply = limited.collect().await.map_err(|error| failed(&*error))?;
            well(reply.trailers().unwrap_or(&HeaderMap::new()), StatusCode::OK)?;
            unframed(reply)
        };
        tokio::time::timeout(timeout, called).await.unwrap_or(Err(CallError::Timeout))
    }

    /// Calls a method with a stream of replies; returns once the server begins to reply, which it has this long for.
    /// The stream itself may last for ever.
    pub async fn stream(
        &self,
        method: Uri,
        metadata: HeaderMap,
        message: &[u8],
        timeout: Duration,
    ) -> Result<GrpcStream, CallError> {
        let called = self.client.request(request(method, metadata, message));
        let response = tokio::time::timeout(timeout, called).await.map_err(|_| CallError::Timeout)?;
        let Some(body) = accepted(response)? else {
            return Err(CallError::Failed("the server sends no replies".to_owned()));
        };
        Ok(GrpcStream { body, received: BytesMut::new(), max_reply_len: self.max_reply_len })
    }
}

impl GrpcStream {
    /// The next reply; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            let Some(frame) = self.body.frame().await else { return self.end() };
            match frame.map_err(|error| failed(&error))?.into_data() {
                Ok(data) => self.received.extend_from_slice(&data),
                Err(frame) => well(frame.trailers_ref().unwrap_or(&HeaderMap::new()), StatusCode::OK)?,
            }
        }
    }

    /// A whole message of what was received.
    fn take(&mut self) -> Result<Option<Bytes>, CallError> {
        let Some(length) = length(&self.received) else { return Ok(None) };
        if length > self.max_reply_len || self.received[0] != 0 {
            return Err(not_a_message());
        }
        if self.received.len() < PREFIX + length {
            return Ok(None);
        }
        self.received.advance(PREFIX);
        Ok(Some(self.received.split_to(length).freeze()))
    }

    fn end(&self) -> Result<Option<Bytes>, CallError> {
        if self.received.is_empty() { Ok(None) } else { Err(not_a_message()) }
    }
}

fn request(method: Uri, metadata: HeaderMap, message: &[u8]) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(framed(message)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = method;
    *request.headers_mut() = metadata;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    request
}

/// The body of a response; none if the call succeeded without a reply, whose status is in the head.
fn accepted<E: std::error::Error + 'static>(
    response: Result<Response<Incoming>, E>,
) -> Result<Option<Incoming>, CallError> {
    let (head, body) = response.map_err(|error| failed(&error))?.into_parts();
    if head.status != StatusCode::OK || head.headers.contains_key("grpc-status") {
        return well(&head.headers, head.status).map(|()| None);
    }
    Ok(Some(body))
}

fn failed(error: &(dyn std::error::Error + 'static)) -> CallError {
    CallError::Failed(with_causes(error))
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), message].concat().into()
}

fn unframed(reply: Collected<Bytes>) -> Result<Bytes, CallError> {
    let mut reply = reply.to_bytes();
    match length(&reply) {
        Some(length) if reply[0] == 0 && reply.len() == PREFIX + length => Ok(reply.split_off(PREFIX)),
        _ => Err(not_a_message()),
    }
}

/// The length of the message that begins here, once its prefix is whole.
fn length(received: &[u8]) -> Option<usize> {
    let length = received.get(1..PREFIX)?;
    Some(length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
}

fn not_a_message() -> CallError {
    CallError::Failed("the server's reply is not a gRPC message, or too long".to_owned())
}

/// Whether a call succeeded, by the gRPC status, or by the HTTP status if there is none.
fn well(fields: &HeaderMap, status: StatusCode) -> Result<(), CallError> {
    let text = |name: &str| fields.get(name).and_then(|value| value.to_str().ok());
    let code = text("grpc-status").and_then(|code| code.parse().ok());
    match code.unwrap_or_else(|| of_http(status)) {
        0 => Ok(()),
        code => {
            let message = text("grpc-message").map_or_else(|| format!("(HTTP {status})"), str::to_owned);
            Err(CallError::Status { code, message })
        }
    }
}

/// The gRPC code for an HTTP response without one.
fn of_http(status: StatusCode) -> u32 {
    match status.as_u16() {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502..=504 => 14,
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_call_went_is_said_by_fields_or_by_the_status_of_http() {
        let fields = |fields: &[(&'static str, &'static str)]| {
            let pair = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            fields.iter().map(pair).collect::<HeaderMap>()
        };
        assert_eq!(well(&fields(&[("grpc-status", "0")]), StatusCode::OK), Ok(()));
        let said = well(&fields(&[("grpc-status", "3"), ("grpc-message", "a bad span")]), StatusCode::OK);
        assert_eq!(said, Err(CallError::Status { code: 3, message: "a bad span".to_owned() }));
        for (status, code) in [(200, 2), (404, 12), (429, 14), (500, 2), (503, 14)] {
            let said = well(&HeaderMap::new(), StatusCode::from_u16(status).unwrap());
            assert!(
                matches!(said, Err(CallError::Status { code: found, .. }) if found == code),
                "{status}: {said:?}"
            );
        }
    }
}

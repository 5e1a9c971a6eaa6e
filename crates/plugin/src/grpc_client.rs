//! A client for unary gRPC calls to other servers, for tasks off the request path.

use crate::http_client::{Connector, with_causes};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::fmt;
use std::time::Duration;
use weir_net::dialer::Dialer;

/// The longest reply.
const MAX_REPLY_LEN: usize = 1024 * 1024;

/// The prefix of each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

const UNKNOWN: u32 = 2;

/// A client for gRPC, plaintext and TLS, with a connection pool.
#[derive(Clone)]
pub struct GrpcClient(Client<Connector, Full<Bytes>>);

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
        Self(builder.build(Connector(dialer.with_alpn(b"h2"))))
    }

    /// Calls the method of an absolute URL, with metadata. Returns the reply.
    pub async fn call(
        &self,
        method: Uri,
        metadata: HeaderMap,
        message: &[u8],
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        let mut request = Request::new(Full::new(framed(message)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = method;
        *request.headers_mut() = metadata;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
        if let Ok(timeout) = HeaderValue::from_str(&format!("{}m", timeout.as_millis().min(99_999_999))) {
            request.headers_mut().insert(HeaderName::from_static("grpc-timeout"), timeout);
        }
        let called = async {
            let response = self.0.request(request).await.map_err(|error| failed(&error))?;
            let (head, body) = response.into_parts();
            // A server without a message sends the status in the head.
            if head.status != StatusCode::OK || head.headers.contains_key("grpc-status") {
                well(&head.headers, head.status)?;
                return Ok(Bytes::new());
            }
            let reply = Limited::new(body, MAX_REPLY_LEN).collect().await.map_err(|error| failed(&*error))?;
            well(reply.trailers().unwrap_or(&HeaderMap::new()), head.status)?;
            unframed(reply)
        };
        tokio::time::timeout(timeout, called).await.unwrap_or(Err(CallError::Timeout))
    }
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
    let length =
        reply.get(1..PREFIX).map(|bytes| bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)));
    match length {
        Some(length) if reply[0] == 0 && reply.len() == PREFIX + length => Ok(reply.split_off(PREFIX)),
        _ => Err(CallError::Failed("the server's reply is not a gRPC message".to_owned())),
    }
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

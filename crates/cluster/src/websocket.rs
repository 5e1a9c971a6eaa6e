//! The subset of WebSocket that nodes of Kong understand: a message is one frame, and nothing is compressed.
use crate::connect::{Connection, Endpoint};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use std::fmt;
use std::io;
use std::time::Duration;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::http::{Response, header};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message as Frame, http};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

/// What carries frames: a WebSocket, or memory.
pub(crate) trait Frames:
    Stream<Item = Result<Frame, Error>> + Sink<Frame, Error = Error> + Unpin
{
}

impl<S: Stream<Item = Result<Frame, Error>> + Sink<Frame, Error = Error> + Unpin> Frames for S {}

/// The name of Weir's own protocol, as a subprotocol of WebSocket.
pub(crate) const SUBPROTOCOL: &str = "weir.sync.v1";

/// How much of a connection is buffered before it is parsed. Thousands of connections are idle most of the time.
const BUFFER_LEN: usize = 4 * 1024;

/// How long a peer may take to answer that the connection ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How much of the reason in a response is shown.
const MAX_REASON_LEN: usize = 512;

/// The configuration of a connection whose peer may send messages up to this length.
pub(crate) fn config(max_payload: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(BUFFER_LEN)
        .write_buffer_size(BUFFER_LEN)
        .max_message_size(Some(max_payload))
        .max_frame_size(Some(max_payload))
}

/// Why a control plane does not open a WebSocket.
#[derive(Debug)]
pub(crate) struct UpgradeError {
    /// What happened.
    message: String,
    /// When to come back, in seconds, if it says so.
    pub(crate) retry_after: Option<u64>,
    /// The status of the response, if there is one.
    status: Option<u16>,
}

impl UpgradeError {
    /// Whether another protocol may be taken: the control plane neither refuses the data plane nor is overloaded.
    pub(crate) fn is_about_protocol(&self) -> bool {
        !matches!(self.status, Some(401 | 403 | 429 | 503))
    }

    /// Whether something else than a control plane answers.
    pub(crate) fn is_about_port(&self) -> bool {
        self.status == Some(404)
    }
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Opens a WebSocket at a path of a control plane, without extensions.
pub(crate) async fn open(
    connection: Connection,
    to: &Endpoint,
    path_and_query: &str,
    subprotocols: Option<&str>,
    max_payload: usize,
) -> Result<(WebSocketStream<Connection>, Option<String>), UpgradeError> {
    let failed = |message: String| UpgradeError { message, retry_after: None, status: None };
    let request = format!("wss://{to}{path_and_query}").into_client_request();
    let mut request = request.map_err(|error| failed(error.to_string()))?;
    if let Some(value) = subprotocols.and_then(|names| http::HeaderValue::from_str(names).ok()) {
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, value);
    }
    match client_async_with_config(request, connection, Some(config(max_payload))).await {
        Ok((stream, response)) => {
            let chosen = response.headers().get(header::SEC_WEBSOCKET_PROTOCOL);
            let chosen = chosen.and_then(|value| value.to_str().ok()).map(str::to_owned);
            Ok((stream, chosen))
        }
        Err(Error::Http(response)) => Err(refused(&response)),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn refused(response: &Response<Option<Vec<u8>>>) -> UpgradeError {
    let retry_after = response.headers().get(header::RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok());
    let body = response.body().as_deref().unwrap_or_default();
    let body = String::from_utf8_lossy(&body[..body.len().min(MAX_REASON_LEN)]).trim().to_owned();
    let separator = if body.is_empty() { "" } else { ": " };
    let status = response.status();
    let message = format!("the control plane answers {status}{separator}{body}");
    UpgradeError { message, retry_after, status: Some(status.as_u16()) }
}

/// Closes a connection because the node stops; waits until the peer has seen it, but not for long.
pub(crate) async fn close(stream: &mut impl Frames) {
    let frame = CloseFrame { code: CloseCode::Away, reason: "the node stops".into() };
    let closed = async {
        if stream.send(Frame::Close(Some(frame))).await.is_ok() {
            while let Some(Ok(_)) = stream.next().await {}
        }
    };
    // The connection ends, whether the peer has answered or not.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
}

/// An error of a connection as text for the log.
pub(crate) fn explained(error: &Error, max_payload: usize) -> String {
    match error {
        Error::Capacity(CapacityError::MessageTooLong { size, .. }) => format!(
            "a message of {size} bytes is longer than cluster_max_payload ({max_payload}): increase that on both sides"
        ),
        Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the connection was cut".to_owned()
        }
        error => error.to_string(),
    }
}

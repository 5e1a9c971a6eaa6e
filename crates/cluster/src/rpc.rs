//! JSON-RPC over a WebSocket, as both sides of Kong's second protocol speak it: calls in both directions, and the pings that
//! show that the other side is there.
use crate::websocket;
use crate::wire::v1::MessageError;
use crate::wire::v2::{Message, RpcError, decode, encode};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message as Frame};

/// After how long without a message the other side is pinged.
const PING_AFTER: Duration = Duration::from_secs(30);

/// After how long without a message the other side counts as lost; no message may take longer to be sent.
const LOST_AFTER: Duration = Duration::from_secs(45);

/// How long the other side may take to answer a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// How many messages may come in one list.
const MAX_BATCH: usize = 4096;

/// How much longer a message may be than its frame. Snappy does not reach it.
const MAX_INFLATION: usize = 32;

/// A connection. `C` says what a call that was sent is for.
pub(crate) struct RpcSocket<S, C> {
    stream: WebSocketStream<S>,
    /// The longest message, decompressed.
    max_message: usize,
    calls: HashMap<u64, (C, Instant)>,
    next_id: u64,
    /// What came in one list and has not been taken yet.
    received: VecDeque<Message>,
    /// The length of the last frame.
    frame_len: usize,
    heard: Instant,
    pinged: bool,
}

/// What the other side wants, or says.
#[derive(Debug)]
pub(crate) enum Event<C> {
    /// A call; without an id it is not answered.
    Called { method: String, params: Vec<Value>, id: Option<Value> },
    /// The answer to a call.
    Answered(C, Result<Value, RpcError>),
}

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum RpcEnd {
    Closed,
    /// This side stops.
    Stopped,
    Silent,
    NotBinary,
    Batch,
    Message(MessageError),
    Socket(Error),
}

impl RpcEnd {
    /// As text for the log. `peer` is what the other side is called there.
    pub(crate) fn explained(&self, peer: &str, max_payload: usize) -> String {
        match self {
            RpcEnd::Closed => format!("{peer} closed the connection"),
            RpcEnd::Stopped => "the node stops".to_owned(),
            RpcEnd::Silent => format!("{peer} was silent for {} s", LOST_AFTER.as_secs()),
            RpcEnd::NotBinary => format!("{peer} sent a text message"),
            RpcEnd::Batch => format!("{peer} sent more than {MAX_BATCH} messages at once"),
            RpcEnd::Message(error) => error.to_string(),
            RpcEnd::Socket(error) => websocket::explained(error, max_payload),
        }
    }
}

impl From<Error> for RpcEnd {
    fn from(error: Error) -> RpcEnd {
        RpcEnd::Socket(error)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, C> RpcSocket<S, C> {
    /// After both sides have introduced themselves.
    pub(crate) fn new(stream: WebSocketStream<S>, max_message: usize) -> RpcSocket<S, C> {
        RpcSocket {
            stream,
            max_message,
            calls: HashMap::new(),
            next_id: 0,
            received: VecDeque::new(),
            frame_len: 0,
            heard: Instant::now(),
            pinged: false,
        }
    }

    /// Waits for what the other side says next. May be dropped while it waits.
    pub(crate) async fn next(&mut self) -> Result<Event<C>, RpcEnd> {
        loop {
            if let Some(message) = self.received.pop_front() {
                match self.event(message) {
                    Some(event) => return Ok(event),
                    None => continue,
                }
            }
            if let Some(event) = self.expired() {
                return Ok(event);
            }
            let wake_at = self.wake_at();
            tokio::select! {
                frame = self.stream.next() => {
                    let frame = frame.ok_or(RpcEnd::Closed)??;
                    self.receive(frame)?;
                    // Sends the answer to a ping.
                    self.stream.flush().await?;
                }
                () = sleep_until(wake_at) => self.keep_alive().await?,
            }
        }
    }

    /// The length of the frame that the last event came in.
    pub(crate) fn frame_len(&self) -> usize {
        self.frame_len
    }

    /// Calls a method of the other side.
    pub(crate) async fn call(&mut self, method: &str, params: Vec<Value>, what: C) -> Result<(), RpcEnd> {
        let id = self.next_id;
        self.next_id += 1;
        self.calls.insert(id, (what, Instant::now() + CALL_TIMEOUT));
        self.send_message(&Message::Call { method: method.to_owned(), params, id: Some(id.into()) }).await
    }

    /// Calls a method and wants no answer.
    pub(crate) async fn notify(&mut self, method: &str, params: Vec<Value>) -> Result<(), RpcEnd> {
        self.send_message(&Message::Call { method: method.to_owned(), params, id: None }).await
    }

    /// Answers a call, if it wants an answer.
    pub(crate) async fn answer(
        &mut self,
        id: Option<Value>,
        outcome: Result<Value, RpcError>,
    ) -> Result<(), RpcEnd> {
        match (id, outcome) {
            (None, _) => Ok(()),
            (Some(id), Ok(result)) => self.send_message(&Message::Result { id, result }).await,
            (Some(id), Err(error)) => self.send_message(&Message::Error { id, error }).await,
        }
    }

    /// Sends a message that is encoded already.
    pub(crate) async fn send(&mut self, frame: Bytes) -> Result<(), RpcEnd> {
        send(&mut self.stream, frame).await.map_err(RpcEnd::Socket)
    }

    /// Closes the connection because this side stops.
    pub(crate) async fn close(&mut self) -> RpcEnd {
        websocket::close(&mut self.stream).await;
        RpcEnd::Stopped
    }

    async fn send_message(&mut self, message: &Message) -> Result<(), RpcEnd> {
        let frame = encode(message).map_err(RpcEnd::Message)?;
        self.send(frame.into()).await
    }

    fn receive(&mut self, frame: Frame) -> Result<(), RpcEnd> {
        (self.heard, self.pinged) = (Instant::now(), false);
        let bytes = match frame {
            Frame::Binary(bytes) => bytes,
            Frame::Close(_) => return Err(RpcEnd::Closed),
            Frame::Ping(_) | Frame::Pong(_) => return Ok(()),
            Frame::Text(_) | Frame::Frame(_) => return Err(RpcEnd::NotBinary),
        };
        self.frame_len = bytes.len();
        let limit = self.max_message.min(bytes.len().saturating_mul(MAX_INFLATION));
        let messages = decode(&bytes, limit).map_err(RpcEnd::Message)?;
        if messages.len() > MAX_BATCH {
            return Err(RpcEnd::Batch);
        }
        self.received.extend(messages);
        Ok(())
    }

    /// What a message means; none if it answers no call.
    fn event(&mut self, message: Message) -> Option<Event<C>> {
        let (id, outcome) = match message {
            Message::Call { method, params, id } => return Some(Event::Called { method, params, id }),
            Message::Result { id, result } => (id, Ok(result)),
            Message::Error { id, error } => (id, Err(error)),
        };
        let called = id.as_u64().and_then(|id| self.calls.remove(&id));
        if called.is_none() {
            tracing::debug!("an answer to no call is dropped");
        }
        called.map(|(what, _)| Event::Answered(what, outcome))
    }

    /// A call that has taken too long.
    fn expired(&mut self) -> Option<Event<C>> {
        let now = Instant::now();
        let id = self.calls.iter().find(|(_, (_, at))| *at <= now).map(|(id, _)| *id)?;
        let (what, _) = self.calls.remove(&id)?;
        let message = format!("no answer within {} s", CALL_TIMEOUT.as_secs());
        Some(Event::Answered(what, Err(RpcError::failed(&message))))
    }

    /// When there is something to do without a message.
    fn wake_at(&self) -> Instant {
        let idle = if self.pinged { LOST_AFTER } else { PING_AFTER };
        let calls = self.calls.values().map(|(_, at)| *at);
        calls.min().map_or(self.heard + idle, |at| at.min(self.heard + idle))
    }

    async fn keep_alive(&mut self) -> Result<(), RpcEnd> {
        let idle = self.heard.elapsed();
        if idle >= LOST_AFTER {
            return Err(RpcEnd::Silent);
        }
        if idle >= PING_AFTER && !self.pinged {
            self.pinged = true;
            self.stream.send(Frame::Ping(Bytes::new())).await?;
        }
        Ok(())
    }
}

/// Sends a message, unless the other side takes none.
pub(crate) async fn send<S>(stream: &mut WebSocketStream<S>, frame: Bytes) -> Result<(), Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match timeout(LOST_AFTER, stream.send(Frame::Binary(frame))).await {
        Ok(sent) => sent,
        Err(_) => Err(Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "it takes no messages"))),
    }
}

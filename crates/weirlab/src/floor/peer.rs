//! The two sides of an exchange.
use super::message::Body;
use crate::event_loop::{Received, Socket, Token};
use std::io;
use weir_http1::Method;

/// A client's connection.
pub(super) struct Client {
    pub(super) socket: Socket,
    pub(super) inbox: Inbox,
    /// The request that is on its way, to be sent again should a pooled connection turn out to be dead.
    pub(super) replay: Vec<u8>,
    pub(super) stage: Stage,
}

/// Where a client's connection stands.
#[allow(
    clippy::large_enum_variant,
    reason = "most connections are in an exchange, and none allocates for one"
)]
pub(super) enum Stage {
    /// The next request is awaited.
    Idle,
    Exchange(Exchange),
    /// Nothing follows what is being sent.
    Closing,
    /// The same, and what the client still sends is thrown away, so that it reads the answer.
    Lingering,
    /// The end was sent to the client.
    Drained,
}

/// A request on its way and the response to it.
pub(super) struct Exchange {
    pub(super) server: Token,
    pub(super) method: Method,
    /// Whether the client's connection can go on.
    pub(super) keep_alive: bool,
    /// Whether the client knows chunks.
    pub(super) chunks: bool,
    pub(super) request: Request,
    pub(super) response: Response,
}

pub(super) enum Request {
    Body(Body),
    /// It was sent, and may be sent again: it changes nothing and is held whole.
    Replayable,
    Sent,
    /// The upstream would not read it to its end.
    Abandoned,
}

impl Request {
    /// Whether the upstream was sent all of it.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self, Self::Replayable | Self::Sent)
    }
}

pub(super) enum Response {
    Head,
    /// Its body, and whether the upstream's connection can be used again after it.
    Body(Body, bool),
}

/// A connection to the upstream.
pub(super) struct Server {
    pub(super) socket: Socket,
    /// The client that it works for; none while it is pooled.
    pub(super) client: Option<Token>,
    pub(super) inbox: Inbox,
}

/// Bytes that were received and not used yet.
#[derive(Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    /// They are of no use without more.
    wants_more: bool,
}

impl Client {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket, inbox: Inbox::default(), replay: Vec::new(), stage: Stage::Idle }
    }
}

impl Server {
    pub(super) fn new(socket: Socket, client: Token) -> Self {
        Self { socket, client: Some(client), inbox: Inbox::default() }
    }
}

impl Inbox {
    /// Holds bytes until they can be used, at once or only behind others.
    #[inline]
    pub(super) fn hold(&mut self, bytes: &[u8], wants_more: bool) {
        if !bytes.is_empty() {
            self.bytes.extend_from_slice(bytes);
            self.wants_more = wants_more;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Fills the scratch with the bytes that are held, and received ones behind them if those do not suffice.
    #[inline]
    pub(super) fn fill(&mut self, socket: &mut Socket, scratch: &mut [u8]) -> io::Result<Received> {
        let held = self.bytes.len();
        if held == 0 || self.wants_more {
            if !socket.is_readable() {
                return Ok(Received::Nothing);
            }
            let received = socket.receive(&mut scratch[held..])?;
            let Received::Bytes(count) = received else { return Ok(received) };
            self.move_to(scratch);
            return Ok(Received::Bytes(held + count));
        }
        self.move_to(scratch);
        Ok(Received::Bytes(held))
    }

    fn move_to(&mut self, scratch: &mut [u8]) {
        scratch[..self.bytes.len()].copy_from_slice(&self.bytes);
        self.bytes.clear();
    }
}

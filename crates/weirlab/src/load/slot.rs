//! The places of requests, and the connections that they are on. A connection has as many places as it may have requests
//! in flight at once: one of HTTP/1.1 and WebSocket, several of HTTP/2.
use super::answer::Answer;
use super::http2::Session;
use super::message::Talk;
use super::wire::Wire;
use std::net::SocketAddr;

/// The place of one request.
pub(super) struct Slot {
    pub(super) stage: Stage,
    pub(super) answer: Answer,
    /// The template of the request that is being answered.
    pub(super) template: usize,
    /// When that request was due.
    pub(super) scheduled: u64,
    /// When the stage began; of a place that waits, when its connection began to be opened.
    pub(super) since: u64,
    /// When the first byte of the answer's body came, if that is asked for and it was not the last one too.
    pub(super) first_byte: Option<u64>,
    /// Whether a request waits for the connection to be open.
    pub(super) assigned: bool,
    /// Whether it does so for the second time.
    pub(super) again: bool,
    /// Whether the answer came when the window was over.
    pub(super) late: bool,
}

/// What a place is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its connection is yet to be open, or to be replaced.
    Waiting,
    /// It is free for a request. In an open loop without keep-alive its connection is opened only then.
    Idle,
    /// A request is being answered.
    Busy,
    /// The answer is complete and the peer has yet to end the connection.
    Closing,
}

/// A connection, or the want of one.
pub(super) struct Link {
    pub(super) speech: Speech,
    pub(super) state: State,
    /// Distinguishes events of this connection from those of an earlier one in the same place.
    pub(super) generation: u32,
    pub(super) address: SocketAddr,
    /// When it began to be opened.
    pub(super) since: u64,
    /// Whether the peer closed its sending half, or takes no more requests.
    pub(super) hung_up: bool,
    /// How often it was opened since the last answer.
    pub(super) attempts: u32,
    /// Whether it, or an earlier connection in its place, had an answer.
    pub(super) answered: bool,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It will be opened.
    Waiting,
    Connecting,
    Handshaking,
    /// It is asked to become another protocol's.
    Upgrading,
    Open,
}

/// The protocol of a connection, with its state.
pub(super) enum Speech {
    /// There is no connection.
    None,
    Http1(Wire),
    Http2(Box<Session>),
    WebSocket(Wire, Box<Talk>),
}

impl Speech {
    /// The connection's bytes, as long as they are not HTTP/2's alone.
    pub(super) fn wire(&mut self) -> Option<&mut Wire> {
        match self {
            Speech::Http1(wire) | Speech::WebSocket(wire, _) => Some(wire),
            Speech::None | Speech::Http2(_) => None,
        }
    }
}

impl Slot {
    pub(super) fn new() -> Slot {
        Slot {
            stage: Stage::Waiting,
            answer: Answer::default(),
            template: 0,
            scheduled: 0,
            since: 0,
            first_byte: None,
            assigned: false,
            again: false,
            late: false,
        }
    }
}

impl Link {
    pub(super) fn new(address: SocketAddr) -> Link {
        Link {
            speech: Speech::None,
            state: State::Waiting,
            generation: 0,
            address,
            since: 0,
            hung_up: false,
            attempts: 0,
            answered: false,
        }
    }

    /// How long to wait before it is opened again, in nanoseconds: doubled from 1 ms on with each attempt that brought
    /// no answer, up to about half a second.
    pub(super) fn back_off(&self) -> u64 {
        match self.attempts {
            0 => 0,
            attempts => 1_000_000 << (attempts - 1).min(9),
        }
    }
}

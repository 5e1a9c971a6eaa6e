//! The place of one connection among those that are open at once.
use super::answer::Answer;
use super::wire::Wire;
use std::net::SocketAddr;

/// A connection, or the want of one.
pub(super) struct Slot {
    pub(super) wire: Option<Wire>,
    pub(super) stage: Stage,
    /// Tells events of this connection from those of an earlier one in the same place.
    pub(super) generation: u32,
    pub(super) address: SocketAddr,
    pub(super) answer: Answer,
    /// The template of the request that is being answered.
    pub(super) template: usize,
    /// When that request was due.
    pub(super) scheduled: u64,
    /// When the stage began.
    pub(super) since: u64,
    /// Whether a request waits for the connection to be open.
    pub(super) assigned: bool,
    /// Whether the peer has said that it will send no more.
    pub(super) hung_up: bool,
    /// How often it was opened since the last answer.
    pub(super) attempts: u32,
}

/// What a connection is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It will be opened.
    Waiting,
    Connecting,
    Handshaking,
    /// It is free for a request. In an open loop without keep-alive it is opened only then.
    Idle,
    /// A request is being answered.
    Busy,
    /// The answer is complete and the peer has yet to end the connection.
    Closing,
}

impl Slot {
    pub(super) fn new(address: SocketAddr) -> Slot {
        Slot {
            wire: None,
            stage: Stage::Waiting,
            generation: 0,
            address,
            answer: Answer::default(),
            template: 0,
            scheduled: 0,
            since: 0,
            assigned: false,
            hung_up: false,
            attempts: 0,
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

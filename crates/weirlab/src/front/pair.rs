//! A client's connection and the one to its target: bytes are copied both ways.
use crate::event_loop::{Received, Socket};
use rustix::event::epoll::EventFlags;
use std::io;

/// The kinds of tokens for the two sides of a pair.
pub(super) const CLIENT: u8 = 1;
pub(super) const TARGET: u8 = 2;
/// How often one direction is copied before others have their turn.
const TURNS: usize = 16;

pub(super) struct Pair {
    pub(super) client: Side,
    pub(super) target: Side,
    /// The number of the target.
    pub(super) number: usize,
}

pub(super) struct Side {
    pub(super) socket: Socket,
    /// It sends no more, and the other side was end_sent, or will be once it took everything.
    ended: bool,
    end_sent: bool,
}

/// The next step of a pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    Again,
    Close,
}

impl Side {
    fn new(socket: Socket) -> Self {
        Self { socket, ended: false, end_sent: false }
    }
}

impl Pair {
    pub(super) fn new(client: Socket, target: Socket, number: usize) -> Self {
        Self { client: Side::new(client), target: Side::new(target), number }
    }

    pub(super) fn note(&mut self, kind: u8, flags: EventFlags) {
        match kind {
            CLIENT => self.client.socket.note(flags),
            _ => self.target.socket.note(flags),
        }
    }

    /// Copies what can be copied.
    pub(super) fn drive(&mut self, scratch: &mut [u8]) -> io::Result<Next> {
        let there = copy(&mut self.client, &mut self.target, scratch)?;
        let back = copy(&mut self.target, &mut self.client, scratch)?;
        if self.client.end_sent && self.target.end_sent {
            return Ok(Next::Close);
        }
        Ok(if there == Next::Again { there } else { back })
    }
}

/// Copies from one side to the other, and passes the end on after the last byte.
fn copy(from: &mut Side, to: &mut Side, scratch: &mut [u8]) -> io::Result<Next> {
    for _ in 0..TURNS {
        if !to.socket.flush()? {
            return Ok(Next::Wait);
        }
        if from.ended {
            if !std::mem::replace(&mut from.end_sent, true) {
                to.socket.finish_sending();
            }
            return Ok(Next::Wait);
        }
        if !from.socket.is_readable() {
            return Ok(Next::Wait);
        }
        match from.socket.receive(scratch)? {
            Received::Bytes(count) => to.socket.send(&scratch[..count])?,
            Received::Nothing => return Ok(Next::Wait),
            Received::End => from.ended = true,
        }
    }
    Ok(Next::Again)
}

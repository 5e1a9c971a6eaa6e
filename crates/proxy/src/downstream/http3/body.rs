//! A request's body over HTTP/3.

use super::code::Code;
use super::frames::Piece;
use super::receiving::{Failure, Receiving};
use bytes::{Buf, Bytes, BytesMut};
use std::task::{Context, Poll, ready};
use weir_http1::{Framing, Headers, ParseError};
use weir_net::multiplex::read_trailers;

/// A body on its way here.
pub(super) struct Incoming {
    stream: Receiving,
    /// Received and not yet used.
    data: BytesMut,
    /// What is left of the promised length.
    left: Option<u64>,
    ended: bool,
    /// What spoils the whole: trailers that are refused, or another length than was promised.
    trailers: Result<Headers, ParseError>,
    /// The most that is held of it.
    most: usize,
}

impl Incoming {
    /// What follows a head, of which so much may be held.
    pub(super) fn new(stream: Receiving, most: usize) -> Self {
        Self { stream, data: BytesMut::new(), left: None, ended: false, trailers: Ok(Headers::new()), most }
    }

    /// The head says how long it is.
    pub(super) fn promise(&mut self, framing: Framing) {
        if let Framing::Length(length) = framing {
            self.left = Some(length);
        }
    }

    /// What is here of it.
    pub(super) fn data(&self) -> Result<&[u8], ParseError> {
        match self.trailers {
            Ok(_) => Ok(&self.data),
            Err(reject) => Err(reject),
        }
    }

    /// Whether all of it was received, as long as it had to be.
    pub(super) fn has_ended(&self) -> bool {
        self.ended && self.trailers.is_ok()
    }

    /// Whether all of its bytes were received, though its end may yet come.
    pub(super) fn is_whole(&self) -> bool {
        self.has_ended() || self.left == Some(0) && self.trailers.is_ok()
    }

    /// How many bytes are here that were not used.
    pub(super) fn buffered(&self) -> usize {
        self.data.len()
    }

    /// Whether all of it was received and used.
    pub(super) fn is_done(&self) -> bool {
        self.has_ended() && self.data.is_empty()
    }

    /// Whether all of its bytes are here, or no more can be held, or it is refused already.
    pub(super) fn is_buffered(&self) -> bool {
        self.is_whole() || self.trailers.is_err() || self.data.len() >= self.most
    }

    pub(super) fn trailers(&self) -> Option<&Headers> {
        self.trailers.as_ref().ok().filter(|trailers| !trailers.is_empty())
    }

    /// Receives what has come behind what is here, as much as may be held: each datagram holds a small piece, and what
    /// is given to the upstream costs by the piece.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        ready!(self.poll_piece(cx))?;
        while !self.ended && self.data.len() < self.most {
            match self.poll_piece(cx) {
                Poll::Ready(piece) => piece?,
                Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        match ready!(self.stream.poll_piece(cx))? {
            Some(Piece::Data(data)) => self.hold(&data),
            Some(Piece::Fields(trailers)) if self.trailers.is_ok() => {
                self.trailers = read_trailers(&trailers.fields);
            }
            Some(Piece::Fields(_)) => {}
            None => {
                self.ended = true;
                if self.left.is_some_and(|left| left > 0) {
                    self.trailers = Err(ParseError::BodyLength);
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn hold(&mut self, data: &Bytes) {
        let received = data.len() as u64;
        match &mut self.left {
            Some(left) if received > *left => self.trailers = Err(ParseError::BodyLength),
            Some(left) => *left -= received,
            None => {}
        }
        self.data.extend_from_slice(data);
    }

    pub(super) fn consume(&mut self, n: usize) {
        self.data.advance(n);
    }

    /// Throws away what comes; ready at the end.
    pub(super) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.ended {
            self.data.clear();
            if ready!(self.poll_more(cx)).is_err() {
                break;
            }
        }
        Poll::Ready(())
    }

    /// Nothing more of it is wanted.
    pub(super) fn stop(&mut self) {
        if !self.ended {
            self.stream.stop(Code::H3_NO_ERROR);
        }
    }
}

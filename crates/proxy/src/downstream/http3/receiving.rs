//! The receiving side of a request's stream.

use super::code::{Code, close};
use super::frames::{Fields, Frames, Of, Piece};
use super::sending::SendStream;
use quinn::ReadError;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// The most that is read of a stream at a time.
const CHUNK: usize = 64 * 1024;

/// The receiving side of a request's stream.
pub(super) struct Receiving {
    stream: quinn::RecvStream,
    quic: quinn::Connection,
    frames: Frames,
    send_stream: Rc<SendStream>,
    failure: Option<Failure>,
}

/// Why nothing more comes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// It broke a rule, and its client got the error.
    Refused(Code),
    /// Its client took it back.
    Reset,
    /// The connection has ended.
    Lost,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(code) => write!(f, "it breaks a rule ({code:?})"),
            Self::Reset => f.write_str("its client took it back"),
            Self::Lost => f.write_str("the connection has ended"),
        }
    }
}

impl Receiving {
    /// That of a request whose head may be so long.
    pub(super) fn new(
        stream: quinn::RecvStream,
        quic: quinn::Connection,
        send_stream: Rc<SendStream>,
        longest_head: u64,
    ) -> Self {
        let frames = Frames::new(Of::Request(Fields::default()), longest_head);
        Self { stream, quic, frames, send_stream, failure: None }
    }

    /// Bytes of its heads that came.
    pub(super) fn heads(&self) -> usize {
        self.frames.heads()
    }

    /// The next piece; none at the end.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, Failure>> {
        if let Some(failure) = self.failure {
            return Poll::Ready(Err(failure));
        }
        loop {
            match self.frames.next() {
                Ok(Some(piece)) => return Poll::Ready(Ok(Some(piece))),
                Ok(None) => {}
                Err(code) => return Poll::Ready(Err(self.refuse(code))),
            }
            let read = ready!(pin!(self.stream.read_chunk(CHUNK, true)).poll(cx));
            match read {
                Ok(Some(chunk)) => self.frames.receive(chunk.bytes),
                Ok(None) if self.frames.may_end() => return Poll::Ready(Ok(None)),
                Ok(None) => return Poll::Ready(Err(self.refuse(Code::H3_FRAME_ERROR))),
                Err(ReadError::Reset(_)) => return Poll::Ready(Err(self.fail(Failure::Reset))),
                Err(_) => return Poll::Ready(Err(self.fail(Failure::Lost))),
            }
        }
    }

    fn fail(&mut self, failure: Failure) -> Failure {
        *self.failure.insert(failure)
    }

    /// The client broke a rule: of this request, or of the connection.
    pub(super) fn refuse(&mut self, code: Code) -> Failure {
        match code {
            Code::H3_EXCESSIVE_LOAD | Code::H3_MESSAGE_ERROR | Code::H3_REQUEST_INCOMPLETE => {
                self.send_stream.reset(code);
                self.stop(code);
            }
            _ => close(&self.quic, code, b"a frame breaks the rules, or is too long or cut off"),
        }
        self.fail(Failure::Refused(code))
    }

    /// Nothing more of it is wanted.
    pub(super) fn stop(&mut self, code: Code) {
        // One that has ended already needs no stopping.
        let _ = self.stream.stop(code.number());
    }
}

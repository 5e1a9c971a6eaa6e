//! The receiving side of a stream.

use super::control::Control;
use super::frames::{Fields, Frames, Of};
use super::quic::{close, lost, of_connection};
use super::sending::SendStream;
use bytes::Bytes;
use h3::error::Code;
use h3::quic::{self, StreamErrorIncoming, StreamId};
use quinn::{ReadError, VarInt};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// The most that is read of a stream at a time.
const CHUNK: usize = 64 * 1024;
/// The longest frame of a client's control stream.
const MAX_CONTROL_LEN: u64 = 16 * 1024;
/// The type of that stream.
const CONTROL: u8 = 0;

/// The receiving side of a stream, for the `h3` crate.
pub(super) struct Receiving {
    stream: quinn::RecvStream,
    id: StreamId,
    quic: quinn::Connection,
    /// What the crate has to be shown before what comes.
    first: Option<Bytes>,
    carries: Carries,
}

enum Carries {
    /// A request.
    Request(Frames, Rc<SendStream>),
    /// Frames of the connection.
    Control(Frames),
}

impl Receiving {
    pub(super) fn request(
        (stream, id): (quinn::RecvStream, StreamId),
        quic: quinn::Connection,
        send_stream: Rc<SendStream>,
        longest_head: u64,
    ) -> Self {
        let frames = Frames::new(Of::Request(Fields::default()), longest_head);
        Self { stream, id, quic, first: None, carries: Carries::Request(frames, send_stream) }
    }

    /// A control stream, of which so much was read.
    pub(super) fn control(
        (stream, id): (quinn::RecvStream, StreamId),
        quic: quinn::Connection,
        begun: Bytes,
        control: Control,
    ) -> Self {
        let mut frames = Frames::new(Of::Control(control), MAX_CONTROL_LEN);
        frames.receive(begun);
        let first = Some(Bytes::from_static(&[CONTROL]));
        Self { stream, id, quic, first, carries: Carries::Control(frames) }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let read = ready!(pin!(self.stream.read_chunk(CHUNK, true)).poll(cx));
        Poll::Ready(read.map(|chunk| chunk.map(|chunk| chunk.bytes)).map_err(unread))
    }

    /// The next piece that passes of what is here. Of a body there is only one piece at a time, as the crate would hold
    /// whatever it is given.
    fn next(&mut self) -> Result<Next, Code> {
        let frames = match &mut self.carries {
            Carries::Control(frames) => frames,
            Carries::Request(_, send_stream) if send_stream.held.get() > 0 => return Ok(Next::Wait),
            Carries::Request(frames, _) => frames,
        };
        let before = frames.body();
        let piece = frames.next()?;
        if let Carries::Request(frames, send_stream) = &self.carries {
            send_stream.held.set(frames.body() - before);
            send_stream.heads.set(frames.heads());
            send_stream.has_fragment.set(frames.has_fragment());
        }
        Ok(piece.map_or(Next::Read, Next::Piece))
    }

    /// Takes what was read.
    fn receive(&mut self, chunk: Bytes) {
        match &mut self.carries {
            Carries::Request(frames, _) | Carries::Control(frames) => frames.receive(chunk),
        }
    }

    /// The client broke a rule.
    fn refuse(&mut self, code: Code) -> StreamErrorIncoming {
        match &self.carries {
            Carries::Request(_, send_stream)
                if matches!(code, Code::H3_EXCESSIVE_LOAD | Code::H3_MESSAGE_ERROR) =>
            {
                send_stream.refused.set(Some(code));
                send_stream.reset(super::quic::number(code));
                self.stop(code.value());
            }
            _ => close(&self.quic, code, b"a frame breaks the rules, or is too long or cut off"),
        }
        StreamErrorIncoming::StreamTerminated { error_code: code.value() }
    }

    fn stop(&mut self, code: u64) {
        // One that has ended already needs no stopping.
        let _ = self.stream.stop(VarInt::from_u64(code).unwrap_or(VarInt::MAX));
    }

    fn may_end(&self) -> bool {
        match &self.carries {
            Carries::Request(frames, _) | Carries::Control(frames) => frames.may_end(),
        }
    }
}

enum Next {
    Piece(Bytes),
    /// More has to come from the client.
    Read,
    /// More has to be taken first.
    Wait,
}

impl quic::RecvStream for Receiving {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Ok(Some(first)));
        }
        if let Carries::Request(_, send_stream) = &self.carries
            && let Some(code) = send_stream.refused.get()
        {
            return Poll::Ready(Err(StreamErrorIncoming::StreamTerminated { error_code: code.value() }));
        }
        loop {
            match self.next() {
                Ok(Next::Piece(piece)) => return Poll::Ready(Ok(Some(piece))),
                Ok(Next::Wait) => return Poll::Pending,
                Ok(Next::Read) => {}
                Err(code) => return Poll::Ready(Err(self.refuse(code))),
            }
            match ready!(self.poll_chunk(cx))? {
                Some(chunk) => self.receive(chunk),
                None if self.may_end() => return Poll::Ready(Ok(None)),
                None => return Poll::Ready(Err(self.refuse(Code::H3_FRAME_ERROR))),
            }
        }
    }

    fn stop_sending(&mut self, code: u64) {
        self.stop(code);
    }

    fn recv_id(&self) -> StreamId {
        self.id
    }
}

fn unread(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Reset(code) => StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() },
        ReadError::ConnectionLost(error) => of_connection(lost(error)),
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

//! Streams of one direction that a client opens (RFC 9114, 6.2): its control stream, which the `h3` crate reads, and those
//! of QPACK, which the crate accepts and never reads.

use super::control::Control;
use super::frames::number;
use super::qpack::{self, Decoder};
use super::quic::{close, lost};
use bytes::Bytes;
use h3::error::Code;
use h3::quic::ConnectionErrorIncoming;
use quinn::{ReadError, VarInt};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

/// How many a client may open in all; it needs three.
const MAX_STREAMS: u32 = 100;
/// The most that is read of one at a time.
const CHUNK: usize = 4 * 1024;

const CONTROL: u64 = 0;
const PUSH: u64 = 1;
const ENCODER: u64 = 2;
const DECODER: u64 = 3;

type Accepting = Pin<Box<dyn Future<Output = Result<quinn::RecvStream, quinn::ConnectionError>>>>;

/// Those of one connection.
pub(super) struct OneWay {
    quic: quinn::Connection,
    accepting: Accepting,
    left: u32,
    streams: Vec<Stream>,
    /// Types that a client may open one stream of.
    opened: [bool; 4],
}

/// A control stream, with what was read of it.
pub(super) type ControlStream = (quinn::RecvStream, Bytes, Control);

struct Stream {
    receive: quinn::RecvStream,
    carries: Carries,
}

enum Carries {
    /// It has to be seen what: so much of it is here.
    Unknown(Vec<u8>),
    Encoder,
    Decoder(Decoder),
}

/// What became of a stream.
enum Outcome {
    Control(Bytes),
    /// It is of no interest any longer.
    Over,
    /// Why the connection has to end.
    Broken(Code),
}

impl OneWay {
    pub(super) fn new(quic: quinn::Connection) -> Self {
        Self {
            accepting: accept(quic.clone()),
            quic,
            left: MAX_STREAMS,
            streams: Vec::new(),
            opened: [false; 4],
        }
    }

    /// Reads what is here of all. Ready with the control stream.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ControlStream, ConnectionErrorIncoming>> {
        while let Poll::Ready(accepted) = self.accepting.as_mut().poll(cx) {
            let receive = accepted.map_err(lost)?;
            self.accepting = accept(self.quic.clone());
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                close(&self.quic, Code::H3_EXCESSIVE_LOAD, b"too many streams of one direction");
            }
            self.streams.push(Stream { receive, carries: Carries::Unknown(Vec::new()) });
        }
        let mut at = 0;
        while let Some(stream) = self.streams.get_mut(at) {
            let Poll::Ready(outcome) = stream.poll(cx, &mut self.opened) else {
                at += 1;
                continue;
            };
            let stream = self.streams.swap_remove(at);
            match outcome {
                Outcome::Control(begun) => {
                    return Poll::Ready(Ok((stream.receive, begun, Control::default())));
                }
                Outcome::Over => {}
                Outcome::Broken(code) => {
                    close(&self.quic, code, b"a stream of one direction breaks the rules");
                }
            }
        }
        Poll::Pending
    }
}

fn accept(quic: quinn::Connection) -> Accepting {
    Box::pin(async move { quic.accept_uni().await })
}

impl Stream {
    fn poll(&mut self, cx: &mut Context<'_>, opened: &mut [bool; 4]) -> Poll<Outcome> {
        loop {
            let read = ready!(pin!(self.receive.read_chunk(CHUNK, true)).poll(cx));
            let chunk = match read {
                Ok(Some(chunk)) => chunk.bytes,
                Err(ReadError::ConnectionLost(_)) => return Poll::Ready(Outcome::Over),
                Ok(None) | Err(_) => return Poll::Ready(self.ended()),
            };
            match self.take(chunk, opened) {
                Ok(None) => {}
                Ok(Some(outcome)) => return Poll::Ready(outcome),
                Err(code) => return Poll::Ready(Outcome::Broken(code)),
            }
        }
    }

    /// Takes what was read.
    fn take(&mut self, chunk: Bytes, opened: &mut [bool; 4]) -> Result<Option<Outcome>, Code> {
        match &mut self.carries {
            Carries::Unknown(begun) => {
                begun.extend_from_slice(&chunk);
                let Some((kind, rest)) = number(begun) else { return Ok(None) };
                let rest = Bytes::copy_from_slice(rest);
                self.begin(kind, rest, opened)
            }
            Carries::Encoder => qpack::encoder(&chunk).map(|()| None),
            Carries::Decoder(decoder) => decoder.read(&chunk).map(|()| None),
        }
    }

    /// Its type is known.
    fn begin(&mut self, kind: u64, rest: Bytes, opened: &mut [bool; 4]) -> Result<Option<Outcome>, Code> {
        let again = usize::try_from(kind).ok().and_then(|kind| opened.get_mut(kind));
        if again.is_some_and(|opened| std::mem::replace(opened, true)) {
            return Err(Code::H3_STREAM_CREATION_ERROR);
        }
        self.carries = match kind {
            CONTROL => return Ok(Some(Outcome::Control(rest))),
            // Only servers push.
            PUSH => return Err(Code::H3_STREAM_CREATION_ERROR),
            ENCODER => Carries::Encoder,
            DECODER => Carries::Decoder(Decoder::default()),
            _ => {
                let code = VarInt::from_u64(Code::H3_STREAM_CREATION_ERROR.value()).unwrap_or(VarInt::MAX);
                // One that has ended already needs no stopping.
                let _ = self.receive.stop(code);
                return Ok(Some(Outcome::Over));
            }
        };
        self.take(rest, opened)
    }

    fn ended(&self) -> Outcome {
        match self.carries {
            Carries::Unknown(_) => Outcome::Over,
            Carries::Encoder | Carries::Decoder(_) => Outcome::Broken(Code::H3_CLOSED_CRITICAL_STREAM),
        }
    }
}

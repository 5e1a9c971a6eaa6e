//! Streams of one direction that a client opens (RFC 9114, 6.2): its control stream and those of QPACK.

use super::code::{Code, close};
use super::control::Control;
use super::frames::{Frames, Of, number};
use super::qpack::{self, Decoder};
use bytes::Bytes;
use quinn::{ConnectionError, ReadError};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

/// How many a client may open in all; it needs three.
const MAX_STREAMS: u32 = 100;
/// The most that is read of one at a time.
const CHUNK: usize = 4 * 1024;
/// The longest frame of a control stream.
const MAX_CONTROL_LEN: u64 = 16 * 1024;

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

struct Stream {
    receive: quinn::RecvStream,
    carries: Carries,
}

enum Carries {
    /// It has to be seen what: so much of it is here.
    Unknown(Vec<u8>),
    Control(Box<Frames>),
    Encoder,
    Decoder(Decoder),
}

/// What became of a stream.
enum Outcome {
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

    /// Reads what is here of all.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectionError> {
        while let Poll::Ready(accepted) = self.accepting.as_mut().poll(cx) {
            let receive = accepted?;
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
            self.streams.swap_remove(at);
            if let Outcome::Broken(code) = outcome {
                close(&self.quic, code, b"a stream of one direction breaks the rules");
            }
        }
        Ok(())
    }

    /// Whether the client has said that it asks nothing more.
    pub(super) fn client_leaves(&self) -> bool {
        self.streams.iter().any(|stream| match &stream.carries {
            Carries::Control(frames) => frames.control().is_some_and(|control| control.goaway.is_some()),
            _ => false,
        })
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
            Carries::Control(frames) => {
                frames.receive(chunk);
                frames.next().map(|_| None)
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
            CONTROL => {
                Carries::Control(Box::new(Frames::new(Of::Control(Control::default()), MAX_CONTROL_LEN)))
            }
            // Only servers push.
            PUSH => return Err(Code::H3_STREAM_CREATION_ERROR),
            ENCODER => Carries::Encoder,
            DECODER => Carries::Decoder(Decoder::default()),
            _ => {
                // One that has ended already needs no stopping.
                let _ = self.receive.stop(Code::H3_STREAM_CREATION_ERROR.number());
                return Ok(Some(Outcome::Over));
            }
        };
        self.take(rest, opened)
    }

    fn ended(&self) -> Outcome {
        match self.carries {
            Carries::Unknown(_) => Outcome::Over,
            Carries::Control(_) | Carries::Encoder | Carries::Decoder(_) => {
                Outcome::Broken(Code::H3_CLOSED_CRITICAL_STREAM)
            }
        }
    }
}

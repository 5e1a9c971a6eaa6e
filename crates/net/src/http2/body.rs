//! Receives and sends bodies over HTTP/2, on either side of the proxy.

use crate::multiplex::{read_response_trailers, read_trailers, write_fields};
use bytes::{Buf, Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use std::io;
use std::task::{Context, Poll, ready};
use weir_http1::{Headers, KnownSet, ParseError};

/// The most of a body that is buffered together with its head. It is sent without waiting for flow-control capacity.
const HELD_BACK: usize = 16 * 1024;

/// An incoming body.
pub struct Incoming {
    stream: RecvStream,
    /// Received and not yet consumed.
    data: Bytes,
    /// Received bytes whose flow-control capacity was not yet released to the sender.
    unacknowledged: usize,
    ended: bool,
    /// How long it is, if the head said so.
    length: Option<u64>,
    received: u64,
    trailers: Result<Headers, ParseError>,
    /// Whether it is the body of a response.
    is_response: bool,
    /// How many bytes of it are buffered at most.
    most: usize,
}

/// An outgoing body, whose head is sent first.
#[derive(Default)]
pub struct Outgoing {
    stream: Option<SendStream<Bytes>>,
    /// What is left of the announced length.
    left: Option<u64>,
    /// The last piece, held back until it is known whether the end or another piece follows.
    held: Bytes,
    /// How many bytes of a new body are sent before the peer has granted flow-control capacity.
    ahead: usize,
}

impl Incoming {
    /// A body that is over already or follows, of which so much may be held.
    pub fn new(stream: RecvStream, ended: bool, most: usize) -> Self {
        Self {
            stream,
            data: Bytes::new(),
            unacknowledged: 0,
            ended,
            length: None,
            received: 0,
            trailers: Ok(Headers::new()),
            is_response: false,
            most,
        }
    }

    /// One of this length.
    pub fn of_length(self, length: u64) -> Self {
        Self { length: Some(length), ..self }
    }

    /// The same of a response.
    pub fn of_response(stream: RecvStream, ended: bool, most: usize) -> Self {
        Self { is_response: true, ..Self::new(stream, ended, most) }
    }

    /// What was over goes on, as a tunnel.
    pub fn reopen(&mut self) {
        self.ended = false;
    }

    /// The bytes of it that have arrived. Invalid trailers fail the whole body.
    pub fn data(&self) -> Result<&[u8], ParseError> {
        match self.trailers {
            Ok(_) => Ok(&self.data),
            Err(reject) => Err(reject),
        }
    }

    /// Whether all of it was received.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether all of its bytes were received, though its end may yet come.
    pub fn is_whole(&self) -> bool {
        self.ended || self.length.is_some_and(|length| self.received >= length)
    }

    /// How many bytes are here that were not consumed.
    pub fn buffered(&self) -> usize {
        self.data.len()
    }

    /// Whether all of it was received and consumed.
    pub fn is_done(&self) -> bool {
        self.ended && self.data.is_empty()
    }

    /// Whether all of its bytes have arrived, or as many as may be buffered.
    pub fn is_buffered(&self) -> bool {
        self.is_whole() || self.data.len() >= self.most
    }

    /// Trailer fields behind the body, once it is over.
    pub fn trailers(&self) -> Option<&Headers> {
        self.trailers.as_ref().ok().filter(|trailers| !trailers.is_empty())
    }

    /// Receives a piece behind what is here. What is held until it is whole must not keep the window closed to other
    /// streams meanwhile.
    pub fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let held = self.data.len();
        ready!(self.poll_receive(cx))?;
        if held > 0 {
            self.acknowledge(held);
        }
        Poll::Ready(Ok(()))
    }

    /// Receives all that the sender's window lets it send. The `h2` crate would keep it in pieces, each of which takes
    /// more room than its bytes, and gives connections with too many of them up.
    pub fn read_ahead(&mut self, cx: &mut Context<'_>) -> Result<(), h2::Error> {
        while !self.ended {
            match self.poll_receive(cx) {
                Poll::Ready(received) => received?,
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        if let Some(data) = ready!(self.stream.poll_data(cx)) {
            self.hold(data?);
            self.ended = self.stream.is_end_stream();
            return Poll::Ready(Ok(()));
        }
        let trailers = ready!(self.stream.poll_trailers(cx))?;
        if let Some(trailers) = trailers {
            self.trailers = if self.is_response {
                Ok(read_response_trailers(&trailers))
            } else {
                read_trailers(&trailers)
            };
        }
        self.ended = true;
        Poll::Ready(Ok(()))
    }

    /// Discards what arrives, as far as the sender may send; ready at the end.
    pub fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.ended {
            self.data = Bytes::new();
            if ready!(self.poll_more(cx)).is_err() {
                break;
            }
        }
        Poll::Ready(())
    }

    fn hold(&mut self, data: Bytes) {
        let received = data.len();
        self.received += received as u64;
        if self.data.is_empty() {
            self.data = data;
        } else {
            let mut joined = std::mem::take(&mut self.data)
                .try_into_mut()
                .unwrap_or_else(|held| BytesMut::from(&held[..]));
            joined.extend_from_slice(&data);
            self.data = joined.freeze();
        }
        self.unacknowledged += received;
    }

    /// Consumes bytes of the body.
    pub fn consume(&mut self, n: usize) {
        self.data.advance(n);
        self.acknowledge(n);
    }

    /// Releases this much flow-control capacity to the sender.
    pub fn acknowledge(&mut self, n: usize) {
        let n = n.min(self.unacknowledged);
        self.unacknowledged -= n;
        // An error is that of a stream that has ended: there is nothing more to send.
        let _ = self.stream.flow_control().release_capacity(n);
    }
}

impl Outgoing {
    /// A body of this length, if it is known.
    pub fn new(stream: Option<SendStream<Bytes>>, left: Option<u64>) -> Self {
        Self { stream, left, held: Bytes::new(), ahead: 0 }
    }

    /// The same, of which the first so many bytes need not wait for room.
    pub fn ahead(self, ahead: usize) -> Self {
        Self { ahead, ..self }
    }

    /// Its head is sent.
    pub fn open(&mut self, stream: SendStream<Bytes>) {
        self.stream = Some(stream);
    }

    /// Holds the first piece of a body whose head waits, if it is neither the whole nor large.
    pub fn hold_first(&mut self, data: &[u8]) -> Option<usize> {
        let is_whole = self.left == Some(data.len() as u64);
        let is_wrong = self.left.is_some_and(|left| data.len() as u64 > left);
        if !self.held.is_empty() || is_whole || is_wrong || data.len() > HELD_BACK {
            return None;
        }
        self.held = Bytes::copy_from_slice(data);
        self.left = self.left.map(|left| left - data.len() as u64);
        Some(data.len())
    }

    /// Ready when the other side takes no more; none, when nothing more is to be sent.
    pub fn poll_reset(&mut self, cx: &mut Context<'_>) -> Option<Poll<Result<Reason, h2::Error>>> {
        self.stream.as_mut().map(|stream| stream.poll_reset(cx))
    }

    /// Aborts the message.
    pub fn reset(&mut self, reason: Reason) {
        if let Some(mut stream) = self.stream.take() {
            stream.send_reset(reason);
        }
    }

    /// Sends some of the bytes and returns how many.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.left.is_some_and(|left| data.len() as u64 > left) {
            return Poll::Ready(Err(invalid("the body is longer than its Content-Length")));
        }
        if self.stream.is_none() {
            return Poll::Ready(Err(gone()));
        }
        self.flush()?;
        let n = match std::mem::take(&mut self.ahead) {
            0 => ready!(self.poll_room(cx, data.len()))?,
            ahead => ahead,
        };
        let n = n.min(data.len());
        self.held = Bytes::copy_from_slice(&data[..n]);
        self.left = self.left.map(|left| left - n as u64);
        if self.left == Some(0) {
            self.left = None;
            self.end(None)?;
        }
        Poll::Ready(Ok(n))
    }

    /// Room that the other side has given, of so much that is wanted.
    fn poll_room(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<io::Result<usize>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(gone())) };
        stream.reserve_capacity(wanted);
        if stream.capacity() == 0 {
            match ready!(stream.poll_capacity(cx)) {
                Some(room) => room.map_err(broken)?,
                None => return Poll::Ready(Err(gone())),
            };
        }
        Poll::Ready(Ok(stream.capacity()))
    }

    /// Sends what is held back.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Some(stream) if !self.held.is_empty() => {
                stream.send_data(std::mem::take(&mut self.held), false).map_err(broken)
            }
            _ => Ok(()),
        }
    }

    /// Ends the body. Fails if it is shorter than the head announced.
    pub fn end(&mut self, trailers: Option<&Headers>) -> io::Result<()> {
        if self.stream.is_some() && self.left.is_some() {
            return Err(invalid("the body is shorter than its Content-Length"));
        }
        if trailers.is_some() {
            self.flush()?;
        }
        let Some(mut stream) = self.stream.take() else { return Ok(()) };
        match trailers {
            None => stream.send_data(std::mem::take(&mut self.held), true).map_err(broken),
            Some(trailers) => {
                stream.send_trailers(write_fields(trailers, KnownSet::of(&[])).0).map_err(broken)
            }
        }
    }
}

/// The stream or its connection has ended.
pub fn gone() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

/// The error that the crate reports.
pub fn broken(error: h2::Error) -> io::Error {
    if error.is_io() { error.into_io().unwrap_or_else(gone) } else { io::Error::other(error) }
}

/// Why the other side reset the stream, if that is the error.
pub fn reset_reason(error: &io::Error) -> Option<Reason> {
    let error = error.get_ref()?.downcast_ref::<h2::Error>()?;
    error.reason().filter(|_| error.is_reset() && error.is_remote())
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

//! Frames HTTP/1.1 messages on a connection, on either side of the proxy: buffers received and outgoing bytes, and
//! tracks the position in the message in both directions. Knows framing, not meaning.

use crate::buffer::{Buffer, Outbox};
use crate::io::Io;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::task::{Context, Poll, ready};
use weir_http1::{BodyDecoder, Framing, ParseError, encode};

/// Bodies up to this size are copied behind their head, so that both leave in one write; larger ones are not copied.
const COPIED: usize = 16 * 1024;

/// One HTTP/1.1 connection.
pub struct Wire {
    /// The byte stream.
    pub io: Io,
    /// Received and not yet consumed.
    pub inbox: Buffer,
    /// Waits to be written.
    pub outbox: Outbox,
    /// Whether any byte of the outgoing message has reached the stream.
    pub touched: bool,
    reading: Reading,
    writing: Writing,
}

/// The state of the incoming body.
struct Reading {
    decoder: BodyDecoder,
    /// Decoded bytes at the front of the inbox, and how many bytes of framing stand before and after them.
    data: Range<usize>,
    consumed: usize,
}

/// How the outgoing body is framed, and what is left of it.
#[derive(Clone, Copy)]
enum Writing {
    Nothing,
    /// Exactly so many bytes are left.
    Sized(u64),
    /// So many bytes of the current chunk are left.
    Chunked(usize),
    UntilClose,
    /// Bytes of another protocol: they go on at once, and nothing is copied.
    Through(Ends),
}

/// How the end of what another protocol says is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// The protocol says where it is, so that a connection that closes earlier has lost something.
    Within,
    /// It may be where the connection closes.
    ByClose,
}

impl Wire {
    /// A connection on which no message has begun.
    pub fn new(io: Io) -> Self {
        let reading = Reading { decoder: BodyDecoder::new(Framing::None), data: 0..0, consumed: 0 };
        Self {
            io,
            inbox: Buffer::default(),
            outbox: Outbox::default(),
            touched: false,
            reading,
            writing: Writing::Nothing,
        }
    }

    /// Reads once into the inbox. 0 is the end of the stream, or a full inbox.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = self.io.poll_fill(cx, &mut self.inbox);
        match read {
            Poll::Ready(Ok(n)) => self.inbox.filled(n),
            _ => self.inbox.release(),
        }
        read
    }

    /// Gives empty buffers back to the worker, because hundreds of requests may wait for their responses at the same time
    /// and few buffers stay warm in the cache. Bytes that wait stay where they are.
    pub fn release_empty_buffers(&mut self) {
        if self.inbox.is_empty() {
            self.inbox.release();
        }
        self.outbox.release();
    }

    /// Returns the buffers to the worker until there are bytes again.
    pub fn release_buffers(&mut self) {
        self.inbox.release();
        self.outbox.release();
    }

    /// Switches both directions to another protocol.
    pub fn begin_tunnel(&mut self, ends: Ends) {
        self.begin_reading(Framing::UntilClose);
        self.writing = Writing::Through(ends);
    }

    // ---- the incoming body ----

    /// Starts reading a body, right behind a consumed head.
    pub fn begin_reading(&mut self, framing: Framing) {
        self.reading = Reading { decoder: BodyDecoder::new(framing), data: 0..0, consumed: 0 };
    }

    /// The same for the body of a response.
    pub fn begin_reading_response(&mut self, framing: Framing) {
        self.reading = Reading { decoder: BodyDecoder::of_response(framing), data: 0..0, consumed: 0 };
    }

    /// The decoded bytes that have arrived, if any; never waits.
    pub fn body(&mut self) -> Result<&[u8], ParseError> {
        while self.reading.data.is_empty() && !self.reading.decoder.is_done() {
            self.inbox.consume(std::mem::take(&mut self.reading.consumed));
            let decoded = self.reading.decoder.decode(self.inbox.bytes())?;
            if decoded.data.is_empty() {
                self.inbox.consume(decoded.consumed);
                if decoded.consumed == 0 {
                    break;
                }
            } else {
                self.reading.data = decoded.data;
                self.reading.consumed = decoded.consumed;
            }
        }
        Ok(&self.inbox.bytes()[self.reading.data.clone()])
    }

    /// Consumes decoded bytes.
    pub fn consume_body(&mut self, n: usize) {
        self.reading.data.start += n;
        if self.reading.data.is_empty() {
            self.inbox.consume(std::mem::take(&mut self.reading.consumed));
            self.reading.data = 0..0;
        }
    }

    /// Whether the whole body was received and consumed.
    pub fn body_is_done(&self) -> bool {
        self.reading.data.is_empty() && self.reading.decoder.is_done()
    }

    /// Whether the whole body was received, even if not all of it is consumed.
    pub fn body_has_ended(&self) -> bool {
        self.reading.decoder.is_done()
    }

    /// The same also where it was not looked at yet: of a body whose length is known, [`body`](Self::body) returns the rest.
    pub fn body_is_whole(&self) -> bool {
        let is_here = |left: u64| self.reading.data.is_empty() && self.inbox.len() as u64 >= left;
        self.reading.decoder.is_done() || self.reading.decoder.left().is_some_and(is_here)
    }

    /// Ends the body at the end of the stream. Returns true if the framing allows that; then the body is done.
    pub fn end_of_stream(&mut self) -> bool {
        let proper = self.reading.decoder.finish().is_ok();
        if proper {
            self.begin_reading(Framing::None);
        }
        proper
    }

    /// The trailer fields of a chunked body.
    pub fn trailers(&self) -> Option<&weir_http1::Headers> {
        Some(self.reading.decoder.trailers()).filter(|trailers| !trailers.is_empty())
    }

    // ---- the outgoing message ----

    /// Starts an outgoing body; its head is in the outbox.
    pub fn begin_writing(&mut self, framing: Framing) {
        self.touched = false;
        self.writing = match framing {
            Framing::None => Writing::Nothing,
            Framing::Length(n) => Writing::Sized(n),
            Framing::Chunked => Writing::Chunked(0),
            Framing::UntilClose => Writing::UntilClose,
        };
    }

    /// Sends some of the body's bytes and returns how many it took. Small pieces wait in the outbox for a flush.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let data = self.frame(data)?;
        let at_once = matches!(self.writing, Writing::Through(_));
        if !at_once && self.outbox.pending().len() + data.len() <= COPIED {
            self.outbox.writable().extend_from_slice(data);
            self.sent(data.len());
            return Poll::Ready(Ok(data.len()));
        }
        if self.outbox.is_empty() {
            let n = non_zero(ready!(self.io.poll_write(cx, data))?)?;
            self.touched = true;
            self.sent(n);
            return Poll::Ready(Ok(n));
        }
        let waiting = self.outbox.pending().len();
        let n = non_zero(ready!(
            self.io.poll_write_vectored(cx, &[IoSlice::new(self.outbox.pending()), IoSlice::new(data)])
        )?)?;
        self.touched = true;
        self.outbox.wrote(n.min(waiting));
        if n <= waiting {
            // Only what stood before the data went out; ask again.
            return self.poll_send_rest(cx, data);
        }
        self.sent(n - waiting);
        Poll::Ready(Ok(n - waiting))
    }

    fn poll_send_rest(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx))?;
        let n = non_zero(ready!(self.io.poll_write(cx, data))?)?;
        self.sent(n);
        Poll::Ready(Ok(n))
    }

    /// Opens a chunk where one is needed, and cuts the data to what the framing can take now.
    fn frame<'d>(&mut self, data: &'d [u8]) -> io::Result<&'d [u8]> {
        match &mut self.writing {
            Writing::Chunked(left) => {
                if *left == 0 {
                    encode::chunk_header(self.outbox.writable(), data.len());
                    *left = data.len();
                }
                Ok(&data[..data.len().min(*left)])
            }
            Writing::Sized(left) if data.len() as u64 > *left => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "the body is longer than its Content-Length"))
            }
            Writing::Sized(_) | Writing::UntilClose | Writing::Through(_) => Ok(data),
            Writing::Nothing => Err(io::Error::new(io::ErrorKind::InvalidData, "a body where none may be")),
        }
    }

    fn sent(&mut self, n: usize) {
        match &mut self.writing {
            Writing::Sized(left) => *left -= n as u64,
            Writing::Chunked(left) => {
                *left -= n;
                if *left == 0 {
                    self.outbox.writable().extend_from_slice(b"\r\n");
                }
            }
            Writing::Nothing | Writing::UntilClose | Writing::Through(_) => {}
        }
    }

    /// Ends the outgoing body. Fails if it is shorter than the head announced.
    pub fn end_body(&mut self, trailers: Option<&weir_http1::Headers>) -> io::Result<()> {
        match std::mem::replace(&mut self.writing, Writing::Nothing) {
            Writing::Chunked(_) => match trailers {
                None => self.outbox.writable().extend_from_slice(encode::LAST_CHUNK),
                Some(trailers) => encode::trailers(self.outbox.writable(), trailers),
            },
            Writing::Sized(left) if left > 0 => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the body is shorter than its Content-Length",
                ));
            }
            _ => {}
        }
        Ok(())
    }

    /// Aborts the message. If the end of the stream delimits it, resets the connection, because the peer would otherwise
    /// take the message, or what another protocol says, as complete. What the system has not sent so far is lost then.
    pub fn abort(&mut self) {
        if matches!(self.writing, Writing::UntilClose | Writing::Through(Ends::ByClose)) {
            self.io.reset_on_close();
        }
    }

    /// Flushes the buffered bytes.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbox.is_empty() {
            let n = non_zero(ready!(self.io.poll_write(cx, self.outbox.pending()))?)?;
            self.touched = true;
            self.outbox.wrote(n);
        }
        if matches!(self.writing, Writing::Through(_)) {
            self.outbox.release();
        }
        self.io.poll_flush(cx)
    }

    /// Flushes the buffered bytes, and closes the sending half.
    pub fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(cx))?;
        self.io.poll_shutdown(cx)
    }
}

fn non_zero(n: usize) -> io::Result<usize> {
    if n == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(n) }
}

//! The sending side of a stream.

use super::code::Code;
use super::qpack_encoder::{encode, encode_head, room};
use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use quinn::{VarInt, WriteError};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
/// The most bytes of a frame's type and length.
const FRAME_HEAD: usize = 1 + 8;

/// The sending side of a stream. What is written is queued, and goes on its way by [`SendStream::poll_sent`].
pub(super) struct SendStream {
    stream: RefCell<quinn::SendStream>,
    queue: RefCell<VecDeque<Bytes>>,
    /// What is queued waits for more, as it may have to be taken back.
    waits: Cell<bool>,
    /// What is queued is all.
    ends: Cell<bool>,
    stopped: RefCell<Stopped>,
}

/// Whether the client wants no more.
#[derive(Default)]
enum Stopped {
    #[default]
    Unasked,
    Asked(Pin<Box<dyn Future<Output = Result<Option<VarInt>, quinn::StoppedError>>>>),
    Known(bool),
}

impl SendStream {
    pub(super) fn new(stream: quinn::SendStream) -> Self {
        Self {
            stream: RefCell::new(stream),
            queue: RefCell::default(),
            waits: Cell::new(false),
            ends: Cell::new(false),
            stopped: RefCell::default(),
        }
    }

    /// Queues bytes as they are.
    pub(super) fn push(&self, bytes: Bytes) {
        self.queue.borrow_mut().push_back(bytes);
    }

    /// Queues the head of a response.
    pub(super) fn push_head(&self, status: u16, fields: &HeaderMap) {
        self.push_fields(|block| encode_head(block, status, fields), fields);
    }

    /// Queues the trailers of a response.
    pub(super) fn push_trailers(&self, fields: &HeaderMap) {
        self.push_fields(|block| encode(block, fields), fields);
    }

    fn push_fields(&self, write: impl FnOnce(&mut BytesMut), fields: &HeaderMap) {
        let mut frame = BytesMut::with_capacity(FRAME_HEAD + room(fields));
        frame.put_u8(HEADERS);
        frame.put_u32(0);
        let begin = frame.len();
        write(&mut frame);
        let length = frame.len() - begin;
        // A number of four bytes, however small it is.
        frame[begin - 4..begin].copy_from_slice(&(length as u32 | 0b10 << 30).to_be_bytes());
        self.push(frame.freeze());
    }

    /// Queues a piece of a body.
    pub(super) fn push_data(&self, data: &[u8]) {
        let mut frame = BytesMut::with_capacity(FRAME_HEAD + data.len());
        frame.put_u8(DATA);
        put_number(&mut frame, data.len() as u64);
        frame.extend_from_slice(data);
        self.push(frame.freeze());
    }

    /// Has what is written from here on wait until [`SendStream::poll_sent`]. Nothing waits so far.
    pub(super) fn wait(&self) {
        self.waits.set(self.queue.borrow().is_empty());
    }

    /// Whether what was written waits.
    pub(super) fn waits(&self) -> bool {
        self.waits.get()
    }

    /// Takes back what waits.
    pub(super) fn retract(&self) {
        self.waits.set(false);
        self.queue.borrow_mut().clear();
    }

    /// Ready when all that was written is on its way.
    pub(super) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<Result<(), WriteError>> {
        self.waits.set(false);
        let (mut stream, mut queue) = (self.stream.borrow_mut(), self.queue.borrow_mut());
        while !queue.is_empty() {
            let written = ready!(pin!(stream.write_chunks(queue.make_contiguous())).poll(cx))?;
            queue.drain(..written.chunks);
        }
        if self.ends.replace(false) {
            // One that is closed already has ended.
            let _ = stream.finish();
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when the client wants no more of it (true) or has all of it.
    pub(super) fn poll_stopped(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut stopped = self.stopped.borrow_mut();
        if matches!(*stopped, Stopped::Unasked) {
            *stopped = Stopped::Asked(Box::pin(self.stream.borrow().stopped()));
        }
        if let Stopped::Asked(asked) = &mut *stopped {
            let early = !matches!(ready!(asked.as_mut().poll(cx)), Ok(None));
            *stopped = Stopped::Known(early);
        }
        Poll::Ready(matches!(*stopped, Stopped::Known(true)))
    }

    /// Ready when the client has all of it, or wants no more.
    pub(super) fn poll_done(&self, cx: &mut Context<'_>) -> Poll<()> {
        match ready!(self.poll_sent(cx)) {
            Ok(()) => self.poll_stopped(cx).map(drop),
            Err(_) => Poll::Ready(()),
        }
    }

    /// Nothing follows what is written.
    pub(super) fn end(&self) {
        self.ends.set(true);
    }

    /// Breaks it off.
    pub(super) fn reset(&self, code: Code) {
        self.queue.borrow_mut().clear();
        // Whether that arrives is of no concern.
        *self.stopped.borrow_mut() = Stopped::Known(true);
        // One that is closed already cannot be broken off.
        let _ = self.stream.borrow_mut().reset(code.number());
    }
}

/// Writes a number as QUIC does (RFC 9000, 16).
pub(super) fn put_number(into: &mut impl BufMut, number: u64) {
    match number {
        0..0x40 => into.put_u8(number as u8),
        0x40..0x4000 => into.put_u16(number as u16 | 0b01 << 14),
        0x4000..0x4000_0000 => into.put_u32(number as u32 | 0b10 << 30),
        _ => into.put_u64(number | 0b11 << 62),
    }
}

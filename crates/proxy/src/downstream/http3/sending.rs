//! The sending side of a stream.

use super::quic::{lost, of_connection};
use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{self, StreamErrorIncoming, StreamId, WriteBuf};
use quinn::{VarInt, WriteError};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// The sending side of a stream. It queues what the `h3` crate writes, so that the crate's futures never wait; the
/// caller must flush the queue before it lets the crate write more.
pub(super) struct SendStream {
    stream: RefCell<quinn::SendStream>,
    queue: RefCell<VecDeque<WriteBuf<Bytes>>>,
    /// What is queued waits for more, as it may have to be taken back.
    waits: Cell<bool>,
    /// What is queued is all.
    ends: Cell<bool>,
    stopped: RefCell<Stopped>,
    /// Bytes of the request's body that the `h3` crate was given and has not handed on.
    pub(super) held: Cell<u64>,
    /// Bytes of its heads that came.
    pub(super) heads: Cell<usize>,
    /// Its path has a `#`.
    pub(super) has_fragment: Cell<bool>,
    /// The error code that the client got for an invalid request.
    pub(super) refused: Cell<Option<Code>>,
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
            held: Cell::new(0),
            heads: Cell::new(0),
            has_fragment: Cell::new(false),
            refused: Cell::new(None),
        }
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
        while let Some(first) = queue.front_mut() {
            while first.has_remaining() {
                let n = ready!(Pin::new(&mut *stream).poll_write(cx, first.chunk()))?;
                first.advance(n);
            }
            queue.pop_front();
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
    pub(super) fn reset(&self, code: VarInt) {
        self.queue.borrow_mut().clear();
        // Whether that arrives is of no concern.
        *self.stopped.borrow_mut() = Stopped::Known(true);
        // One that is closed already cannot be broken off.
        let _ = self.stream.borrow_mut().reset(code);
    }
}

/// The same for the `h3` crate.
pub(super) struct Sending {
    send_stream: Rc<SendStream>,
    id: StreamId,
}

impl Sending {
    pub(super) fn new(send_stream: Rc<SendStream>, id: StreamId) -> Self {
        Self { send_stream, id }
    }
}

impl quic::SendStream<Bytes> for Sending {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        if self.send_stream.waits() {
            return Poll::Ready(Ok(()));
        }
        match self.send_stream.poll_sent(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(unwritten(error))),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(())),
        }
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send_stream.queue.borrow_mut().push_back(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send_stream.end();
        self.poll_ready(cx)
    }

    fn reset(&mut self, code: u64) {
        self.send_stream.reset(VarInt::from_u64(code).unwrap_or(VarInt::MAX));
    }

    fn send_id(&self) -> StreamId {
        self.id
    }
}

fn unwritten(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(code) => StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() },
        WriteError::ConnectionLost(error) => of_connection(lost(error)),
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

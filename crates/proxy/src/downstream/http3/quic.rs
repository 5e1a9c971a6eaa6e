//! QUIC as the `h3` crate takes it, by `quinn`. The crate's own such layer, `h3-quinn`, panics where reading is stopped
//! while a read waits, and does not tell that a client wants no more of a response.

use super::one_way::OneWay;
use super::receiving::Receiving;
use super::sending::{SendStream, Sending};
use bytes::Bytes;
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use quinn::{ConnectionError, VarInt};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

type Opening<T> = Pin<Box<dyn Future<Output = Result<T, ConnectionError>>>>;
type BothWays = (quinn::SendStream, quinn::RecvStream);

/// A connection.
pub(super) struct Connection {
    quic: quinn::Connection,
    both_ways: Opening<BothWays>,
    one_way: OneWay,
    opening: Option<Opening<quinn::SendStream>>,
    longest_head: u64,
    /// The stream that was accepted last.
    pub(super) last: Rc<RefCell<Option<Rc<SendStream>>>>,
}

impl Connection {
    /// A connection whose requests have heads of at most so many bytes.
    pub(super) fn new(quic: quinn::Connection, longest_head: u64) -> Self {
        Self {
            both_ways: accept_both_ways(quic.clone()),
            one_way: OneWay::new(quic.clone()),
            quic,
            opening: None,
            longest_head,
            last: Rc::default(),
        }
    }
}

fn accept_both_ways(quic: quinn::Connection) -> Opening<BothWays> {
    Box::pin(async move { quic.accept_bi().await })
}

impl quic::Connection<Bytes> for Connection {
    type RecvStream = Receiving;
    type OpenStreams = Connection;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::RecvStream, ConnectionErrorIncoming>> {
        let (stream, begun, control) = ready!(self.one_way.poll(cx))?;
        let id = id(stream.id())?;
        Poll::Ready(Ok(Receiving::control((stream, id), self.quic.clone(), begun, control)))
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, ConnectionErrorIncoming>> {
        let (send, receive) = ready!(self.both_ways.as_mut().poll(cx)).map_err(lost)?;
        self.both_ways = accept_both_ways(self.quic.clone());
        let id = id(send.id())?;
        let send_stream = Rc::new(SendStream::new(send));
        *self.last.borrow_mut() = Some(send_stream.clone());
        let receiving =
            Receiving::request((receive, id), self.quic.clone(), send_stream.clone(), self.longest_head);
        Poll::Ready(Ok(Stream { sending: Sending::new(send_stream, id), receiving }))
    }

    fn opener(&self) -> Self::OpenStreams {
        Self::new(self.quic.clone(), self.longest_head)
    }
}

impl quic::OpenStreams<Bytes> for Connection {
    type BidiStream = Stream;
    type SendStream = Sending;

    /// Nothing is asked of clients.
    fn poll_open_bidi(&mut self, _: &mut Context<'_>) -> Poll<Result<Stream, StreamErrorIncoming>> {
        let connection_error = ConnectionErrorIncoming::InternalError("servers ask nothing".to_owned());
        Poll::Ready(Err(StreamErrorIncoming::ConnectionErrorIncoming { connection_error }))
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<Sending, StreamErrorIncoming>> {
        let quic = &self.quic;
        let opening = self.opening.get_or_insert_with(|| {
            let quic = quic.clone();
            Box::pin(async move { quic.open_uni().await })
        });
        let opened = ready!(opening.as_mut().poll(cx));
        self.opening = None;
        let stream = opened.map_err(|error| of_connection(lost(error)))?;
        let id = id(stream.id()).map_err(of_connection)?;
        Poll::Ready(Ok(Sending::new(Rc::new(SendStream::new(stream)), id)))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        close(&self.quic, code, reason);
    }
}

/// Ends a connection at once.
pub(super) fn close(quic: &quinn::Connection, code: Code, reason: &[u8]) {
    quic.close(number(code), reason);
}

pub(super) fn number(code: Code) -> VarInt {
    VarInt::from_u64(code.value()).unwrap_or(VarInt::MAX)
}

pub(super) fn lost(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(closed) => {
            ConnectionErrorIncoming::ApplicationClose { error_code: closed.error_code.into_inner() }
        }
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        error => ConnectionErrorIncoming::Undefined(Arc::new(error)),
    }
}

pub(super) fn of_connection(connection_error: ConnectionErrorIncoming) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error }
}

fn id(id: quinn::StreamId) -> Result<StreamId, ConnectionErrorIncoming> {
    let too_large = |_| ConnectionErrorIncoming::InternalError("a stream's number is too large".to_owned());
    StreamId::try_from(u64::from(id)).map_err(too_large)
}

/// A stream of both directions: a request and its response.
pub(super) struct Stream {
    sending: Sending,
    receiving: Receiving,
}

impl quic::BidiStream<Bytes> for Stream {
    type SendStream = Sending;
    type RecvStream = Receiving;

    fn split(self) -> (Sending, Receiving) {
        (self.sending, self.receiving)
    }
}

impl quic::SendStream<Bytes> for Stream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.sending.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.sending.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.sending.poll_finish(cx)
    }

    fn reset(&mut self, code: u64) {
        self.sending.reset(code);
    }

    fn send_id(&self) -> StreamId {
        self.sending.send_id()
    }
}

impl quic::RecvStream for Stream {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.receiving.poll_data(cx)
    }

    fn stop_sending(&mut self, code: u64) {
        self.receiving.stop_sending(code);
    }

    fn recv_id(&self) -> StreamId {
        self.receiving.recv_id()
    }
}

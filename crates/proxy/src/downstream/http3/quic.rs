//! A client's connection: the streams of its requests, and what is said of the connection itself (RFC 9114, 6.2.1).

use super::one_way::OneWay;
use super::receiving::Receiving;
use super::sending::{SendStream, put_number};
use bytes::BytesMut;
use quinn::ConnectionError;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The type of the control stream.
const CONTROL: u64 = 0x0;
/// Types of frames.
const SETTINGS: u64 = 0x4;
const GOAWAY: u64 = 0x7;
/// A setting.
const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
/// The number that no request exceeds.
const LAST_REQUEST: u64 = (1 << 62) - 4;
/// Requests have every fourth number.
const NEXT_REQUEST: u64 = 4;

type BothWays = (quinn::SendStream, quinn::RecvStream);
type Accepting = Pin<Box<dyn Future<Output = Result<BothWays, ConnectionError>>>>;

/// The two sides of a request's stream.
pub(super) type Accepted = (Receiving, Rc<SendStream>);

/// A client's connection.
pub(super) struct Http3Connection {
    quic: quinn::Connection,
    accepting: Accepting,
    one_way: OneWay,
    control: SendStream,
    longest_head: u64,
    /// The number of the first request that has not come.
    next: u64,
}

impl Http3Connection {
    /// Says how large a head may be.
    pub(super) async fn open(quic: quinn::Connection, max_head: u32) -> Result<Self, ConnectionError> {
        let control = SendStream::new(quic.open_uni().await?);
        let (mut setting, mut bytes) = (BytesMut::new(), BytesMut::new());
        put_number(&mut setting, MAX_FIELD_SECTION_SIZE);
        put_number(&mut setting, max_head.into());
        put_number(&mut bytes, CONTROL);
        put_number(&mut bytes, SETTINGS);
        put_number(&mut bytes, setting.len() as u64);
        bytes.extend_from_slice(&setting);
        let accepting = accept(quic.clone());
        let one_way = OneWay::new(quic.clone());
        // Compressed, a head is hardly longer than it is; one that is a little too long can still be answered.
        let longest_head = 2 * u64::from(max_head);
        let connection = Self { quic, accepting, one_way, control, longest_head, next: 0 };
        connection.say(bytes);
        Ok(connection)
    }

    /// Writes on the control stream. What a client does not take has to wait.
    fn say(&self, bytes: BytesMut) {
        self.control.push(bytes.freeze());
        let saying = self.control.poll_sent(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(Err(error)) = saying {
            tracing::debug!("the control stream of a connection over HTTP/3 has ended: {error}");
        }
    }

    /// Takes the stream of the next request. Whatever else the client says is read on the way.
    pub(super) fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Accepted, ConnectionError>> {
        self.one_way.poll(cx)?;
        // What had to wait on the control stream: SETTINGS or GOAWAY, behind a full window.
        let _ = self.control.poll_sent(cx);
        let (send, receive) = std::task::ready!(self.accepting.as_mut().poll(cx))?;
        self.accepting = accept(self.quic.clone());
        self.next = self.next.max(u64::from(send.id()) + NEXT_REQUEST);
        let send_stream = Rc::new(SendStream::new(send));
        let receiving = Receiving::new(receive, self.quic.clone(), send_stream.clone(), self.longest_head);
        Poll::Ready(Ok((receiving, send_stream)))
    }

    /// Whether the client has said that it asks nothing more.
    pub(super) fn client_leaves(&self) -> bool {
        self.one_way.client_leaves()
    }

    /// Announces that the connection will end. Requests that are on their way are still served (RFC 9114, 5.2).
    pub(super) fn announce_goaway(&self) {
        self.goaway(LAST_REQUEST);
    }

    /// Says that the next request is the first that is not looked at.
    pub(super) fn say_goaway(&self) {
        self.goaway(self.next);
    }

    fn goaway(&self, first_ignored: u64) {
        let (mut id, mut bytes) = (BytesMut::new(), BytesMut::new());
        put_number(&mut id, first_ignored);
        put_number(&mut bytes, GOAWAY);
        put_number(&mut bytes, id.len() as u64);
        bytes.extend_from_slice(&id);
        self.say(bytes);
    }
}

fn accept(quic: quinn::Connection) -> Accepting {
    Box::pin(async move { quic.accept_bi().await })
}

//! A connection that carries frames in memory: each takes a while, and all is over once the connection is cut.
use futures_util::{Sink, Stream};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_tungstenite::tungstenite::{Error, Message as Frame};

/// One end of a connection.
pub(super) struct Wire {
    sender: UnboundedSender<(Instant, Frame)>,
    receiver: UnboundedReceiver<(Instant, Frame)>,
    /// The next frame, until it has arrived.
    next: Option<Frame>,
    arrival: Pin<Box<Sleep>>,
    cut: Pin<Box<Sleep>>,
    latency: Duration,
    /// When all that was sent has left.
    busy: Instant,
}

/// How many bytes leave in a millisecond: a chunk of a transfer takes a while, in which the connection can be cut.
const BYTES_IN_MILLISECOND: u64 = 200;

/// The two ends of a connection that is cut at a moment.
pub(super) fn connection(latency: Duration, cut: Instant) -> (Wire, Wire) {
    let (ways, back) = (unbounded_channel(), unbounded_channel());
    let end = |sender, receiver| Wire {
        sender,
        receiver,
        next: None,
        arrival: Box::pin(sleep_until(cut)),
        cut: Box::pin(sleep_until(cut)),
        latency,
        busy: Instant::now(),
    };
    (end(ways.0, back.1), end(back.0, ways.1))
}

impl Wire {
    fn is_cut(&self) -> bool {
        Instant::now() >= self.cut.deadline()
    }
}

impl Stream for Wire {
    type Item = Result<Frame, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(Error::ConnectionClosed)));
        }
        if self.next.is_none() {
            let Some((at, frame)) = ready!(self.receiver.poll_recv(cx)) else { return Poll::Ready(None) };
            self.next = Some(frame);
            self.arrival.as_mut().reset(at);
        }
        ready!(self.arrival.as_mut().poll(cx));
        Poll::Ready(self.next.take().map(Ok))
    }
}

impl Sink<Frame> for Wire {
    type Error = Error;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(if self.is_cut() { Err(Error::ConnectionClosed) } else { Ok(()) })
    }

    fn start_send(mut self: Pin<&mut Self>, frame: Frame) -> Result<(), Error> {
        let takes = Duration::from_millis(frame.len() as u64 / BYTES_IN_MILLISECOND);
        self.busy = self.busy.max(Instant::now()) + takes;
        let sent = self.sender.send((self.busy + self.latency, frame));
        sent.map_err(|_| Error::ConnectionClosed)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }
}

//! Detects dead peers with keep-alive pings while a connection has open streams.

use crate::deadline::Deadline;
use h2::{Ping, PingPong};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// Pings while streams are open.
pub struct KeepAlivePing {
    pings: PingPong,
    interval: Duration,
    deadline: Deadline,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No ping is scheduled.
    Idle,
    /// A ping is sent at the deadline.
    Waiting,
    /// A ping was sent; the peer has until the deadline to acknowledge it.
    Pinged,
}

impl KeepAlivePing {
    /// Pings at this interval; zero disables pings.
    pub fn new(pings: PingPong, interval: Duration) -> Self {
        Self { pings, interval, deadline: Deadline::default(), state: State::Idle }
    }

    /// Ready when the peer has not acknowledged a ping in time.
    pub fn poll(&mut self, cx: &mut Context<'_>, busy: bool) -> Poll<()> {
        let answered = matches!(self.pings.poll_pong(cx), Poll::Ready(Ok(_)));
        if !busy || self.interval.is_zero() {
            self.state = State::Idle;
            return Poll::Pending;
        }
        if answered || self.state == State::Idle {
            self.begin(State::Waiting);
        }
        while self.deadline.poll(cx).is_ready() {
            if self.state == State::Pinged || self.pings.send_ping(Ping::opaque()).is_err() {
                return Poll::Ready(());
            }
            self.begin(State::Pinged);
        }
        Poll::Pending
    }

    fn begin(&mut self, state: State) {
        self.state = state;
        self.deadline.set(Instant::now(), self.interval);
    }
}

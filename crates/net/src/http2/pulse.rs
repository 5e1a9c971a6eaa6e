//! Whether the other end of a connection is still there, where it should be.

use crate::deadline::Deadline;
use h2::{Ping, PingPong};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Pings while streams are open.
pub struct Pulse {
    pings: PingPong,
    interval: Duration,
    deadline: Deadline,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is expected of the other end.
    Resting,
    /// It will be asked at the deadline.
    Quiet,
    /// It was asked, and has until the deadline to answer.
    Asked,
}

impl Pulse {
    /// Asks so often; zero is never.
    pub fn new(pings: PingPong, interval: Duration) -> Self {
        Self { pings, interval, deadline: Deadline::default(), state: State::Resting }
    }

    /// Ready when the other end owes an answer for too long.
    pub fn poll(&mut self, cx: &mut Context<'_>, busy: bool) -> Poll<()> {
        let answered = matches!(self.pings.poll_pong(cx), Poll::Ready(Ok(_)));
        if !busy || self.interval.is_zero() {
            self.state = State::Resting;
            return Poll::Pending;
        }
        if answered || self.state == State::Resting {
            self.begin(State::Quiet);
        }
        while self.deadline.poll(cx).is_ready() {
            if self.state == State::Asked || self.pings.send_ping(Ping::opaque()).is_err() {
                return Poll::Ready(());
            }
            self.begin(State::Asked);
        }
        Poll::Pending
    }

    fn begin(&mut self, state: State) {
        self.state = state;
        self.deadline.set(Instant::now(), self.interval);
    }
}

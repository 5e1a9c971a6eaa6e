//! Delays the reset of an aborted response, because a reset discards what the connection's task has not sent yet.

use std::task::{Context, Poll};

/// How many turns the task has.
const TURNS: u8 = 2;

/// Turns of the connection's task, which was woken before the task of the request: one in which to send what waits, and
/// another in which to see what the socket takes.
#[derive(Default)]
pub(crate) struct SendTurns(u8);

impl SendTurns {
    /// Ready once the connection's task has had its turns.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.0 == TURNS {
            return Poll::Ready(());
        }
        self.0 += 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

//! A deadline for the peer to send something, which moves as bytes arrive.
use super::BYTES_PER_SECOND;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Starts when it is first polled.
pub(super) struct TransferDeadline {
    limit: Duration,
    left: Option<Pin<Box<Sleep>>>,
}

impl TransferDeadline {
    pub(super) fn new(limit: Duration) -> TransferDeadline {
        TransferDeadline { limit, left: None }
    }

    /// Extends the deadline, because the peer sent so many bytes.
    pub(super) fn extend(&mut self, bytes: usize) {
        if let Some(left) = &mut self.left {
            let more = Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND as f64);
            let deadline = left.deadline() + more;
            left.as_mut().reset(deadline);
        }
    }

    /// Ready when the deadline has passed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        self.left.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx)
    }
}

//! How long the other side may take to send something: a while, and longer the more it has sent.
use super::BYTES_PER_SECOND;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Begins when it is first polled, and is used up by time alone.
pub(super) struct Budget {
    limit: Duration,
    left: Option<Pin<Box<Sleep>>>,
}

impl Budget {
    pub(super) fn new(limit: Duration) -> Budget {
        Budget { limit, left: None }
    }

    /// The other side sent so many bytes.
    pub(super) fn extend(&mut self, bytes: usize) {
        if let Some(left) = &mut self.left {
            let more = Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND as f64);
            let deadline = left.deadline() + more;
            left.as_mut().reset(deadline);
        }
    }

    /// Ready when it is used up.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        self.left.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx)
    }
}

//! The requests to the node's own APIs that a node which stops waits for.
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Counts the connections with a request that is not answered to its end: those that have begun before the node waits for
/// them, because others may always come.
pub(crate) struct RequestsInFlight {
    counted: watch::Sender<usize>,
    is_closed: AtomicBool,
}

impl RequestsInFlight {
    pub(crate) fn new() -> RequestsInFlight {
        RequestsInFlight { counted: watch::Sender::new(0), is_closed: AtomicBool::new(false) }
    }

    /// Whether it was counted, so that it has to be removed.
    pub(super) fn add(&self) -> bool {
        let is_open = !self.is_closed.load(Ordering::Acquire);
        if is_open {
            self.counted.send_modify(|count| *count += 1);
        }
        is_open
    }

    pub(super) fn remove(&self) {
        self.counted.send_modify(|count| *count -= 1);
    }

    /// Counts one that is no request of a listener, until the guard is dropped.
    pub(crate) fn hold(&self) -> Option<InFlight<'_>> {
        self.add().then_some(InFlight(self))
    }

    /// Waits until those that have begun have ended.
    pub(crate) async fn ended(&self) {
        self.is_closed.store(true, Ordering::Release);
        // It fails if the sender is gone, which `self` has.
        let _ = self.counted.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// Counted until it is dropped.
pub(crate) struct InFlight<'r>(&'r RequestsInFlight);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn those_that_begin_later_are_not_waited_for() {
        let requests = RequestsInFlight::new();
        assert!(requests.add());
        let mut ended = std::pin::pin!(requests.ended());
        let mut poll = || ended.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(poll(), Poll::Pending);
        assert!(!requests.add(), "another may always come");
        assert_eq!(poll(), Poll::Pending);
        requests.remove();
        assert_eq!(poll(), Poll::Ready(()));
    }
}

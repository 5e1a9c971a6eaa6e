//! The requests to the node's own APIs that a node which stops waits for.
use tokio::sync::watch;

/// Counts the connections with a request that is not answered to its end.
pub(crate) struct RequestsInFlight(watch::Sender<usize>);

impl RequestsInFlight {
    pub(crate) fn new() -> RequestsInFlight {
        RequestsInFlight(watch::Sender::new(0))
    }

    pub(super) fn add(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    pub(super) fn remove(&self) {
        self.0.send_modify(|count| *count -= 1);
    }

    /// Waits until there is none.
    pub(crate) async fn ended(&self) {
        // It fails if the sender is gone, which `self` has.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

//! Samples for those who watch, through queues of bounded length.
use super::Sample;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};

/// Samples that wait for one subscriber.
const QUEUE_LEN: usize = 1_024;

#[derive(Debug)]
struct Subscriber {
    queue: SyncSender<Arc<Sample>>,
    dropped: Arc<AtomicU64>,
}

/// Everyone who watches.
#[derive(Debug, Default)]
pub struct Tail {
    subscribers: Vec<Subscriber>,
}

/// The samples that arrive from now on.
#[derive(Debug)]
pub struct TailSubscription {
    queue: Receiver<Arc<Sample>>,
    dropped: Arc<AtomicU64>,
}

impl Tail {
    /// Begins to watch. Dropping the subscription ends it.
    pub fn subscribe(&mut self) -> TailSubscription {
        let (sender, queue) = mpsc::sync_channel(QUEUE_LEN);
        let dropped = Arc::<AtomicU64>::default();
        self.subscribers.push(Subscriber { queue: sender, dropped: Arc::clone(&dropped) });
        TailSubscription { queue, dropped }
    }

    /// Whether there is a subscriber.
    pub fn is_watched(&self) -> bool {
        !self.subscribers.is_empty()
    }

    pub(super) fn send(&mut self, sample: &Arc<Sample>) {
        self.subscribers.retain(|subscriber| match subscriber.queue.try_send(Arc::clone(sample)) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                subscriber.dropped.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        });
    }
}

impl TailSubscription {
    /// The samples that have arrived since the previous call.
    pub fn poll(&self) -> Vec<Arc<Sample>> {
        self.queue.try_iter().collect()
    }

    /// The samples that the subscriber has missed, because it was too slow.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

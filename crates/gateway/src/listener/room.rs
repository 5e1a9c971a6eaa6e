//! How many connections a listener has, and which of them makes way for another.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Room for so many connections.
pub(super) struct Room {
    pub(super) size: usize,
    free: Arc<Semaphore>,
    next: AtomicU64,
    /// Those that have not sent a whole head yet, in the order they came, and how to close them.
    silent: Mutex<BTreeMap<u64, Arc<Notify>>>,
}

/// A place for one connection.
pub(super) struct Place {
    room: Arc<Room>,
    number: u64,
    close: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl Room {
    pub(super) fn new(size: usize) -> Room {
        Room { size, free: Arc::new(Semaphore::new(size)), next: AtomicU64::new(0), silent: Mutex::default() }
    }

    fn silent(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Notify>>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place. Where all are taken, `full` is called, and whoever has been silent longest is closed.
    pub(super) async fn place(&self, full: impl FnOnce(bool)) -> Option<OwnedSemaphorePermit> {
        let free = self.free.clone().try_acquire_owned();
        full(free.is_err());
        if let Ok(place) = free {
            return Some(place);
        }
        if let Some((_, close)) = self.silent().pop_first() {
            close.notify_one();
        }
        self.free.clone().acquire_owned().await.ok()
    }

    /// Takes a place for a connection, which is silent so far.
    pub(super) fn take(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Place {
        let (number, close) = (self.next.fetch_add(1, Ordering::Relaxed), Arc::new(Notify::new()));
        self.silent().insert(number, close.clone());
        Place { room: self.clone(), number, close, _permit: permit }
    }
}

impl Place {
    /// The connection has sent a whole head.
    pub(super) fn has_asked(&self) {
        self.room.silent().remove(&self.number);
    }

    /// Returns when the connection has to make way.
    pub(super) async fn closed(&self) {
        self.close.notified().await;
    }

    /// Whether more than half of the room is taken, so that nobody is kept there who is idle.
    pub(super) fn is_scarce(&self) -> bool {
        self.room.free.available_permits() < self.room.size / 2
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.has_asked();
    }
}

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
    /// Those of which no request is being answered, in the order in which that began, and how to close them.
    silent: Mutex<BTreeMap<u64, Arc<Notify>>>,
}

/// A place for one connection.
pub(super) struct Place {
    room: Arc<Room>,
    /// Under which it is among the silent.
    number: AtomicU64,
    close: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl Room {
    pub(super) fn new(size: usize) -> Room {
        Room { size, free: Arc::new(Semaphore::new(size)), next: AtomicU64::new(1), silent: Mutex::default() }
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
        let (number, close) = (AtomicU64::default(), Arc::new(Notify::new()));
        let place = Place { room: self.clone(), number, close, _permit: permit };
        place.falls_silent();
        place
    }
}

impl Place {
    /// The connection has sent a whole head.
    pub(super) fn has_asked(&self) {
        self.room.silent().remove(&self.number.load(Ordering::Relaxed));
    }

    /// The connection has nothing to be answered: it may be closed to make way, the last of those that are silent now.
    pub(super) fn falls_silent(&self) {
        let number = self.room.next.fetch_add(1, Ordering::Relaxed);
        let mut silent = self.room.silent();
        silent.remove(&self.number.swap(number, Ordering::Relaxed));
        silent.insert(number, self.close.clone());
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

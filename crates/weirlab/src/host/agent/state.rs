//! What an agent has started, by number.
use crate::driver::Running;
use crate::host::{IdleConnections, Server, Trees};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Something that was started. Its lock is held while it is used, so that one slow gateway delays no other.
pub(super) type Shared<T> = Arc<Mutex<T>>;

/// What was started.
#[derive(Clone)]
pub(super) enum Item {
    Running(Shared<Box<dyn Running>>),
    Trees(Shared<Box<dyn Trees>>),
    Idle(Shared<Box<dyn IdleConnections>>),
    /// Held until it is to end.
    Server(#[expect(dead_code, reason = "dropping it ends the server")] Arc<dyn Server>),
}

/// All that was started, and the loads in flight.
#[derive(Default)]
pub(super) struct State(Mutex<Items>);

#[derive(Default)]
struct Items {
    items: HashMap<u64, Item>,
    /// Flags that stop a request, by its number.
    stops: HashMap<u64, Arc<AtomicBool>>,
    /// Whether the session is gone, which stops whatever begins now.
    over: bool,
    next: u64,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn shared<T>(value: T) -> Shared<T> {
    Arc::new(Mutex::new(value))
}

impl State {
    /// Keeps something and gives it a number.
    pub(super) fn keep(&self, item: Item) -> u64 {
        let mut state = lock(&self.0);
        state.next += 1;
        let id = state.next;
        state.items.insert(id, item);
        id
    }

    pub(super) fn get(&self, id: u64) -> Option<Item> {
        lock(&self.0).items.get(&id).cloned()
    }

    /// Ends something, unless it was ended before.
    pub(super) fn end(&self, id: u64) {
        let item = lock(&self.0).items.remove(&id);
        drop(item);
    }

    /// A flag that stops the request of this number.
    pub(super) fn stop_of(&self, request: u64) -> Arc<AtomicBool> {
        let mut state = lock(&self.0);
        let over = state.over;
        let stop = state.stops.entry(request).or_default();
        stop.fetch_or(over, Ordering::Relaxed);
        Arc::clone(stop)
    }

    pub(super) fn forget_stop(&self, request: u64) {
        lock(&self.0).stops.remove(&request);
    }

    /// Raises all flags, those of requests to come too.
    pub(super) fn stop_all(&self) {
        let mut state = lock(&self.0);
        state.over = true;
        state.stops.values().for_each(|stop| stop.store(true, Ordering::Relaxed));
    }
}

//! The shared counters of the requests of one connection.

use super::resets::Resets;
use crate::exchange::Connection;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

/// What the streams of one connection count.
pub(crate) struct StreamStats {
    pub(crate) connection: Rc<Connection>,
    /// Exchanges in flight.
    live: Cell<u32>,
    /// How large their heads are together: one byte of a compressed head may stand for thousands.
    heads: Cell<usize>,
    /// Requests that the client gave up.
    pub(crate) resets: Resets,
    /// Who wants to know when an exchange ends.
    waiting: RefCell<Option<Waker>>,
}

impl StreamStats {
    /// The stats of a connection whose client may give up so many requests in a second.
    pub(crate) fn new(connection: Rc<Connection>, max_resets: u32) -> Rc<Self> {
        Rc::new(Self {
            connection,
            live: Cell::new(0),
            heads: Cell::new(0),
            resets: Resets::new(max_resets),
            waiting: RefCell::default(),
        })
    }

    /// How many exchanges are in flight.
    pub(crate) fn live(&self) -> u32 {
        self.live.get()
    }

    /// Whether a head of this size is more than the connection may hold, beside those of others.
    pub(crate) fn is_too_much(&self, head: usize, most: u32) -> bool {
        self.live.get() > 0 && self.heads.get() + head > most as usize
    }

    /// Enters an exchange whose head has this size, and returns how many requests came so far.
    pub(crate) fn enter(self: &Rc<Self>, head: usize) -> (InFlightGuard, u64) {
        let requests = self.connection.requests.get() + 1;
        self.connection.requests.set(requests);
        self.live.set(self.live.get() + 1);
        self.heads.set(self.heads.get() + head);
        (InFlightGuard { stats: self.clone(), head }, requests)
    }

    /// Wakes the task when the next exchange ends.
    pub(crate) fn wait(&self, cx: &Context<'_>) {
        self.waiting.borrow_mut().get_or_insert_with(|| cx.waker().clone());
    }
}

/// Leaves the stats when the exchange ends, however it ends.
pub(crate) struct InFlightGuard {
    pub(crate) stats: Rc<StreamStats>,
    /// How large its head is, while that is held.
    head: usize,
}

impl InFlightGuard {
    /// The head has another size than was known. Whether that is more than the connection may hold, beside other heads.
    pub(crate) fn resize(&mut self, head: usize, most: u32) -> bool {
        let heads = self.stats.heads.get() - self.head + head;
        self.head = head;
        self.stats.heads.set(heads);
        heads > head && heads > most as usize
    }

    pub(crate) fn leave_head(&mut self) {
        let heads = &self.stats.heads;
        heads.set(heads.get() - std::mem::take(&mut self.head));
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.leave_head();
        self.stats.live.set(self.stats.live.get() - 1);
        if let Some(waiting) = self.stats.waiting.take() {
            waiting.wake();
        }
    }
}

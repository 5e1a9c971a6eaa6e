//! The light threads that code has begun in a call.

use crate::operation::{Operation, Outcome};
use mlua::{MultiValue, RegistryKey};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

/// How many light threads a call has at a time.
const MAX_LIGHT: usize = 256;

/// The number of the coroutine that a call began with.
pub(crate) const ENTRY: u64 = 0;

/// The light threads of a call.
pub(crate) struct Group {
    /// No other group has it.
    pub(crate) number: u64,
    last: Cell<u64>,
    alive: Cell<usize>,
    /// Those that wait for the first time.
    pub(crate) begun: RefCell<Vec<Waiting>>,
    pub(crate) killed: RefCell<Vec<u64>>,
    changes: watch::Sender<()>,
}

impl Group {
    /// None yet.
    pub(crate) fn new() -> Rc<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        Rc::new(Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            last: Cell::new(ENTRY),
            alive: Cell::new(0),
            begun: RefCell::default(),
            killed: RefCell::default(),
            changes: watch::Sender::default(),
        })
    }

    /// The number of a further light thread.
    pub(crate) fn begin(&self) -> mlua::Result<u64> {
        if self.alive.get() >= MAX_LIGHT {
            let message = format!("a call has at most {MAX_LIGHT} light threads: wait for some of them");
            return Err(mlua::Error::runtime(message));
        }
        self.alive.set(self.alive.get() + 1);
        self.last.set(self.last.get() + 1);
        Ok(self.last.get())
    }

    /// A light thread has been suspended for the first time.
    pub(crate) fn park(&self, thread: RegistryKey, number: u64, operation: Option<Operation>) {
        let operation = operation.unwrap_or_else(soon);
        self.begun.borrow_mut().push(Waiting { thread, number, operation });
    }

    /// A light thread has ended.
    pub(crate) fn end(&self) {
        self.alive.set(self.alive.get().saturating_sub(1));
        self.changes.send_replace(());
    }

    /// A light thread is to end.
    pub(crate) fn kill(&self, number: u64) {
        self.killed.borrow_mut().push(number);
        self.end();
    }

    /// Completes when a light thread has ended after this was called.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + use<> {
        let mut changes = self.changes.subscribe();
        async move {
            // Without a sender the call has ended.
            let _ = changes.changed().await;
        }
    }
}

/// What a coroutine that has yielded waits for so that others go on first.
pub(crate) fn soon() -> Operation {
    Box::pin(async {
        tokio::task::yield_now().await;
        let outcome: Outcome = Box::new(|_| Ok(MultiValue::new()));
        outcome
    })
}

/// A coroutine that waits. The VM keeps it: handles of values that live long would fill the stack that they are on.
pub(crate) struct Waiting {
    pub(crate) thread: RegistryKey,
    pub(crate) number: u64,
    pub(crate) operation: Operation,
}

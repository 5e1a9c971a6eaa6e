//! Lua itself, with what calls share: the host, coroutines for them, and what counts those that fail.

use crate::failures::{Failures, Reason};
use crate::host::Host;
use crate::node::Node;
use crate::source;
use crate::steps::OutOfSteps;
use mlua::chunk::ChunkMode;
use mlua::{Error, Function, Lua, Table, Thread};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How many coroutines wait for their next call.
const MAX_IDLE_THREADS: usize = 64;

/// A heap that is fuller than this after a collection is of no more use, in percent of its limit.
const FULL_PERCENT: usize = 90;

/// Lua, and what calls share.
pub(crate) struct Machine {
    pub(crate) lua: Lua,
    pub(crate) host: Rc<Host>,
    /// Whether it is that of a worker.
    pub(crate) serves: bool,
    pub(crate) failures: Failures,
    /// How many bytes it may take.
    memory: usize,
    /// It has used them up, or its handles.
    is_full: Cell<bool>,
    threads: RefCell<Vec<Thread>>,
    /// Coroutines that code has handles of, once there are any.
    handed_out: HandedOut,
}

/// Coroutines that code has handles of.
pub(crate) struct HandedOut {
    pub(crate) any: Rc<Cell<bool>>,
    pub(crate) threads: Table,
}

impl HandedOut {
    fn has(&self, thread: &Thread) -> bool {
        self.any.get() && self.threads.raw_get(thread).unwrap_or(true)
    }
}

impl Machine {
    /// One that may take so many bytes.
    pub(crate) fn new(
        (lua, memory): (Lua, usize),
        host: Rc<Host>,
        handed_out: HandedOut,
        node: &Node,
    ) -> Rc<Self> {
        let (serves, failures) = (node.serves, node.failures.clone());
        let (is_full, threads) = Default::default();
        Rc::new(Self { lua, host, serves, failures, memory, is_full, threads, handed_out })
    }

    /// Whether it is of no more use: its memory or its handles are used up, or a call has panicked.
    pub(crate) fn is_spent(&self) -> bool {
        self.is_full.get() || self.host.has_panicked()
    }

    /// Looks whether an error says that the handles are used up, by which the host holds values: code that has kept them all
    /// leaves none for other calls.
    pub(crate) fn note(&self, error: &Error) {
        if is_of_handles(error) {
            self.is_full.set(true);
        }
    }

    /// A call runs beside requests, or goes on after it has waited: it is measured from now on.
    pub(crate) fn goes_on(&self) {
        self.host.budget.prepare(&self.lua);
        self.host.budget.measure();
    }

    /// A coroutine that runs the function.
    pub(crate) fn thread(&self, function: &Function) -> mlua::Result<Thread> {
        let idle = self.threads.borrow_mut().pop();
        match idle {
            Some(thread) => thread.reset(function.clone()).map(|()| thread),
            None => self.lua.create_thread(function.clone()),
        }
    }

    /// Takes a coroutine back that has ended, unless code could resume it when it runs other code.
    pub(crate) fn put_back(&self, thread: Thread) {
        if self.handed_out.has(&thread) {
            return;
        }
        let mut threads = self.threads.borrow_mut();
        if threads.len() < MAX_IDLE_THREADS {
            threads.push(thread);
        }
    }

    /// Why a call failed: with the error of a budget, if that was used up.
    pub(crate) fn failure(&self, error: Error) -> Error {
        self.host.operation.take();
        self.note(&error);
        let is_of_memory = is_of_memory(&error);
        if is_of_memory {
            self.out_of_memory();
        }
        if error.downcast_ref::<OutOfSteps>().is_some() {
            self.host.budget.exceed(source::line(&error));
        }
        let reason = match self.host.budget.is_exceeded() {
            true => Reason::Timeout,
            false if is_of_memory => Reason::Memory,
            false => Reason::Error,
        };
        self.failures.count(&self.host.origin().plugin, reason);
        if reason == Reason::Timeout {
            return self.host.budget.error();
        }
        error
    }

    /// The memory was used up: frees what it can. If that is not enough, another takes its place.
    fn out_of_memory(&self) {
        // A collection that fails has freed what it could.
        let _ = self.lua.gc_collect();
        if self.lua.used_memory() > self.memory / 100 * FULL_PERCENT {
            self.is_full.set(true);
        }
    }
}

/// Source code as a function with these globals. The name is what errors say before the line.
pub(crate) fn compile(lua: &Lua, code: &str, name: &str, env: Table) -> mlua::Result<Function> {
    lua.load(code).set_name(name).set_mode(ChunkMode::Text).set_environment(env).into_function()
}

fn is_of_handles(error: &Error) -> bool {
    match error {
        Error::StackError => true,
        Error::CallbackError { cause, .. } => is_of_handles(cause),
        _ => false,
    }
}

fn is_of_memory(error: &Error) -> bool {
    match error {
        Error::MemoryError(_) => true,
        Error::CallbackError { cause, .. } => is_of_memory(cause),
        _ => false,
    }
}

//! How much CPU time the calls for a request may take.
//!
//! The VM calls a hook after every so many instructions. The first of them in a call asks the clock of the thread, and later
//! ones compare. So a short call costs nothing, and what other threads do does not count.

use crate::steps::Steps;
use mlua::{HookTriggers, Lua, VmState};
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// After how many instructions the hook runs.
const INSTRUCTIONS: u32 = 10_000;

/// What is left of the time of the running call.
pub(crate) struct Budget {
    limit: Duration,
    /// What functions in Rust may do, which the hook cannot interrupt.
    steps: Steps,
    /// The CPU time of the thread at which the call ends, once the hook has run.
    deadline: Cell<Option<Duration>>,
    /// What calls before have used of the limit.
    spent: Cell<Duration>,
    is_exceeded: Cell<bool>,
}

impl Budget {
    /// So much for the calls of each exchange.
    pub(crate) fn new(lua: &Lua, limit: Duration) -> Rc<Self> {
        Rc::new(Self {
            limit,
            steps: Steps::of(lua),
            deadline: Cell::new(None),
            spent: Cell::default(),
            is_exceeded: Cell::new(false),
        })
    }

    /// What the calls of an exchange have used so far, as far as the hook has seen it.
    pub(crate) fn spent(&self) -> Duration {
        let left = |deadline: Duration| deadline.saturating_sub(thread_time());
        self.deadline.get().map_or(self.spent.get(), |deadline| self.limit.saturating_sub(left(deadline)))
    }

    /// A call begins, of an exchange whose calls before have used so much.
    pub(crate) fn restart(&self, spent: Duration) {
        self.spent.set(spent);
        self.deadline.set(None);
        self.is_exceeded.set(false);
        self.steps.refill();
    }

    /// Whether the running call has taken too long, so that it must end.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    /// A function in Rust took too long.
    pub(crate) fn exceed(&self) {
        self.is_exceeded.set(true);
    }

    /// Has every call of the VM that takes too long raise an error, again and again until it ends.
    pub(crate) fn watch(self: &Rc<Self>, lua: &Lua) -> mlua::Result<()> {
        let budget = self.clone();
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(INSTRUCTIONS), move |_, _| {
            if budget.has_time() { Ok(VmState::Continue) } else { Err(budget.error()) }
        })
    }

    /// What ends the call.
    pub(crate) fn error(&self) -> mlua::Error {
        mlua::Error::runtime(format!(
            "the calls for this request took more than {} ms of CPU time (lua_timeout)",
            self.limit.as_millis()
        ))
    }

    fn has_time(&self) -> bool {
        if self.is_exceeded.get() {
            return false;
        }
        let now = thread_time();
        match self.deadline.get() {
            None => self.deadline.set(Some(now + self.limit.saturating_sub(self.spent.get()))),
            Some(deadline) => self.is_exceeded.set(now > deadline),
        }
        self.steps.refill();
        !self.is_exceeded.get()
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

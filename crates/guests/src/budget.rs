//! How much CPU time the calls for a request may take.
//!
//! The VM calls a hook after every so many instructions, and functions in Rust ask when they have worked for long. Both look
//! at the clock of the thread, so that what other threads do does not count. That clock is slow to read: a call that has just
//! begun is known by another. Most calls end before the hook runs: for these the coarse clock is enough.

use crate::memory::Memory;
use crate::source;
use crate::steps::{Steps, coarse_time, thread_time};
use mlua::{HookTriggers, Lua, VmState, WeakLua};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

/// After how many instructions the hook runs in a VM that uses so many bytes. Each may compare or join strings as long as that,
/// and as what may come until then, or read one as a number, at about a nanosecond for each byte: the more memory is in use,
/// the sooner it runs.
const INSTRUCTIONS: [(usize, u32); 6] =
    [(512 << 10, 250), (1 << 20, 120), (2 << 20, 60), (4 << 20, 30), (8 << 20, 15), (16 << 20, 8)];

/// The same where more memory is in use.
const INSTRUCTIONS_OF_MANY_BYTES: u32 = 4;

/// How long a call runs before the clock of the thread is asked.
const BRIEF: Duration = Duration::from_micros(200);

/// How far the coarse clock may be behind, at most.
const TICK: Duration = Duration::from_millis(10);

/// When the clock of the thread was last asked.
#[derive(Clone, Copy)]
enum Asked {
    At(Instant),
    /// The call began then, by the coarse clock.
    Never(Duration),
}

/// After how many instructions the hook runs in a VM that uses so many bytes.
fn instructions(used: usize) -> u32 {
    let found = INSTRUCTIONS.iter().find(|(bytes, _)| used <= *bytes);
    found.map_or(INSTRUCTIONS_OF_MANY_BYTES, |(_, instructions)| *instructions)
}

/// What is left of the time of the running call.
pub(crate) struct Budget {
    limit: Duration,
    /// What functions in Rust may do, which the hook cannot interrupt.
    steps: Steps,
    asked: Cell<Asked>,
    /// The CPU time of the thread at which the call ends, once that was asked.
    deadline: Cell<Option<Duration>>,
    /// What calls before have used of the limit.
    spent: Cell<Duration>,
    is_exceeded: Cell<bool>,
    /// Whether the call is for a request, whose calls share the limit.
    is_of_request: Cell<bool>,
    /// The line that ran when the time was used up.
    ended_at: RefCell<Option<String>>,
    /// After how many instructions the hook runs now.
    instructions: Cell<u32>,
    memory: Memory,
    lua: WeakLua,
}

impl Budget {
    /// So much for the calls of each exchange, in a VM that may use so many bytes.
    pub(crate) fn new(lua: &Lua, limit: Duration, memory: usize) -> Rc<Self> {
        let steps = Steps::of(lua);
        let (asked, is_exceeded) = (Cell::new(Asked::Never(coarse_time())), Cell::new(false));
        let (deadline, spent, is_of_request, ended_at, instructions) = Default::default();
        let (memory, lua) = (Memory::new(memory), lua.weak());
        let budget = Rc::new(Self {
            limit,
            steps,
            asked,
            deadline,
            spent,
            is_exceeded,
            is_of_request,
            ended_at,
            instructions,
            memory,
            lua,
        });
        let weak = Rc::downgrade(&budget);
        let of_watch = weak.clone();
        budget.steps.ask(move || weak.upgrade().is_some_and(|budget| budget.has_time()));
        budget.steps.watch_with(move || of_watch.upgrade().is_some_and(|budget| budget.look_again()));
        budget
    }

    /// What the calls of an exchange have used so far, as far as the clock was asked.
    pub(crate) fn spent(&self) -> Duration {
        let left = |deadline: Duration| deadline.saturating_sub(thread_time());
        self.deadline.get().map_or(self.spent.get(), |deadline| self.limit.saturating_sub(left(deadline)))
    }

    /// A call begins, of an exchange whose calls before have used so much. [`Self::prepare`] comes before.
    pub(crate) fn restart(&self, spent: Duration) {
        self.asked.set(Asked::Never(coarse_time()));
        self.spent.set(spent);
        self.deadline.set(None);
        self.is_exceeded.set(false);
        self.is_of_request.set(false);
        // Most calls before have ended in time: then there is nothing to drop.
        if self.ended_at.borrow().is_some() {
            self.ended_at.take();
        }
        self.steps.refill();
    }

    /// The call that begins is for a request.
    pub(crate) fn is_for_request(&self) {
        self.is_of_request.set(true);
    }

    /// Code is about to run: collects garbage, which the call need not pay for, if the VM is nearly full, and bounds its memory
    /// anew. What functions announced before has been returned. A VM that cannot be watched more closely is watched as before.
    pub(crate) fn prepare(self: &Rc<Self>, lua: &Lua) {
        self.steps.begin();
        let used = self.memory.make_room(lua);
        let _ = self.watch_using(lua, used);
    }

    /// How many bytes the VM used when that was last looked at: as the last call began, at the earliest.
    pub(crate) fn shown_memory(&self) -> &Arc<AtomicUsize> {
        self.memory.shown()
    }

    /// Looks at the memory.
    fn look(self: &Rc<Self>) {
        let _ = self.lua.try_upgrade().map(|lua| self.watch(&lua));
    }

    /// Looks at the memory while a function works, and whether the call has time left. A hook that is set begins to count anew,
    /// so that the clock is looked at instead.
    fn look_again(self: &Rc<Self>) -> bool {
        let before = self.instructions.get();
        self.look();
        self.instructions.get() == before || self.has_time()
    }

    /// The call that has just begun, or goes on, is measured from now on, however brief it is.
    pub(crate) fn measure(&self) {
        let left = self.limit.saturating_sub(self.spent.get());
        self.deadline.set(Some(thread_time() + left));
        self.is_exceeded.set(left.is_zero());
    }

    /// Whether the running call has taken too long, so that it must end.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    /// A function in Rust took too long, where a line called it.
    pub(crate) fn exceed(&self, line: Option<String>) {
        self.is_exceeded.set(true);
        self.ends_at(line);
    }

    /// The first line stays: errors pass through others.
    fn ends_at(&self, line: Option<String>) {
        let mut ended_at = self.ended_at.borrow_mut();
        if ended_at.is_none() {
            *ended_at = line;
        }
    }

    /// Has every call of the VM that takes too long raise an error, again and again until it ends. Until this is called again,
    /// the VM gets not much more memory, because code could make long strings and work with them before the hook runs.
    pub(crate) fn watch(self: &Rc<Self>, lua: &Lua) -> mlua::Result<()> {
        self.watch_using(lua, lua.used_memory())
    }

    /// The same for a VM that uses so many bytes.
    fn watch_using(self: &Rc<Self>, lua: &Lua, used: usize) -> mlua::Result<()> {
        let used = used.saturating_add(self.steps.announced());
        self.memory.bound(lua, used)?;
        let instructions = instructions(used);
        if self.instructions.replace(instructions) == instructions {
            return Ok(());
        }
        let budget = self.clone();
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(instructions), move |lua, _| {
            let used = budget.memory.make_room(lua);
            budget.steps.pass(instructions);
            budget.watch_using(lua, used)?;
            if budget.has_time() {
                return Ok(VmState::Continue);
            }
            budget.ends_at(source::caller(lua));
            Err(budget.error())
        })
    }

    /// After how many instructions the hook runs now.
    #[cfg(test)]
    pub(crate) fn window(&self) -> u32 {
        self.instructions.get()
    }

    /// What ends the call, with the line that ran, as errors of Lua have it.
    pub(crate) fn error(&self) -> mlua::Error {
        let ended_at = self.ended_at.borrow();
        let line = ended_at.as_ref().map(|line| format!("{line}: ")).unwrap_or_default();
        let limit = self.limit.as_millis();
        let what = if self.is_of_request.get() { "the calls for this request" } else { "the call" };
        mlua::Error::runtime(format!("{line}{what} took more than {limit} ms of CPU time (lua_timeout)"))
    }

    fn has_time(&self) -> bool {
        if self.is_exceeded.get() {
            return false;
        }
        self.steps.refill();
        let passed = self.passed();
        if passed < BRIEF {
            return true;
        }
        let now = thread_time();
        self.asked.set(Asked::At(Instant::now()));
        match self.deadline.get() {
            None => self.deadline.set(Some(now + self.left_after(passed))),
            Some(deadline) => self.is_exceeded.set(now > deadline),
        }
        !self.is_exceeded.get()
    }

    /// How long ago the clock of the thread was asked, or the call began.
    fn passed(&self) -> Duration {
        match self.asked.get() {
            Asked::At(instant) => instant.elapsed(),
            Asked::Never(begun) => {
                self.asked.set(Asked::At(Instant::now()));
                coarse_time().saturating_sub(begun + TICK)
            }
        }
    }

    /// What is left of the limit after the time before the clock of the thread was first asked. Other threads may have
    /// run in that time, so that it never counts for more than half.
    fn left_after(&self, passed: Duration) -> Duration {
        let left = self.limit.saturating_sub(self.spent.get());
        left - passed.min(left / 2)
    }
}

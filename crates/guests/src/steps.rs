//! How much work functions written in Rust may do until the host grants them more.
//!
//! The hook that counts instructions cannot interrupt such a function, and a script may call hundreds of them before
//! it runs again. So a function takes steps from this budget for each few nanoseconds of its work. When they are used up,
//! the host looks at its clock, and grants more or ends the call.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use mlua::Lua;
use rustix::time::{ClockId, clock_gettime};

/// What may be taken at once, and of a VM without a clock in all: some tens of milliseconds.
const STEPS: u64 = 10_000_000;
/// What the host grants between two looks at its clock: a millisecond or two.
const GRANT: u64 = 250_000;
/// How many bytes that are read or written count as a step.
const BYTES_PER_STEP: usize = 8;
/// How many steps are taken before the memory is looked at.
const UNSEEN: u64 = 4096;
/// After so many instructions what a function has announced is there.
const BRIEF_INSTRUCTIONS: u32 = 100;
/// How long a step takes.
const NANOSECONDS_PER_STEP: u128 = 4;

/// The steps that are left. Clones share them.
#[derive(Clone)]
pub struct Steps(Rc<State>);

struct State {
    left: Cell<u64>,
    /// Whether the call has time left.
    clock: OnceCell<Box<dyn Fn() -> bool>>,
    /// Taken since the memory was looked at.
    unseen: Cell<u64>,
    /// Bytes that functions have read or written lately, or are about to: what they return may be as long.
    bytes: Cell<usize>,
    /// The same of the time before.
    former_bytes: Cell<usize>,
    /// How many instructions have run in the time of `bytes`.
    instructions: Cell<u32>,
    /// Looks at the memory, and says whether the call has time left.
    watch: OnceCell<Box<dyn Fn() -> bool>>,
}

impl Steps {
    /// The steps of this VM.
    pub fn of(lua: &Lua) -> Self {
        if let Some(steps) = lua.app_data_ref::<Self>() {
            return steps.clone();
        }
        let (clock, unseen, bytes, former_bytes, instructions, watch) = Default::default();
        let left = Cell::new(STEPS);
        let state = State { left, clock, unseen, bytes, former_bytes, instructions, watch };
        let steps = Self(Rc::new(state));
        lua.set_app_data(steps.clone());
        steps
    }

    /// Has the host asked whether the call has time left, whenever steps are used up. The first clock stays.
    pub(crate) fn ask(&self, clock: impl Fn() -> bool + 'static) {
        // Only a VM that is made sets one.
        let _ = self.0.clock.set(Box::new(clock));
    }

    /// Has the host look at the memory whenever functions have worked for some time, before they go on. The first one stays.
    pub(crate) fn watch_with(&self, watch: impl Fn() -> bool + 'static) {
        let _ = self.0.watch.set(Box::new(watch));
    }

    /// So many instructions have run. What was announced before the last hundreds has been returned.
    pub(crate) fn pass(&self, instructions: u32) {
        let passed = self.0.instructions.get() + instructions;
        let is_long = passed >= BRIEF_INSTRUCTIONS;
        self.0.instructions.set(if is_long { 0 } else { passed });
        if is_long {
            self.0.former_bytes.set(self.0.bytes.take());
        }
    }

    /// A call begins: what was announced before has been returned.
    pub(crate) fn begin(&self) {
        self.0.bytes.set(0);
        self.0.former_bytes.set(0);
    }

    /// How many bytes functions may be about to return.
    pub(crate) fn announced(&self) -> usize {
        self.0.bytes.get().saturating_add(self.0.former_bytes.get())
    }

    /// Has the host look at the memory, because so many bytes come that no steps were taken for.
    pub(crate) fn announce(&self, count: usize) {
        self.0.bytes.set(self.0.bytes.get().saturating_add(count));
        // A call without time ends when it next takes steps.
        let _ = self.see(UNSEEN);
    }

    fn see(&self, count: u64) -> Result<(), OutOfSteps> {
        let unseen = self.0.unseen.get().saturating_add(count);
        self.0.unseen.set(unseen);
        let Some(watch) = self.0.watch.get().filter(|_| unseen >= UNSEEN) else { return Ok(()) };
        self.0.unseen.set(0);
        if watch() { Ok(()) } else { Err(OutOfSteps) }
    }

    /// Grants steps anew, for a host that has just looked at its clock.
    pub fn refill(&self) {
        self.0.left.set(self.grant());
    }

    fn grant(&self) -> u64 {
        if self.0.clock.get().is_some() { GRANT } else { STEPS }
    }

    /// Takes one step.
    pub(crate) fn take(&self) -> Result<(), OutOfSteps> {
        self.take_many(1)
    }

    /// Takes some steps.
    pub(crate) fn take_many(&self, count: usize) -> Result<(), OutOfSteps> {
        let count = count as u64;
        self.see(count)?;
        if let Some(left) = self.0.left.get().checked_sub(count) {
            self.0.left.set(left);
            return Ok(());
        }
        let has_time = self.0.clock.get().is_some_and(|has_time| has_time());
        self.0.left.set(if has_time { GRANT.saturating_sub(count) } else { 0 });
        if has_time && count <= STEPS { Ok(()) } else { Err(OutOfSteps) }
    }

    /// Takes the steps for so many bytes.
    ///
    /// Copies and searches cost less than this; digests and ciphers about as much.
    pub(crate) fn take_bytes(&self, count: usize) -> Result<(), OutOfSteps> {
        self.0.bytes.set(self.0.bytes.get().saturating_add(count));
        self.take_many(count / BYTES_PER_STEP + 1)
    }

    /// Takes the steps for what the thread has worked since then: where the cost is not known before.
    pub(crate) fn take_since(&self, begun: Duration) -> Result<(), OutOfSteps> {
        let worked = thread_time().saturating_sub(begun).as_nanos();
        self.take_many((worked / NANOSECONDS_PER_STEP).min(STEPS.into()) as usize)
    }
}

/// The CPU time of the thread, which other threads do not add to.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The time by the clock that is the quickest to read. It lags by as much as a tick of the kernel.
pub(crate) fn coarse_time() -> Duration {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// A function that did more than the budget allows. The host takes it for a script that exceeded its time, so `pcall`
/// must not stop it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfSteps;

impl fmt::Display for OutOfSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a single call took too many steps: simplify the pattern, or pass it less")
    }
}

impl std::error::Error for OutOfSteps {}

impl From<OutOfSteps> for mlua::Error {
    fn from(error: OutOfSteps) -> Self {
        Self::external(error)
    }
}

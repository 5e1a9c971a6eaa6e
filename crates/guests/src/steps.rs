//! How much work functions written in Rust may do until the host grants them more.
//!
//! The hook that counts instructions cannot interrupt such a function, and a script may call thousands of them before
//! it runs again. So a function takes steps from this budget for each few nanoseconds of its work.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use mlua::Lua;
use rustix::time::{ClockId, clock_gettime};

/// What may be taken between two refills: some tens of milliseconds.
const STEPS: u64 = 10_000_000;
/// How many bytes that are read or written count as a step.
const BYTES_PER_STEP: usize = 8;
/// How long a step takes.
const NANOSECONDS_PER_STEP: u128 = 4;

/// The steps that are left. Clones share them.
///
/// The host refills them whenever it has looked at its deadline: before each resume, and in the hook that counts
/// instructions. A script then spends at most one budget beyond its deadline.
#[derive(Debug, Clone)]
pub struct Steps(Rc<Cell<u64>>);

impl Steps {
    /// The steps of this VM.
    pub fn of(lua: &Lua) -> Self {
        if let Some(steps) = lua.app_data_ref::<Self>() {
            return steps.clone();
        }
        let steps = Self(Rc::new(Cell::new(STEPS)));
        lua.set_app_data(steps.clone());
        steps
    }

    /// Grants the full budget again.
    pub fn refill(&self) {
        self.0.set(STEPS);
    }

    /// Takes one step.
    pub(crate) fn take(&self) -> Result<(), OutOfSteps> {
        self.take_many(1)
    }

    /// Takes some steps.
    pub(crate) fn take_many(&self, count: usize) -> Result<(), OutOfSteps> {
        let left = self.0.get().checked_sub(count as u64);
        self.0.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or(OutOfSteps)
    }

    /// Takes the steps for so many bytes. For output that bounds the memory which it takes outside the VM.
    ///
    /// Copies and searches cost less than this; digests and ciphers about as much.
    pub(crate) fn take_bytes(&self, count: usize) -> Result<(), OutOfSteps> {
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

//! Room in the memory of a VM.
//!
//! The collector of LuaJIT waits until twice as much is in use as is alive, and an allocation beyond the limit fails without a
//! collection. So where more than half of the limit is alive, garbage would use the rest up, and the call that needs it next
//! would fail. Here it is collected before.

use mlua::Lua;
use std::cell::Cell;

/// From which part of the limit on garbage is collected early, in percent.
const FULL_PERCENT: usize = 75;
/// What must have come since, before it is collected again, in percent of the limit.
const MORE_PERCENT: usize = 6;

/// What is known of the memory of a VM.
pub(crate) struct Memory {
    limit: usize,
    /// What was in use after the last such collection.
    alive: Cell<usize>,
}

impl Memory {
    /// Of a VM with this limit.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, alive: Cell::new(0) }
    }

    /// Collects garbage if the VM is nearly full.
    pub(crate) fn make_room(&self, lua: &Lua) {
        let percent = self.limit / 100;
        if lua.used_memory() < (percent * FULL_PERCENT).max(self.alive.get() + percent * MORE_PERCENT) {
            return;
        }
        // One that fails has freed what it could.
        let _ = lua.gc_collect();
        self.alive.set(lua.used_memory());
    }
}

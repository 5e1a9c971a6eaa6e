//! Room in the memory of a VM.
//!
//! The collector of LuaJIT waits until twice as much is in use as is alive, and an allocation beyond the limit fails without a
//! collection. So where more than half of the limit is alive, garbage would use the rest up, and the call that needs it next
//! would fail. Here it is collected before.
//!
//! Between two looks at the clock code runs some instructions, each of which may work on a string as long as all memory. So
//! until the next look the VM may not grow to many times its size.

use mlua::Lua;
use mlua::state::{GcIncParams, GcMode};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// From which part of the limit on garbage is collected early, in percent.
const FULL_PERCENT: usize = 75;
/// What must have come since, before it is collected again, in percent of the limit.
const MORE_PERCENT: usize = 6;

/// How many times what is in use may come until the next look. A function may need some times the length of its result: for
/// buffers, and for messages with the trace of calls.
const GROWTH: usize = 8;
/// What may always come.
const SMALL: usize = 4 << 20;

/// A change that is too little to bound anew.
const LITTLE: usize = 64 << 10;

/// A VM that uses more has long strings, probably: garbage of these must not use up what may come.
const LARGE: usize = 512 << 10;
/// How much the collector does each time that something is allocated, in percent of a kibibyte: about 16 KiB of the heap, and
/// 256 KiB of a large one.
const PACES: [i32; 2] = [1_600, 25_600];

/// What is known of the memory of a VM.
pub(crate) struct Memory {
    limit: usize,
    /// How much was in use when its growth was bounded.
    bounded: Cell<usize>,
    /// How much the collector does at a time.
    pace: Cell<i32>,
    /// What was in use after the last such collection.
    alive: Cell<usize>,
    /// What was in use when it was last looked at, for other threads.
    shown: Arc<AtomicUsize>,
}

impl Memory {
    /// Of a VM with this limit.
    pub(crate) fn new(limit: usize) -> Self {
        let (bounded, pace, alive, shown) = Default::default();
        Self { limit, bounded, pace, alive, shown }
    }

    /// How many bytes were in use when that was last looked at.
    pub(crate) fn shown(&self) -> &Arc<AtomicUsize> {
        &self.shown
    }

    /// Collects garbage if the VM is nearly full. How many bytes it uses then.
    pub(crate) fn make_room(&self, lua: &Lua) -> usize {
        let (used, percent) = (lua.used_memory(), self.limit / 100);
        self.shown.store(used, Ordering::Relaxed);
        if used < (percent * FULL_PERCENT).max(self.alive.get() + percent * MORE_PERCENT) {
            return used;
        }
        // One that fails has freed what it could.
        let _ = lua.gc_collect();
        self.alive.set(lua.used_memory());
        self.alive.get()
    }

    /// Bounds what comes to a VM that uses so many bytes, until this is called again.
    pub(crate) fn bound(&self, lua: &Lua, used: usize) -> mlua::Result<()> {
        // Most calls change little.
        if used.abs_diff(self.bounded.get()) < LITTLE {
            return Ok(());
        }
        self.bounded.set(used);
        let room = used.saturating_mul(GROWTH).max(SMALL);
        lua.set_memory_limit(self.limit.min(used.saturating_add(room)))?;
        let pace = PACES[usize::from(used > LARGE)];
        if self.pace.replace(pace) != pace {
            lua.gc_set_mode(GcMode::Incremental(GcIncParams::default().step_multiplier(pace)));
        }
        Ok(())
    }
}

//! How deep functions in Rust that call Lua stand within one another.
//!
//! Each takes some of the thread's stack, which is not Lua's own: without a limit, recursion through them ends the process.

use mlua::Lua;
use std::cell::Cell;
use std::rc::Rc;

/// How deep they may stand.
const MAX_DEPTH: u32 = 100;

/// The depth of a VM. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Depth(Rc<Cell<u32>>);

/// A function that runs. It ends when this is dropped.
pub(crate) struct Level<'a>(&'a Cell<u32>);

impl Depth {
    /// The depth of this VM.
    pub(crate) fn of(lua: &Lua) -> Self {
        if let Some(depth) = lua.app_data_ref::<Self>() {
            return depth.clone();
        }
        let depth = Self::default();
        lua.set_app_data(depth.clone());
        depth
    }

    /// A function begins.
    pub(crate) fn enter(&self) -> mlua::Result<Level<'_>> {
        if self.0.get() >= MAX_DEPTH {
            return Err(mlua::Error::runtime("C stack overflow"));
        }
        self.0.set(self.0.get() + 1);
        Ok(Level(&self.0))
    }
}

impl Drop for Level<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

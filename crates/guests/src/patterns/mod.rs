//! Lua's patterns, matched with a bounded number of steps.
//!
//! LuaJIT's own functions cannot be interrupted: a pattern such as `a*a*a*a*b` takes them minutes. The functions here
//! give the same results, and end with an error when their [`Steps`] are used up.

mod class;
mod error;
mod form;
mod functions;
mod matcher;
#[cfg(test)]
mod tests;

use mlua::{Lua, Table};

use crate::steps::Steps;

/// Replaces `find`, `match`, `gmatch` and `gsub` of the table `string`.
pub fn install(lua: &Lua) -> mlua::Result<()> {
    functions::install(lua, &lua.globals().get::<Table>("string")?, &Steps::of(lua))
}

/// Why a pattern matches no text at all: a part of it is wrong.
pub(crate) fn problem(pattern: &[u8]) -> Option<String> {
    form::check(pattern).err().map(|error| error.to_string())
}

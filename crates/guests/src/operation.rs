//! What a call waits for.

use mlua::{IntoLuaMulti, Lua, MultiValue};
use std::future::Future;
use std::pin::Pin;

/// What a call waits for, and how its outcome becomes values of Lua.
pub(crate) type Operation = Pin<Box<dyn Future<Output = Outcome>>>;

/// What a call that waited goes on with: `true` and values, or `false` and an error.
pub(crate) type Outcome = Box<dyn FnOnce(&Lua) -> mlua::Result<MultiValue>>;

/// The outcome of a function that returns values.
pub(crate) fn returned<T: IntoLuaMulti + 'static>(values: T) -> Outcome {
    Box::new(move |lua| (true, values).into_lua_multi(lua))
}

//! Short texts as strings of Lua.

use mlua::{Lua, LuaString};

/// What is longer is worth a protected call.
const SHORT: usize = 4 << 10;

/// A string of Lua.
///
/// With a memory limit, each string costs a protected call, which takes several times as long as to make a short one. So those
/// are made without the limit while it has not been reached.
pub(crate) fn string(lua: &Lua, text: &[u8]) -> mlua::Result<LuaString> {
    if text.len() > SHORT {
        return lua.create_string(text);
    }
    within_limit(lua, || lua.create_string(text))
}

/// Makes something small in the VM without its limit, unless that is reached.
///
/// `make` must call no code of Lua.
pub(crate) fn within_limit<T>(lua: &Lua, make: impl FnOnce() -> mlua::Result<T>) -> mlua::Result<T> {
    let unlimited = Unlimited { lua, limit: lua.set_memory_limit(0)? };
    if unlimited.limit != 0 && lua.used_memory() >= unlimited.limit {
        drop(unlimited);
    }
    make()
}

/// The VM without its limit, which it gets back when this is dropped.
struct Unlimited<'l> {
    lua: &'l Lua,
    limit: usize,
}

impl Drop for Unlimited<'_> {
    fn drop(&mut self) {
        // It fails for VMs that others allocate for, of which there is none.
        let _ = self.lua.set_memory_limit(self.limit);
    }
}

#[cfg(test)]
mod tests {
    use super::string;
    use mlua::{Error, Lua};

    #[test]
    fn strings_respect_the_limit() {
        let lua = Lua::new();
        lua.set_memory_limit(lua.used_memory() + (1 << 20)).unwrap();
        let fill: mlua::Function =
            lua.load("local t = {} return function(text) t[#t + 1] = text end").eval().unwrap();
        let filled = (0..1 << 20).find_map(|i: u32| {
            let text = string(&lua, format!("{i:0100}").as_bytes());
            text.and_then(|text| fill.call::<()>(text)).err()
        });
        assert!(matches!(filled, Some(Error::MemoryError(_))), "{filled:?}");
        assert!(lua.used_memory() < lua.set_memory_limit(0).unwrap() + (64 << 10));
    }
}

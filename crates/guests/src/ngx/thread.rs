//! Light threads: `ngx.thread`.

use crate::host::Host;
use crate::namespace::Namespace;
use crate::operation::returned;
use crate::phase::Phases;
use mlua::chunk::ChunkMode;
use mlua::{Lua, MultiValue, Table, Thread};

/// Makes the table.
pub(super) fn table(make: &Namespace<'_>) -> mlua::Result<Table> {
    let natives = make.table()?;
    let begin = |_: &Lua, host: &Host, ()| {
        host.check_waiting()?;
        let group = host.light_threads();
        Ok((group.number, group.begin()?))
    };
    natives.set("begin", make.host(Phases::ANY, begin)?)?;
    let number = |_: &Lua, host: &Host, ()| Ok(host.group.borrow().as_ref().map(|group| group.number));
    natives.set("group", make.host(Phases::ANY, number)?)?;
    natives.set("park", make.host(Phases::ANY, park)?)?;
    let ended = |_: &Lua, host: &Host, ()| {
        host.light_threads().end();
        Ok(())
    };
    natives.set("ended", make.host(Phases::ANY, ended)?)?;
    let kill = |_: &Lua, host: &Host, number: u64| {
        host.light_threads().kill(number);
        Ok(())
    };
    natives.set("kill", make.host(Phases::ANY, kill)?)?;
    let changed = |_: &Lua, host: &Host, _: MultiValue| {
        let changed = host.light_threads().changed();
        host.wait_for(async move {
            changed.await;
            returned(())
        })
    };
    natives.set("changed", make.waiting(make.host(Phases::ANY, changed)?)?)?;
    let chunk = make.lua.load(include_str!("thread.lua")).set_name("=[ngx.thread]").set_mode(ChunkMode::Text);
    chunk.call((make.prelude, natives))
}

/// Keeps a light thread that was suspended. False if the call is to end instead.
fn park(lua: &Lua, host: &Host, (thread, number): (Thread, u64)) -> mlua::Result<bool> {
    if host.leaves.get() || host.answer.borrow().is_some() {
        return Ok(false);
    }
    let thread = lua.create_registry_value(thread)?;
    host.light_threads().park(thread, number, host.operation.take());
    Ok(true)
}

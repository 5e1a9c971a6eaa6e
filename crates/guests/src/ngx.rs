//! What Lua sees as `ngx`: the part of OpenResty's API that plugins use.

mod constants;
mod output;
mod process;
mod req;
mod semaphore;
mod shared;
mod thread;
mod time;
mod timer;
mod var;

use crate::contexts::Contexts;
use crate::host::Host;
use crate::modules;
use crate::namespace::{Namespace, refused};
use crate::node::Node;
use crate::pdk::headers;
use crate::pdk::lazy_members::LazyMembers;
use crate::pdk::log;
use crate::pending::Printed;
use crate::phase::Phases;
use mlua::{Function, Lua, LuaString, MultiValue, Table, Value};
use std::rc::Rc;

/// Makes `ngx`.
pub(crate) fn table(
    lua: &Lua,
    host: &Rc<Host>,
    prelude: &Table,
    (node, vm): (&Node, u64),
) -> mlua::Result<Table> {
    let make = Namespace { lua, host, prelude };
    let ngx = lua.create_table()?;
    constants::fill(&ngx)?;
    time::fill(&make, &ngx)?;
    ngx.set("sleep", timer::sleeper(&make)?)?;
    modules::encodings(lua)?.for_each(|name: Value, function: Value| ngx.raw_set(name, function))?;
    output::fill(&make, &ngx)?;
    ngx.set("get_phase", make.host(Phases::ANY, |_, host: &Host, ()| Ok(host.phase().name()))?)?;
    ngx.set("is_subrequest", false)?;
    ngx.set("log", make.host(Phases::ANY, |lua, host: &Host, values| write(lua, host, values))?)?;
    let print = |lua: &Lua, host: &Host, values| log::write(lua, host, log::Severity::Notice, values);
    lua.globals().set("print", make.host(Phases::ANY, print)?)?;
    refusals(&make, &ngx)?;
    semaphore::preload(&make)?;
    output::preload_resp(&make)?;
    ngx.set_metatable(Some(dynamic(&make, vm, members(&make, node))?))?;
    Ok(ngx)
}

/// The tables in it.
fn members(make: &Namespace<'_>, node: &Node) -> LazyMembers {
    let mut members = LazyMembers::new(make);
    members.add("thread", thread::table);
    members.add("timer", timer::table);
    members.add("re", |make| modules::regex(make.lua));
    members.add("var", var::table);
    members.add("req", req::table);
    members.add("header", output::header);
    members.add("resp", output::resp);
    members.add("arg", output::arg);
    members.add("worker", process::worker);
    members.add("location", location);
    members.add("socket", crate::socket::table);
    let dicts = node.dicts.clone();
    members.add("shared", move |make| shared::table(make, &dicts));
    let prefix = node.prefix.clone();
    members.add("config", move |make| process::config(make, &prefix));
    members
}

/// `ngx.log(ngx.ERR, …)`
fn write(lua: &Lua, host: &Host, mut values: MultiValue) -> mlua::Result<()> {
    let Some(Value::Integer(level)) = values.pop_front().map(integral) else {
        return refused("bad argument #1 to 'log' (number expected)");
    };
    log::write(lua, host, log::Severity::of_number(level), values)
}

fn integral(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::Integer(number as mlua::Integer),
        other => other,
    }
}

fn location(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    table.set("capture", unavailable(make, "ngx.location.capture")?)?;
    table.set("capture_multi", unavailable(make, "ngx.location.capture_multi")?)?;
    Ok(table)
}

/// What OpenResty has and nothing here can do.
fn refusals(make: &Namespace<'_>, ngx: &Table) -> mlua::Result<()> {
    ngx.set("exec", unavailable(make, "ngx.exec")?)?;
    ngx.set("run_worker_thread", unavailable(make, "ngx.run_worker_thread")?)?;
    let on_abort = |_: &Lua, _: &Host, _: MultiValue| Ok((Value::Nil, "lua_check_client_abort is off"));
    ngx.set("on_abort", make.host(Phases::REQUEST, on_abort)?)
}

/// A function that always fails.
fn unavailable(make: &Namespace<'_>, name: &'static str) -> mlua::Result<Function> {
    let why = crate::unavailable::refused(name).unwrap_or_default();
    let refuse = move |_: &Lua, _: &Host, _: MultiValue| -> mlua::Result<()> {
        refused(format!("{name} is not available: {why}"))
    };
    make.host(Phases::ANY, refuse)
}

/// `ngx.ctx`, `ngx.status` and `ngx.headers_sent`, which are of the request, and the tables that are not made yet.
fn dynamic(make: &Namespace<'_>, vm: u64, members: LazyMembers) -> mlua::Result<Table> {
    let get = move |lua: &Lua, host: &Host, (ngx, key): (Table, LuaString)| {
        Ok(match &*key.to_string_lossy() {
            "ctx" => Value::Table(Contexts::of(&mut *host.exchange(Phases::ANY)?, lua, vm)?.ngx()?),
            "status" => Value::Integer(host.exchange(Phases::REQUEST)?.response.status.into()),
            "headers_sent" => {
                let has_begun = Printed::has_ended(&*host.exchange(Phases::ANY)?).is_some();
                Value::Boolean(has_begun || !Phases::RESPONSE_WRITE.has(host.phase()))
            }
            name => members.get(lua, &ngx, name)?,
        })
    };
    let set = move |lua: &Lua, host: &Host, (ngx, key, value): (Table, Value, Value)| {
        let name = key.as_string().map(|key| key.to_string_lossy()).unwrap_or_default();
        match (name.as_str(), value) {
            ("ctx", Value::Table(value)) => {
                Contexts::of(&mut *host.exchange(Phases::ANY)?, lua, vm)?.set_ngx(value)
            }
            ("ctx", other) => {
                refused(format!("ctx should be a table while getting a {}", headers::type_of(&other)))
            }
            ("status", value) => {
                let status = lua.coerce_integer(value)?.and_then(|status| u16::try_from(status).ok());
                host.exchange(Phases::RESPONSE_WRITE)?.response.status = status.unwrap_or(500);
                Ok(())
            }
            (_, value) => ngx.raw_set(key, value),
        }
    };
    let meta = make.table()?;
    meta.set("__index", make.host(Phases::ANY, get)?)?;
    meta.set("__newindex", make.host(Phases::ANY, set)?)?;
    meta.set("__metatable", false)?;
    Ok(meta)
}

/// A table whose members are looked up and set by functions.
fn virtual_table(make: &Namespace<'_>, get: Function, set: Function) -> mlua::Result<Table> {
    let (table, meta) = (make.table()?, make.table()?);
    meta.set("__index", get)?;
    meta.set("__newindex", set)?;
    meta.set("__metatable", false)?;
    table.set_metatable(Some(meta))?;
    Ok(table)
}

/// How many headers or arguments are read: zero is all.
fn limit(max: Option<usize>) -> usize {
    match max {
        None => 100,
        Some(0) => usize::MAX,
        Some(max) => max,
    }
}

/// A header that code gives: no value, a text, or several.
fn field(name: &LuaString, value: &Value) -> mlua::Result<headers::Field> {
    let mut room = headers::Room::beside(name)?;
    let values = match value {
        Value::Nil => Some(Vec::new()),
        Value::Table(table) => {
            let values = table.sequence_values::<Value>().map(|value| room.text(&value?));
            values.collect::<mlua::Result<Option<Vec<_>>>>()?
        }
        value => room.text(value)?.map(|value| vec![value]),
    };
    let name = name.to_string_lossy();
    match values {
        // nginx drops a header without a value.
        Some(mut values) => {
            values.retain(|value| !value.is_empty());
            Ok((name, values))
        }
        None => refused(format!("bad value of the header \"{name}\": {}", value.type_name())),
    }
}

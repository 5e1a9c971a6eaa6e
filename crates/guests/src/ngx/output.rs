//! What goes to the client: `ngx.header`, `ngx.say`, `ngx.exit`, `ngx.arg` and their like.

use super::{field, limit, virtual_table};
use crate::args::{self, type_name};
use crate::fields::scalar;
use crate::host::Host;
use crate::kept;
use crate::namespace::{Namespace, refused};
use crate::pdk::headers;
use crate::pdk::response::{Content, add, finish, set};
use crate::pending::{PendingHeaders, Printed};
use crate::phase::{Phase, Phases};
use crate::steps::Steps;
use mlua::{Lua, LuaString, MultiValue, Table, Value};
use weir_plugin::Exchange;

/// `ngx.header`
pub(super) fn header(make: &Namespace<'_>) -> mlua::Result<Table> {
    let get = |lua: &Lua, host: &Host, (_, name): (Value, LuaString)| {
        let (phase, mut exchange) = (host.phase(), host.exchange(Phases::REQUEST)?);
        match phase {
            Phase::Rewrite | Phase::Access => {
                PendingHeaders::of(&mut exchange).get(lua, &name.to_string_lossy())
            }
            _ => headers::all(lua, &exchange.response.headers, &name.to_string_lossy()),
        }
    };
    let write =
        |_: &Lua, host: &Host, (_, name, value): (Value, LuaString, Value)| set(host, &field(&name, &value)?);
    virtual_table(make, make.host(Phases::REQUEST, get)?, make.host(Phases::RESPONSE_WRITE, write)?)
}

/// The module `ngx.resp`.
pub(super) fn preload_resp(make: &Namespace<'_>) -> mlua::Result<()> {
    make.preload("ngx.resp", |make| {
        let add = |_: &Lua, host: &Host, (name, value): (LuaString, Value)| add(host, &field(&name, &value)?);
        let module = make.table()?;
        module.set("add_header", make.host(Phases::RESPONSE_WRITE, add)?)?;
        Ok(Value::Table(module))
    })
}

/// `ngx.resp`
pub(super) fn resp(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    let get_headers = |lua: &Lua, host: &Host, (max, _): (Option<usize>, MultiValue)| {
        let (phase, mut exchange) = (host.phase(), host.exchange(Phases::REQUEST)?);
        match phase {
            Phase::Rewrite | Phase::Access => {
                let pending = PendingHeaders::of(&mut exchange).headers();
                headers::table(lua, &pending, limit(max))
            }
            _ => headers::table(lua, &exchange.response.headers, limit(max)),
        }
    };
    table.set("get_headers", make.host(Phases::REQUEST, get_headers)?)?;
    Ok(table)
}

/// `ngx.arg`, in body filters: the part of the body, and whether it is the last.
pub(super) fn arg(make: &Namespace<'_>) -> mlua::Result<Table> {
    let get = |lua: &Lua, host: &Host, (_, index): (Value, i64)| {
        let part = host.body.borrow();
        Ok(match index {
            1 => {
                Steps::of(lua).take_bytes(part.data.len())?;
                Value::String(lua.create_string(&part.data)?)
            }
            2 => Value::Boolean(part.is_last),
            _ => Value::Nil,
        })
    };
    let write = |lua: &Lua, host: &Host, (_, index, value): (Value, i64, Value)| {
        let mut part = host.body.borrow_mut();
        match (index, value) {
            (1, Value::Nil) => part.data.clear(),
            (1, Value::Table(pieces)) => {
                part.data = kept::joined(&Steps::of(lua), pieces.sequence_values())?;
            }
            (1, value) => match scalar(&value) {
                Some(data) => part.data = data,
                None => return refused(format!("bad chunk data type: {}", value.type_name())),
            },
            (2, value) => part.is_last = !matches!(value, Value::Nil | Value::Boolean(false)),
            _ => {}
        }
        Ok(())
    };
    virtual_table(make, make.host(Phases::BODY, get)?, make.host(Phases::BODY, write)?)
}

/// Adds the functions that answer.
pub(super) fn fill(make: &Namespace<'_>, ngx: &Table) -> mlua::Result<()> {
    for (name, end) in [("print", &b""[..]), ("say", b"\n")] {
        let print = move |lua: &Lua, exchange: &mut Exchange, values: MultiValue| {
            let (mut text, steps) = (Vec::new(), Steps::of(lua));
            for (value, position) in values.iter().zip(1..) {
                append((&mut text, &steps), (name, position), value, MAX_DEPTH)?;
            }
            text.extend_from_slice(end);
            Ok(done(Printed::append(exchange, &text)?, SEEN_EOF))
        };
        ngx.set(name, make.exchange(Phases::PRINT, print)?)?;
    }
    let flush = |_: &Lua, exchange: &mut Exchange, _: MultiValue| {
        let has_ended = Printed::has_ended(exchange);
        Ok(done(has_ended == Some(false), if has_ended.is_some() { SEEN_EOF } else { "nothing to flush" }))
    };
    ngx.set("flush", make.exchange(Phases::PRINT, flush)?)?;
    let eof = |_: &Lua, exchange: &mut Exchange, _: MultiValue| Ok(done(Printed::end(exchange), SEEN_EOF));
    ngx.set("eof", make.exchange(Phases::PRINT, eof)?)?;
    let send_headers = |_: &Lua, exchange: &mut Exchange, _: MultiValue| {
        Printed::begin(exchange);
        Ok(1)
    };
    ngx.set("send_headers", make.exchange(Phases::PRINT, send_headers)?)?;
    ngx.set("exit", make.ending(make.host(Phases::EXIT, exit)?)?)?;
    ngx.set("redirect", make.ending(make.host(Phases::PRINT, redirect)?)?)
}

/// Why nothing is written to a response that code has ended.
const SEEN_EOF: &str = "seen eof";

/// What functions of the response return: 1, or nil and why not.
fn done(is_done: bool, why: &'static str) -> Result<u8, &'static str> {
    if is_done { Ok(1) } else { Err(why) }
}

/// What a value that is printed costs.
const STEPS_PER_PIECE: usize = 16;
/// How deep tables of pieces may be nested.
const MAX_DEPTH: usize = 100;
/// What can be printed.
const PRINTABLE: &str = "string, number, boolean, nil, ngx.null, or array table expected";

/// Appends an argument of a function, or the pieces of a table. One that occurs in many places is written as often.
fn append(
    (printed, steps): (&mut Vec<u8>, &Steps),
    argument: (&str, usize),
    value: &Value,
    depth: usize,
) -> mlua::Result<()> {
    steps.take_many(STEPS_PER_PIECE)?;
    let bad = |reason: &str| Err(args::bad(argument.0, argument.1, reason).into());
    match value {
        Value::Nil => printed.extend_from_slice(b"nil"),
        value if value.is_null() => printed.extend_from_slice(b"null"),
        Value::Table(_) if depth == 0 => return bad("nested too deep"),
        Value::Table(pieces) => {
            let mut pieces = pieces.sequence_values::<Value>();
            return pieces.try_for_each(|piece| append((printed, steps), argument, &piece?, depth - 1));
        }
        value => match scalar(value) {
            Some(text) => {
                steps.take_bytes(text.len())?;
                printed.extend_from_slice(&text);
            }
            None if depth == MAX_DEPTH => return bad(&format!("{PRINTABLE}, got {}", type_name(value))),
            None => return bad(&format!("bad data type {} found", type_name(value))),
        },
    }
    Ok(())
}

/// `ngx.ERROR`.
const ERROR: i64 = -1;

/// `ngx.exit`: below 200 the phase ends, else the request does, and with `ngx.ERROR`, which nginx answers by closing the
/// connection.
fn exit(_: &Lua, host: &Host, status: i64) -> mlua::Result<bool> {
    let is_error = status == ERROR && host.phase().answers();
    let status = if is_error { 500 } else { status };
    if status < 200 {
        host.leaves.set(host.phase().answers());
        return Ok(host.phase().answers());
    }
    let mut exchange = host.exchange(Phases::ANY)?;
    let printed = Printed::take(&mut exchange);
    let status = match exchange.response.status {
        // The head was sent with the status that code had set.
        set if set != 0 && printed.is_some() => set,
        _ => u16::try_from(status).unwrap_or(500),
    };
    drop(exchange);
    let content = match printed {
        None if status >= 400 => Content::Message(crate::pdk::response::reason(status).to_owned()),
        printed => Content::Raw(None, printed.unwrap_or_default().text),
    };
    finish(host, status, content, &[])
}

fn redirect(_: &Lua, host: &Host, (uri, status): (LuaString, Option<i64>)) -> mlua::Result<bool> {
    let status = status.unwrap_or(302);
    if ![301, 302, 303, 307, 308].contains(&status) {
        return refused(
            "only ngx.HTTP_MOVED_TEMPORARILY, ngx.HTTP_MOVED_PERMANENTLY, ngx.HTTP_PERMANENT_REDIRECT, ngx.HTTP_SEE_OTHER, and ngx.HTTP_TEMPORARY_REDIRECT are allowed",
        );
    }
    let location = ("Location".to_owned(), vec![uri.as_bytes().to_vec()]);
    finish(host, status as u16, Content::Raw(None, Vec::new()), &[location])
}

//! What Lua calls to open sockets, to read and to write.

use super::buffer::{Until, Want};
use super::connection::{Connection, Target};
use super::tcp::{Busy, Tcp, Timeouts};
use super::udp::{DATAGRAM, MAX_DATAGRAM, Udp};
use super::{Sockets, TIMEOUT, connect_text, failed, text, within};
use crate::fields::scalar;
use crate::host::Host;
use crate::namespace::{Namespace, refused};
use crate::operation::{Outcome, returned};
use crate::phase::Phases;
use crate::steps::Steps;
use mlua::chunk::ChunkMode;
use mlua::{IntoLuaMulti, Lua, LuaString, MultiValue, Table, UserDataRef, Value};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How many connections a pool keeps unless code says otherwise.
const POOL_SIZE: usize = 30;
/// How long a text is that code looks for, or a name that it connects to.
const MAX_TEXT: usize = 4096;
/// The longest time, in seconds: some decades.
const MAX_SECONDS: f64 = 1e9;
/// How deep tables of text may be nested.
const MAX_DEPTH: usize = 100;

/// Makes `ngx.socket`.
pub(crate) fn table(make: &Namespace<'_>) -> mlua::Result<Table> {
    let (tcp, udp) = (make.table()?, make.table()?);
    let new = |_: &Lua, host: &Host, ()| host.check_waiting().map(|()| Tcp::default());
    tcp.set("new", make.host(Phases::ANY, new)?)?;
    tcp.set("connect", make.waiting(make.host(Phases::ANY, connect)?)?)?;
    tcp.set("secure", make.waiting(make.host(Phases::ANY, secure)?)?)?;
    tcp.set("send", make.waiting(make.host(Phases::ANY, send)?)?)?;
    tcp.set("receive", make.waiting(make.host(Phases::ANY, receive)?)?)?;
    tcp.set("receiveany", make.waiting(make.host(Phases::ANY, receive_any)?)?)?;
    tcp.set("receiveuntil", make.waiting(make.host(Phases::ANY, receive_until)?)?)?;
    tcp.set("settimeouts", make.host(Phases::ANY, set_timeouts)?)?;
    tcp.set("setkeepalive", make.host(Phases::ANY, set_keepalive)?)?;
    let reused = |lua: &Lua, _: &Host, tcp: UserDataRef<Tcp>| match &*tcp.0.connection.borrow() {
        Some(connection) => connection.reused.into_lua_multi(lua),
        None => (Value::Nil, "closed").into_lua_multi(lua),
    };
    tcp.set("getreusedtimes", make.host(Phases::ANY, reused)?)?;
    let close = |lua: &Lua, _: &Host, tcp: UserDataRef<Tcp>| match tcp.0.connection.take() {
        Some(_) => 1.into_lua_multi(lua),
        None => (Value::Nil, "closed").into_lua_multi(lua),
    };
    tcp.set("close", make.host(Phases::ANY, close)?)?;
    fill_udp(make, &udp)?;
    let chunk = make.lua.load(include_str!("socket.lua")).set_name("=[ngx.socket]");
    chunk.set_mode(ChunkMode::Text).call((tcp, udp))
}

fn fill_udp(make: &Namespace<'_>, udp: &Table) -> mlua::Result<()> {
    let new = |_: &Lua, host: &Host, ()| host.check_waiting().map(|()| Udp::new());
    udp.set("new", make.host(Phases::ANY, new)?)?;
    let connect = |lua: &Lua, host: &Host, (udp, name, port): (UserDataRef<Udp>, LuaString, f64)| {
        let sockets = Sockets::of(lua)?;
        let Some(open) = open(lua, &sockets)? else { return too_many(lua) };
        let peer = (name.to_string_lossy(), port as u16);
        host.wait_for(udp.clone().connect(peer, sockets.network.clone(), open))?.into_lua_multi(lua)
    };
    udp.set("connect", make.waiting(make.host(Phases::ANY, connect)?)?)?;
    let send = |lua: &Lua, host: &Host, (udp, value): (UserDataRef<Udp>, Value)| {
        let mut bytes = Vec::new();
        append(&mut bytes, &Steps::of(lua), &value, MAX_DEPTH)?;
        if bytes.len() > MAX_DATAGRAM {
            return now(lua, (Value::Nil, "message too long"));
        }
        host.wait_for(udp.clone().send(bytes))?.into_lua_multi(lua)
    };
    udp.set("send", make.waiting(make.host(Phases::ANY, send)?)?)?;
    let receive = |lua: &Lua, host: &Host, (udp, size): (UserDataRef<Udp>, Option<f64>)| {
        let size = size.map_or(DATAGRAM, |size| (size as usize).min(MAX_DATAGRAM));
        let Some(taken) = Sockets::of(lua)?.room.take(size) else { return no_memory(lua) };
        host.wait_for(udp.clone().receive(size, taken))?.into_lua_multi(lua)
    };
    udp.set("receive", make.waiting(make.host(Phases::ANY, receive)?)?)?;
    let set_timeout = |_: &Lua, _: &Host, (udp, ms): (UserDataRef<Udp>, Option<f64>)| {
        udp.set_timeout(duration(ms));
        Ok(())
    };
    udp.set("settimeout", make.host(Phases::ANY, set_timeout)?)?;
    let close = |lua: &Lua, _: &Host, udp: UserDataRef<Udp>| match udp.close() {
        true => 1.into_lua_multi(lua),
        false => (Value::Nil, "closed").into_lua_multi(lua),
    };
    udp.set("close", make.host(Phases::ANY, close)?)
}

/// What a function returns that does not wait.
fn now(lua: &Lua, values: impl IntoLuaMulti) -> mlua::Result<MultiValue> {
    (false, values).into_lua_multi(lua)
}

fn no_memory(lua: &Lua) -> mlua::Result<MultiValue> {
    now(lua, (Value::Nil, "no memory: sockets hold too many bytes"))
}

fn too_many(lua: &Lua) -> mlua::Result<MultiValue> {
    now(lua, (Value::Nil, "too many open sockets"))
}

/// A further socket. Those that no code refers to are closed if there are too many.
fn open(lua: &Lua, sockets: &Sockets) -> mlua::Result<Option<super::Open>> {
    if let Some(open) = sockets.open() {
        return Ok(Some(open));
    }
    lua.gc_collect()?;
    Ok(sockets.open())
}

/// What was read, for Lua.
pub(super) fn data(lua: &Lua, bytes: &[u8]) -> mlua::Result<MultiValue> {
    Steps::of(lua).take_bytes(bytes.len())?;
    (true, lua.create_string(bytes)?).into_lua_multi(lua)
}

fn duration(ms: Option<f64>) -> Duration {
    let ms = ms.filter(|ms| *ms > 0.0);
    ms.map_or(TIMEOUT, |ms| Duration::from_secs_f64((ms / 1000.0).min(MAX_SECONDS)))
}

type ConnectArgs = (UserDataRef<Tcp>, LuaString, Option<f64>, LuaString);

fn connect(lua: &Lua, host: &Host, (tcp, name, port, pool): ConnectArgs) -> mlua::Result<MultiValue> {
    host.check_waiting()?;
    let (sockets, state) = (Sockets::of(lua)?, tcp.0.clone());
    if name.as_bytes().len() > MAX_TEXT || pool.as_bytes().len() > MAX_TEXT {
        return now(lua, (Value::Nil, "the name is too long"));
    }
    let name = name.to_string_lossy();
    state.connection.take();
    if let Some(kept) = sockets.pool.take(&pool.to_string_lossy()) {
        state.connection.replace(Some(kept));
        return now(lua, 1);
    }
    let Some(open) = open(lua, &sockets)? else { return too_many(lua) };
    let target = match port {
        Some(port) => Target::Host(name.clone(), port as u16),
        None => Target::Path(name.clone()),
    };
    let waits = host.wait_for(async move {
        let counted = (open, sockets.room.clone());
        let opened = Connection::open(&target, &sockets.network, counted);
        match within(state.timeouts.get().connect, opened).await {
            Ok(connection) => {
                state.connection.replace(Some(Box::new(connection)));
                returned(1)
            }
            Err(error) => failed(connect_text(&name, &error)),
        }
    })?;
    waits.into_lua_multi(lua)
}

type SecureArgs = (UserDataRef<Tcp>, LuaString, bool, Option<LuaString>, Option<LuaString>);

fn secure(lua: &Lua, host: &Host, (tcp, name, verify, chain, key): SecureArgs) -> mlua::Result<MultiValue> {
    host.check_waiting()?;
    let state = tcp.0.clone();
    let Some(connection) = state.connection.take() else { return now(lua, (Value::Nil, "closed")) };
    if connection.is_secure {
        state.connection.replace(Some(connection));
        return now(lua, true);
    }
    let dialer = Sockets::of(lua)?.network.secure(verify);
    let dialer = match (dialer, chain.zip(key)) {
        (Ok(dialer), Some((chain, key))) => dialer.with_identity(&chain.as_bytes(), &key.as_bytes()),
        (dialer, _) => dialer,
    };
    let dialer = match dialer {
        Ok(dialer) => dialer,
        Err(why) => return now(lua, (Value::Nil, why)),
    };
    let name = name.to_string_lossy();
    let waits = host.wait_for(async move {
        match within(state.timeouts.get().connect, connection.secure(&name, dialer)).await {
            Ok(connection) => {
                state.connection.replace(Some(Box::new(connection)));
                returned(true)
            }
            Err(error) => failed(text(&error)),
        }
    })?;
    waits.into_lua_multi(lua)
}

/// Appends a text, or the texts of a table.
fn append(bytes: &mut Vec<u8>, steps: &Steps, value: &Value, depth: usize) -> mlua::Result<()> {
    steps.take()?;
    match value {
        Value::Table(_) if depth == 0 => return refused("bad argument to send: nested too deep"),
        Value::Table(pieces) => {
            let mut pieces = pieces.sequence_values::<Value>();
            return pieces.try_for_each(|piece| append(bytes, steps, &piece?, depth - 1));
        }
        Value::Nil => bytes.extend_from_slice(b"nil"),
        value => match scalar(value) {
            Some(piece) => {
                steps.take_bytes(piece.len())?;
                crate::kept::within(bytes.len() + piece.len())?;
                bytes.extend_from_slice(&piece);
            }
            None => return refused(format!("bad argument to send: {} not supported", value.type_name())),
        },
    }
    Ok(())
}

fn send(lua: &Lua, host: &Host, (tcp, value): (UserDataRef<Tcp>, Value)) -> mlua::Result<MultiValue> {
    host.check_waiting()?;
    let mut bytes = Vec::new();
    append(&mut bytes, &Steps::of(lua), &value, MAX_DEPTH)?;
    let Some(busy) = Busy::new(&tcp.0, |state| &state.is_writing) else {
        return now(lua, (Value::Nil, "socket busy writing"));
    };
    let len = bytes.len();
    let mut written = 0;
    // Most fits into what the system buffers.
    match busy.state.poll_send(&mut Context::from_waker(Waker::noop()), &bytes, &mut written) {
        Poll::Ready(Ok(())) => return now(lua, len),
        Poll::Ready(Err(error)) => return now(lua, (Value::Nil, busy.state.lost(&error))),
        Poll::Pending => {}
    }
    let Some(taken) = Sockets::of(lua)?.room.take(len) else { return no_memory(lua) };
    let waits = host.wait_for(async move {
        let state = &busy.state;
        let sent = poll_fn(|cx| state.poll_send(cx, &bytes, &mut written));
        let sent = within(state.timeouts.get().send, sent).await;
        drop(taken);
        match sent {
            Ok(()) => returned(len),
            Err(error) => failed(state.lost(&error)),
        }
    })?;
    waits.into_lua_multi(lua)
}

/// Whether the text was found at which code stops to read.
fn is_found(want: &Want) -> Option<bool> {
    if let Want::Until(until, _) = want { Some(until.is_found.get()) } else { None }
}

/// Returns what is wanted, at once if it has been read.
fn read(lua: &Lua, host: &Host, (tcp, want): (&Tcp, Want)) -> mlua::Result<MultiValue> {
    host.check_waiting()?;
    if tcp.0.connection.borrow().is_none() {
        return now(lua, (Value::Nil, "closed"));
    }
    let Some(busy) = Busy::new(&tcp.0, |state| &state.is_reading) else {
        return now(lua, (Value::Nil, "socket busy reading"));
    };
    if let Some(found) = busy.state.take(&want) {
        Steps::of(lua).take_bytes(found.len())?;
        let found = lua.create_string(found)?;
        return now(lua, (found, Value::Nil, Value::Nil, is_found(&want)));
    }
    let waits = host.wait_for(async move {
        let outcome: Outcome = match busy.state.read(&want).await {
            Ok(found) => Box::new(move |lua| {
                Steps::of(lua).take_bytes(found.len())?;
                (true, lua.create_string(&found)?, Value::Nil, Value::Nil, is_found(&want))
                    .into_lua_multi(lua)
            }),
            Err((why, rest)) => Box::new(move |lua| {
                Steps::of(lua).announce(rest.len());
                (true, Value::Nil, why, lua.create_string(rest)?).into_lua_multi(lua)
            }),
        };
        outcome
    })?;
    waits.into_lua_multi(lua)
}

fn receive(lua: &Lua, host: &Host, (tcp, wanted): (UserDataRef<Tcp>, Value)) -> mlua::Result<MultiValue> {
    let name = wanted.as_string().map(|text| text.to_string_lossy());
    let want = match (name.as_deref(), &wanted) {
        (_, Value::Nil) | (Some("*l" | "l"), _) => Want::Line,
        (Some("*a" | "a"), _) => Want::All,
        _ => match lua.coerce_number(wanted)? {
            Some(count) if count >= 0.0 => Want::Exactly(count as usize),
            _ => return refused("bad argument #1 to 'receive' (bad pattern argument)"),
        },
    };
    read(lua, host, (&tcp, want))
}

fn receive_any(lua: &Lua, host: &Host, (tcp, max): (UserDataRef<Tcp>, f64)) -> mlua::Result<MultiValue> {
    if max < 1.0 {
        return refused("bad argument #1 to 'receiveany' (bad max argument)");
    }
    read(lua, host, (&tcp, Want::Any(max as usize)))
}

type UntilArgs = (UserDataRef<Tcp>, LuaString, bool, Option<f64>);

/// Returns a fourth value beside what the others do: whether the text was found.
fn receive_until(
    lua: &Lua,
    host: &Host,
    (tcp, text, inclusive, size): UntilArgs,
) -> mlua::Result<MultiValue> {
    if !(1..=MAX_TEXT).contains(&text.as_bytes().len()) {
        return refused(format!(
            "bad argument #1 to 'receiveuntil' (a text of 1 to {MAX_TEXT} bytes expected)"
        ));
    }
    let size = size.filter(|size| *size >= 1.0).map(|size| size as usize);
    let until = Until::new(text.as_bytes().to_vec(), inclusive);
    read(lua, host, (&tcp, Want::Until(until, size)))
}

type TimeoutArgs = (UserDataRef<Tcp>, Option<f64>, Option<f64>, Option<f64>);

fn set_timeouts(_: &Lua, _: &Host, (tcp, connect, send, read): TimeoutArgs) -> mlua::Result<()> {
    let [connect, send, read] = [connect, send, read].map(duration);
    tcp.0.timeouts.set(Timeouts { connect, send, read });
    Ok(())
}

type KeepArgs = (UserDataRef<Tcp>, LuaString, Option<f64>, Option<f64>);

fn set_keepalive(lua: &Lua, _: &Host, (tcp, pool, ms, size): KeepArgs) -> mlua::Result<MultiValue> {
    let state = &tcp.0;
    if state.is_reading.get() || state.is_writing.get() {
        return (Value::Nil, "socket busy").into_lua_multi(lua);
    }
    let Some(mut connection) = state.connection.take() else {
        return (Value::Nil, "closed").into_lua_multi(lua);
    };
    if !connection.buffer.is_empty() {
        return (Value::Nil, "unread data in buffer").into_lua_multi(lua);
    }
    if !connection.is_idle() {
        return (Value::Nil, "connection in dubious state").into_lua_multi(lua);
    }
    let limit = if ms == Some(0.0) { None } else { Some(duration(ms)) };
    let size = size.map_or(POOL_SIZE, |size| size as usize);
    let pool = pool.to_string_lossy().into();
    Sockets::of(lua)?.pool.put(&pool, connection, (limit, size));
    1.into_lua_multi(lua)
}

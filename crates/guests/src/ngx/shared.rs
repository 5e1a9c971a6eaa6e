//! `ngx.shared`: dictionaries of the node, which all workers share and reloads keep.

use crate::dicts::Dicts;
use crate::host::Host;
use crate::namespace::{Namespace, refused};
use crate::phase::Phases;
use crate::steps::Steps;
use mlua::{AnyUserData, Lua, LuaString, MultiValue, Table, UserData, Value};
use std::time::Duration;
use weir_plugin::{DictError, DictValue, SharedDict, WriteCondition, WriteOptions};

/// The longest key.
const MAX_KEY: usize = 65_535;
/// How many keys `get_keys` returns unless it is told.
const DEFAULT_KEYS: usize = 1024;
/// How many steps it takes to look at an entry.
const STEPS_PER_ENTRY: usize = 16;
/// The longest time, in seconds: more is for ever.
const MAX_SECONDS: f64 = 1e12;

/// Where the metatable of a dictionary's table has the dictionary.
const ZONE: &str = "zone";

/// A dictionary, as its table holds it.
struct Zone(SharedDict);

impl UserData for Zone {}

/// Makes `ngx.shared`.
pub(super) fn table(make: &Namespace<'_>, dicts: &Dicts) -> mlua::Result<Table> {
    let methods = methods(make)?;
    let refuse =
        make.lua.create_function(|_, _: MultiValue| refused::<()>("a shared dictionary is read-only"))?;
    let shared = make.table()?;
    for (name, dict) in dicts.iter() {
        let (table, meta) = (make.table()?, make.table()?);
        meta.raw_set("__index", &methods)?;
        meta.raw_set("__newindex", &refuse)?;
        meta.raw_set("__metatable", false)?;
        meta.raw_set(ZONE, make.lua.create_userdata(Zone(dict.clone()))?)?;
        table.set_metatable(Some(meta))?;
        shared.raw_set(name, table)?;
    }
    Ok(shared)
}

fn methods(make: &Namespace<'_>) -> mlua::Result<Table> {
    let methods = make.table()?;
    let writes = [
        ("set", WriteCondition::Always, false),
        ("safe_set", WriteCondition::Always, true),
        ("add", WriteCondition::Absent, false),
        ("safe_add", WriteCondition::Absent, true),
        ("replace", WriteCondition::Present, false),
    ];
    for (name, when, keep_others) in writes {
        let write = move |lua: &Lua, dict: &SharedDict, args: [Value; 4]| {
            store(lua, dict, args, WriteOptions { when, keep_others, ..WriteOptions::default() })
        };
        add(make, &methods, name, write)?;
    }
    let delete = |lua: &Lua, dict: &SharedDict, [key, ..]: [Value; 4]| {
        store(lua, dict, [key, Value::Nil, Value::Nil, Value::Nil], WriteOptions::default())
    };
    add(make, &methods, "delete", delete)?;
    add(make, &methods, "get", get)?;
    add(make, &methods, "get_stale", get_stale)?;
    add(make, &methods, "incr", incr)?;
    add(make, &methods, "ttl", ttl)?;
    add(make, &methods, "expire", expire)?;
    lists(make, &methods)?;
    whole(make, &methods)?;
    Ok(methods)
}

/// Adds a method: the dictionary is that of the table it is called on.
fn add(
    make: &Namespace<'_>,
    methods: &Table,
    name: &str,
    method: impl Fn(&Lua, &SharedDict, [Value; 4]) -> mlua::Result<MultiValue> + 'static,
) -> mlua::Result<()> {
    let steps = Steps::of(make.lua);
    let function = make.host(Phases::ANY, move |lua, _: &Host, mut args: MultiValue| {
        let zone = zone(args.pop_front())?;
        let zone = zone.borrow::<Zone>()?;
        let args: [Value; 4] = std::array::from_fn(|_| args.pop_front().unwrap_or(Value::Nil));
        let bytes = args.iter().filter_map(Value::as_string).map(|text| text.as_bytes().len());
        steps.take_bytes(bytes.sum())?;
        method(lua, &zone.0, args)
    })?;
    methods.raw_set(name, function)
}

fn zone(own: Option<Value>) -> mlua::Result<AnyUserData> {
    let meta = own.as_ref().and_then(Value::as_table).and_then(Table::metatable);
    let zone = meta.and_then(|meta| meta.raw_get::<AnyUserData>(ZONE).ok()).filter(AnyUserData::is::<Zone>);
    zone.map_or_else(|| refused("bad \"zone\" argument"), Ok)
}

fn values<const N: usize>(values: [Value; N]) -> mlua::Result<MultiValue> {
    Ok(MultiValue::from_iter(values))
}

/// `nil` and a message.
fn failed(lua: &Lua, message: &str) -> mlua::Result<MultiValue> {
    values([Value::Nil, Value::String(lua.create_string(message)?)])
}

/// A key, or why it is none.
fn key(lua: &Lua, key: Value) -> mlua::Result<Result<LuaString, &'static str>> {
    let text = match key {
        Value::Nil => return Ok(Err("nil key")),
        Value::String(text) => text,
        key => match lua.coerce_string(key.clone())? {
            Some(text) => text,
            None => lua.create_string(key.to_string()?)?,
        },
    };
    Ok(match text.as_bytes().len() {
        0 => Err("empty key"),
        length if length > MAX_KEY => Err("key too long"),
        _ => Ok(text),
    })
}

/// Goes on with a key, or returns why it is none.
macro_rules! key {
    ($lua:ident, $key:expr) => {
        match key($lua, $key)? {
            Ok(key) => key,
            Err(message) => return failed($lua, message),
        }
    };
}

/// A time in seconds, none for one that never ends.
fn seconds(lua: &Lua, name: &str, value: Value) -> mlua::Result<Option<Duration>> {
    let Some(seconds) = lua.coerce_number(value)?.filter(|seconds| *seconds >= 0.0) else {
        return refused(format!("bad \"{name}\" argument"));
    };
    let milliseconds = (seconds.min(MAX_SECONDS) * 1000.0) as u64;
    Ok((milliseconds > 0).then(|| Duration::from_millis(milliseconds)))
}

fn number(lua: &Lua, name: &str, value: Value) -> mlua::Result<f64> {
    let kind = value.type_name();
    match lua.coerce_number(value)? {
        Some(number) => Ok(number),
        None => refused(format!("bad {name} arg: number expected, got {kind}")),
    }
}

fn stored(value: &Value) -> Option<DictValue> {
    Some(match value {
        Value::String(text) => (&*text.as_bytes()).into(),
        Value::Integer(number) => (*number as f64).into(),
        Value::Number(number) => (*number).into(),
        Value::Boolean(value) => (*value).into(),
        _ => return None,
    })
}

fn shown(lua: &Lua, value: DictValue) -> mlua::Result<Value> {
    Ok(match value {
        DictValue::Bytes(bytes) => {
            Steps::of(lua).take_bytes(bytes.len())?;
            Value::String(lua.create_string(&*bytes)?)
        }
        DictValue::Number(number) => Value::Number(number),
        DictValue::Boolean(value) => Value::Boolean(value),
    })
}

fn text(error: DictError) -> &'static str {
    match error {
        DictError::Exists => "exists",
        DictError::NotFound => "not found",
        DictError::NotANumber => "not a number",
        DictError::IsAList => "value is a list",
        DictError::NotAList => "value not a list",
        DictError::NoMemory => "no memory",
    }
}

/// Writes a value; without one, removes the key.
fn store(
    lua: &Lua,
    dict: &SharedDict,
    [of, value, ttl, flags]: [Value; 4],
    options: WriteOptions,
) -> mlua::Result<MultiValue> {
    let ttl = if ttl.is_nil() { None } else { seconds(lua, "exptime", ttl)? };
    let flags = if flags.is_nil() { 0 } else { number(lua, "flags", flags)? as i64 as u32 };
    let of = key!(lua, of);
    let written = match (stored(&value), &value) {
        (Some(value), _) => dict.write(of.as_bytes(), value, WriteOptions { ttl, flags, ..options }),
        (None, Value::Nil) if options.when == WriteCondition::Always => {
            dict.delete(of.as_bytes());
            return values([Value::Boolean(true), Value::Nil, Value::Boolean(false)]);
        }
        (None, Value::Nil) => {
            let message = lua.create_string("attempt to add or replace nil values")?;
            return values([Value::Boolean(false), Value::String(message), Value::Boolean(false)]);
        }
        _ => return failed(lua, "bad value type"),
    };
    match written {
        Ok(outcome) => values([Value::Boolean(true), Value::Nil, Value::Boolean(outcome.evicted)]),
        Err(error) => {
            let message = Value::String(lua.create_string(text(error))?);
            values([Value::Boolean(false), message, Value::Boolean(false)])
        }
    }
}

fn get(lua: &Lua, dict: &SharedDict, [of, ..]: [Value; 4]) -> mlua::Result<MultiValue> {
    let of = key!(lua, of);
    match dict.find(of.as_bytes()) {
        Ok(Some(found)) if !found.is_stale => match found.flags {
            0 => values([shown(lua, found.value)?]),
            flags => values([shown(lua, found.value)?, Value::Number(flags.into())]),
        },
        Ok(_) => values([Value::Nil]),
        Err(error) => failed(lua, text(error)),
    }
}

fn get_stale(lua: &Lua, dict: &SharedDict, [of, ..]: [Value; 4]) -> mlua::Result<MultiValue> {
    let of = key!(lua, of);
    match dict.find(of.as_bytes()) {
        Ok(Some(found)) => {
            let flags = if found.flags == 0 { Value::Nil } else { Value::Number(found.flags.into()) };
            values([shown(lua, found.value)?, flags, Value::Boolean(found.is_stale)])
        }
        Ok(None) => values([Value::Nil]),
        Err(error) => failed(lua, text(error)),
    }
}

fn incr(lua: &Lua, dict: &SharedDict, [of, by, init, ttl]: [Value; 4]) -> mlua::Result<MultiValue> {
    let of = key!(lua, of);
    let by = number(lua, "value", by)?;
    let init = match init {
        Value::Nil | Value::Boolean(false) => None,
        init => Some(number(lua, "init", init)?),
    };
    let has_ttl = !ttl.is_nil();
    let ttl = if has_ttl { number(lua, "init_ttl", ttl).map(Value::Number)? } else { Value::Number(0.0) };
    let ttl = seconds(lua, "init_ttl", ttl)?;
    if has_ttl && init.is_none() {
        return refused("must provide \"init\" when providing \"init_ttl\"");
    }
    match dict.increment(of.as_bytes(), by, init.map(|init| (init, ttl))) {
        Ok((number, _)) if init.is_none() => values([Value::Number(number)]),
        Ok((number, outcome)) => values([Value::Number(number), Value::Nil, Value::Boolean(outcome.evicted)]),
        Err(error) => failed(lua, text(error)),
    }
}

fn ttl(lua: &Lua, dict: &SharedDict, [of, ..]: [Value; 4]) -> mlua::Result<MultiValue> {
    let of = key!(lua, of);
    match dict.ttl(of.as_bytes()) {
        Some(left) => values([Value::Number(left.map_or(0.0, |left| left.as_millis() as f64 / 1000.0))]),
        None => failed(lua, text(DictError::NotFound)),
    }
}

fn expire(lua: &Lua, dict: &SharedDict, [of, after, ..]: [Value; 4]) -> mlua::Result<MultiValue> {
    let after = seconds(lua, "exptime", after)?;
    let of = key!(lua, of);
    match dict.expire(of.as_bytes(), after) {
        true => values([Value::Boolean(true)]),
        false => failed(lua, text(DictError::NotFound)),
    }
}

/// The methods of queues.
fn lists(make: &Namespace<'_>, methods: &Table) -> mlua::Result<()> {
    for (name, at_front) in [("lpush", true), ("rpush", false)] {
        add(make, methods, name, move |lua, dict, args| push(lua, dict, at_front, args))?;
    }
    for (name, at_front) in [("lpop", true), ("rpop", false)] {
        add(make, methods, name, move |lua, dict, args| pop(lua, dict, at_front, args))?;
    }
    add(make, methods, "llen", |lua, dict, [of, ..]| {
        let of = key!(lua, of);
        match dict.llen(of.as_bytes()) {
            Ok(length) => values([Value::Number(length as f64)]),
            Err(error) => failed(lua, text(error)),
        }
    })
}

fn push(
    lua: &Lua,
    dict: &SharedDict,
    at_front: bool,
    [of, value, ..]: [Value; 4],
) -> mlua::Result<MultiValue> {
    let of = key!(lua, of);
    let value = match stored(&value) {
        Some(value) if !matches!(value, DictValue::Boolean(_)) => value,
        _ => return failed(lua, "bad value type"),
    };
    let of = of.as_bytes();
    match if at_front { dict.lpush(of, value) } else { dict.rpush(of, value) } {
        Ok(length) => values([Value::Number(length as f64)]),
        Err(error) => failed(lua, text(error)),
    }
}

fn pop(lua: &Lua, dict: &SharedDict, at_front: bool, [of, ..]: [Value; 4]) -> mlua::Result<MultiValue> {
    let of = key!(lua, of);
    let of = of.as_bytes();
    match if at_front { dict.lpop(of) } else { dict.rpop(of) } {
        Ok(Some(value)) => values([shown(lua, value)?]),
        Ok(None) => values([Value::Nil]),
        Err(error) => failed(lua, text(error)),
    }
}

/// The methods that concern all entries. They take steps for each before they look at it.
fn whole(make: &Namespace<'_>, methods: &Table) -> mlua::Result<()> {
    let walk = |lua: &Lua, dict: &SharedDict| Steps::of(lua).take_many(dict.count() * STEPS_PER_ENTRY);
    // How many entries at most: zero for all.
    let most = |lua: &Lua, most: Value, default: usize| {
        let most = if most.is_nil() { default } else { number(lua, "max", most)? as usize };
        Ok::<_, mlua::Error>(if most == 0 { usize::MAX } else { most })
    };
    add(make, methods, "flush_all", move |lua, dict, _| {
        walk(lua, dict)?;
        dict.flush_all();
        values([])
    })?;
    add(make, methods, "flush_expired", move |lua, dict, [max, ..]| {
        let max = most(lua, max, 0)?;
        walk(lua, dict)?;
        values([Value::Number(dict.flush_expired(max) as f64)])
    })?;
    add(make, methods, "get_keys", move |lua, dict, [max, ..]| {
        let max = most(lua, max, DEFAULT_KEYS)?;
        walk(lua, dict)?;
        let (found, keys) = (dict.keys(max), lua.create_table()?);
        Steps::of(lua).announce(found.iter().map(|key| key.len()).sum());
        for (key, at) in found.iter().zip(1..) {
            keys.raw_set(at, lua.create_string(key)?)?;
        }
        values([Value::Table(keys)])
    })?;
    add(make, methods, "capacity", |_, dict, _| values([Value::Number(dict.capacity() as f64)]))?;
    add(make, methods, "free_space", |_, dict, _| values([Value::Number(dict.free_space() as f64)]))
}

//! Values of Lua in shared dictionaries, and locks: what `kong.cache`, `resty.mlcache` and `resty.lock` are made of.

mod record;

use crate::dicts::Dicts;
use crate::steps::Steps;
use aws_lc_rs::digest::{SHA256, digest};
use mlua::{AnyUserData, IntoLuaMulti, Lua, LuaString, MultiValue, Table, UserData, Value};
pub(crate) use record::Record;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weir_plugin::{DictError, DictValue, SharedDict, WriteCondition, WriteOptions};

/// The longest time, in seconds: more is for ever.
const MAX_SECONDS: f64 = 1e12;
/// How many steps it takes to look at an entry.
const STEPS_PER_ENTRY: usize = 16;

/// A shared dictionary, as the modules hold it.
struct Dict(SharedDict);

impl UserData for Dict {}

/// A lock that is held until this is dropped, which the collector of the VM does where code has not released it.
struct Held {
    dict: SharedDict,
    key: Vec<u8>,
    token: f64,
}

impl UserData for Held {}

impl Held {
    /// Whether nobody else has the lock, because it has expired.
    fn is_own(&self) -> bool {
        self.dict.get(&self.key) == Some(DictValue::Number(self.token))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.is_own() {
            self.dict.delete(&self.key);
        }
    }
}

/// A number that no other value of the node has.
fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What the modules are called with.
pub(crate) fn natives(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("dict", lua.create_function(dict)?)?;
    table.raw_set("read", lua.create_function(read)?)?;
    table.raw_set("write", lua.create_function(write)?)?;
    table.raw_set("remove", lua.create_function(remove)?)?;
    table.raw_set("purge", lua.create_function(purge)?)?;
    table.raw_set("hold", lua.create_function(hold)?)?;
    table.raw_set("release", lua.create_function(release)?)?;
    table.raw_set("extend", lua.create_function(extend)?)?;
    Ok(table)
}

/// The dictionary of a name, if there is one.
fn dict(lua: &Lua, name: LuaString) -> mlua::Result<Option<Dict>> {
    let Some(dicts) = lua.app_data_ref::<Arc<Dicts>>() else { return Ok(None) };
    Ok(dicts.get(&name.to_string_lossy()).map(|dict| Dict(dict.clone())))
}

fn seconds(seconds: Option<f64>) -> Option<Duration> {
    let milliseconds = (seconds.unwrap_or_default().clamp(0.0, MAX_SECONDS) * 1000.0) as u64;
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
}

/// The longest key of a lock that stays as it is. The memory limit of the VM does not count keys that locks hold.
const MAX_LOCK_KEY: usize = 128;

/// A key as a lock holds it.
fn lock_key(lua: &Lua, key: &LuaString) -> mlua::Result<Vec<u8>> {
    let key = key.as_bytes();
    Steps::of(lua).take_bytes(key.len())?;
    Ok(if key.len() <= MAX_LOCK_KEY { key.to_vec() } else { digest(&SHA256, &key).as_ref().to_vec() })
}

/// What a key holds: its number, the seconds that are left, whether it has expired, its length, and the value. The value is
/// left out if the caller knows the number.
fn read(lua: &Lua, (dict, key, known): (AnyUserData, LuaString, Option<u64>)) -> mlua::Result<MultiValue> {
    let dict = &dict.borrow::<Dict>()?.0;
    Steps::of(lua).take_bytes(key.as_bytes().len())?;
    let Ok(Some(entry)) = dict.find(key.as_bytes()) else { return Ok(MultiValue::new()) };
    let Some(record) = entry.value.as_bytes().and_then(Record::read) else { return Ok(MultiValue::new()) };
    let left = dict.ttl(key.as_bytes()).flatten().unwrap_or_default();
    let value = match known == Some(record.number) {
        true => Value::Nil,
        false => {
            Steps::of(lua).take_bytes(record.value.len())?;
            record.value(lua)?
        }
    };
    (record.number, left.as_secs_f64(), entry.is_stale, record.value.len(), value).into_lua_multi(lua)
}

/// Writes a value, which expires after some seconds if they are more than zero. Returns its number and its length, or
/// nothing and why.
fn write(
    lua: &Lua,
    (dict, key, value, ttl, keep_others): (AnyUserData, LuaString, Value, Option<f64>, Option<bool>),
) -> mlua::Result<MultiValue> {
    let number = unique();
    Steps::of(lua).take_bytes(key.as_bytes().len())?;
    let bytes = match Record::write(lua, number, &value)? {
        Ok(bytes) => bytes,
        Err(kind) => return (Value::Nil, format!("cannot keep a value of type {kind}")).into_lua_multi(lua),
    };
    let length = bytes.len();
    let keep_others = keep_others.unwrap_or_default();
    let options = WriteOptions { ttl: seconds(ttl), keep_others, ..WriteOptions::default() };
    match dict.borrow::<Dict>()?.0.write(key.as_bytes(), bytes, options) {
        Ok(_) => (number, length).into_lua_multi(lua),
        Err(_) => (Value::Nil, "no memory").into_lua_multi(lua),
    }
}

fn remove(_: &Lua, (dict, key): (AnyUserData, LuaString)) -> mlua::Result<bool> {
    Ok(dict.borrow::<Dict>()?.0.delete(key.as_bytes()))
}

/// Removes the keys that begin so.
fn purge(lua: &Lua, (dict, start): (AnyUserData, LuaString)) -> mlua::Result<()> {
    let dict = &dict.borrow::<Dict>()?.0;
    Steps::of(lua).take_many(dict.count() * STEPS_PER_ENTRY)?;
    for key in dict.keys(usize::MAX).iter().filter(|key| key.starts_with(&start.as_bytes())) {
        dict.delete(key);
    }
    Ok(())
}

/// Takes a lock, which ends after some seconds by itself. Nothing and why if it is taken.
fn hold(lua: &Lua, (dict, key, ttl): (AnyUserData, LuaString, Option<f64>)) -> mlua::Result<MultiValue> {
    let dict = dict.borrow::<Dict>()?.0.clone();
    let token = unique() as f64;
    let (key, when) = (lock_key(lua, &key)?, WriteCondition::Absent);
    let options = WriteOptions { when, ttl: seconds(ttl), ..WriteOptions::default() };
    match dict.write(&key, token, options) {
        Ok(_) => Held { dict, key, token }.into_lua_multi(lua),
        Err(DictError::Exists) => (Value::Nil, "exists").into_lua_multi(lua),
        Err(_) => (Value::Nil, "no memory").into_lua_multi(lua),
    }
}

/// Releases a lock; says whether it was still held.
fn release(_: &Lua, held: AnyUserData) -> mlua::Result<bool> {
    let held = held.take::<Held>()?;
    Ok(held.is_own())
}

/// Has a lock end after so many seconds from now; says whether it was still held.
fn extend(_: &Lua, (held, ttl): (AnyUserData, Option<f64>)) -> mlua::Result<bool> {
    let held = held.borrow::<Held>()?;
    Ok(held.is_own() && held.dict.expire(&held.key, seconds(ttl)))
}

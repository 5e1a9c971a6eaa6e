//! What modules of Lua need for `resty.openssl`, `resty.sha256`, `resty.aes` and their like.

mod certificate;
mod cipher;
pub(super) mod digest;
mod integer;
mod key;
mod pem;
mod signature;

use mlua::{Lua, LuaString, Table};

use crate::steps::Steps;

/// The functions in Rust that such a module is called with.
pub(super) fn natives(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let digest = lua.create_function(|lua, (name, data): (String, LuaString)| {
        Steps::of(lua).take_bytes(data.as_bytes().len())?;
        digest::digest(&name, &data.as_bytes()).map(|digest| lua.create_string(digest)).transpose()
    })?;
    table.raw_set("digest", digest)?;
    let hmac = lua.create_function(|lua, (name, key, data): (String, LuaString, LuaString)| {
        Steps::of(lua).take_bytes(data.as_bytes().len())?;
        digest::hmac(&name, &key.as_bytes(), &data.as_bytes()).map(|code| lua.create_string(code)).transpose()
    })?;
    table.raw_set("hmac", hmac)?;
    let hex = lua.create_function(|_, data: LuaString| Ok(digest::hex(&data.as_bytes())))?;
    table.raw_set("hex", hex)?;
    table.raw_set("random", lua.create_function(|lua, count: usize| lua.create_string(random(count)?))?)?;
    integer::add(lua, &table)?;
    cipher::add(lua, &table)?;
    key::add(lua, &table)?;
    certificate::add(lua, &table)?;
    Ok(table)
}

/// The most random bytes that one call returns.
const MAX_RANDOM: usize = 1 << 20;

fn random(count: usize) -> mlua::Result<Vec<u8>> {
    let mut bytes = vec![0; count.min(MAX_RANDOM)];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| mlua::Error::runtime("the system has no random bytes"))?;
    Ok(bytes)
}

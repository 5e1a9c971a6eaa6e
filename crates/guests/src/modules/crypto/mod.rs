//! What modules of Lua need for `resty.openssl`, `resty.sha256`, `resty.aes` and their like.

mod certificate;
mod cipher;
pub(super) mod digest;
mod integer;
mod key;
mod pem;
mod signature;

use mlua::{Lua, LuaString, Table};

use crate::raise;
use crate::steps::Steps;

/// The functions in Rust that such a module is called with.
pub(super) fn natives(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let digest = raise::metered(lua, |lua, (name, data): (String, LuaString)| {
        let digest = digest::digest(&name, &data.as_bytes());
        Ok(digest.map(|digest| lua.create_string(digest)).transpose()?)
    })?;
    table.raw_set("digest", digest)?;
    let hmac = raise::metered(lua, |lua, (name, key, data): (String, LuaString, LuaString)| {
        let code = digest::hmac(&name, &key.as_bytes(), &data.as_bytes());
        Ok(code.map(|code| lua.create_string(code)).transpose()?)
    })?;
    table.raw_set("hmac", hmac)?;
    let hex = raise::metered(lua, |_, data: LuaString| Ok(digest::hex(&data.as_bytes())))?;
    table.raw_set("hex", hex)?;
    let random = lua.create_function(|lua, count: usize| {
        let count = count.min(MAX_RANDOM);
        Steps::of(lua).take_bytes(count)?;
        lua.create_string(random(count)?)
    })?;
    table.raw_set("random", random)?;
    integer::add(lua, &table)?;
    cipher::add(lua, &table)?;
    key::add(lua, &table)?;
    certificate::add(lua, &table)?;
    Ok(table)
}

/// The most random bytes that one call returns.
const MAX_RANDOM: usize = 1 << 20;

fn random(count: usize) -> mlua::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| mlua::Error::runtime("the system has no random bytes"))?;
    Ok(bytes)
}

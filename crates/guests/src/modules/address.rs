//! Addresses and identifiers for `kong.tools`.

use std::net::{IpAddr, Ipv6Addr};

use mlua::{Lua, Table};
use uuid::Uuid;

use crate::raise;

/// The functions that `kong.tools.ip` and `kong.tools.uuid` are called with.
pub(super) fn natives(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let parse = raise::metered(lua, |_, text: String| {
        Ok(match text.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(IpAddr::V4(address)) => (Some("ipv4"), Some(address.to_string())),
            Ok(IpAddr::V6(address)) => (Some("ipv6"), Some(expanded(address))),
            Err(_) => (None, None),
        })
    })?;
    table.raw_set("address", parse)?;
    table.raw_set("uuid", lua.create_function(|_, ()| Ok(Uuid::new_v4().to_string()))?)?;
    let is_uuid =
        raise::metered(lua, |_, text: String| Ok(text.len() == 36 && Uuid::try_parse(&text).is_ok()))?;
    table.raw_set("is_uuid", is_uuid)?;
    Ok(table)
}

/// All eight groups with four digits each.
fn expanded(address: Ipv6Addr) -> String {
    address.segments().map(|group| format!("{group:04x}")).join(":")
}

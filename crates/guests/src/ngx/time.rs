//! The time: `ngx.now` and its like.

use crate::pdk::namespace::Namespace;
use mlua::Table;
use std::time::{SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;

/// Adds the functions.
pub(super) fn fill(make: &Namespace<'_>, ngx: &Table) -> mlua::Result<()> {
    let lua = make.lua;
    ngx.set("now", lua.create_function(|_, ()| Ok((since_epoch() * 1000.0).floor() / 1000.0))?)?;
    ngx.set("time", lua.create_function(|_, ()| Ok(since_epoch().floor()))?)?;
    ngx.set("update_time", lua.create_function(|_, ()| Ok(()))?)?;
    ngx.set("today", lua.create_function(|_, ()| Ok(date(OffsetDateTime::now_utc())))?)?;
    // The clock of the node is UTC's.
    for name in ["localtime", "utctime"] {
        ngx.set(name, lua.create_function(|_, ()| Ok(date_and_time(OffsetDateTime::now_utc())))?)?;
    }
    Ok(())
}

fn since_epoch() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn date(now: OffsetDateTime) -> String {
    format!("{:04}-{:02}-{:02}", now.year(), u8::from(now.month()), now.day())
}

fn date_and_time(now: OffsetDateTime) -> String {
    format!("{} {:02}:{:02}:{:02}", date(now), now.hour(), now.minute(), now.second())
}

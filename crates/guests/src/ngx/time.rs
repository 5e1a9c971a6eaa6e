//! The time: `ngx.now` and its like.

use crate::namespace::Namespace;
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

/// The seconds since 1970.
pub(super) fn since_epoch() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The time as nginx's `time_iso8601`.
pub(super) fn iso8601() -> String {
    format!("{}+00:00", date_and_time(OffsetDateTime::now_utc()).replace(' ', "T"))
}

/// The time as access logs have it.
pub(super) fn common_log_time() -> String {
    let now = OffsetDateTime::now_utc();
    let month = now.month().to_string();
    let (time, name) = (date_and_time(now), month.get(..3).unwrap_or_default());
    let (_, time) = time.split_once(' ').unwrap_or_default();
    format!("{:02}/{name}/{:04}:{time} +0000", now.day(), now.year())
}

fn date(now: OffsetDateTime) -> String {
    format!("{:04}-{:02}-{:02}", now.year(), u8::from(now.month()), now.day())
}

fn date_and_time(now: OffsetDateTime) -> String {
    format!("{} {:02}:{:02}:{:02}", date(now), now.hour(), now.minute(), now.second())
}

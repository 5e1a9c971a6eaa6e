//! `http_time`, `parse_http_time` and `cookie_time`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mlua::{Lua, Table, Value};

use crate::raise::{self, Checked};

/// The last second of the year 9999, beyond which dates have no form.
const MAX_SECONDS: f64 = 253_402_300_799.0;

pub(super) fn add(lua: &Lua, table: &Table) -> mlua::Result<()> {
    table.raw_set("http_time", raise::metered(lua, |_, value: Value| http_date(&value))?)?;
    table.raw_set(
        "cookie_time",
        raise::metered(lua, |_, value: Value| Ok(cookie_date(&http_date(&value)?)))?,
    )?;
    let parse = raise::metered(lua, |_, value: Value| {
        let Value::String(text) = value else { return Err("string argument only".into()) };
        let time = text.to_str().ok().and_then(|text| httpdate::parse_http_date(&text).ok());
        Ok(time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_secs()))
    })?;
    table.raw_set("parse_http_time", parse)
}

fn http_date(value: &Value) -> Checked<String> {
    let seconds =
        value.as_number().or(value.as_integer().map(|number| number as f64)).ok_or("number argument only")?;
    let time: SystemTime = UNIX_EPOCH + Duration::from_secs(seconds.clamp(0.0, MAX_SECONDS) as u64);
    Ok(httpdate::fmt_http_date(time))
}

/// `Thu, 18 Nov 2010 11:27:35 GMT` as `Thu, 18-Nov-10 11:27:35 GMT`. After 2037 the year has four digits, as in nginx.
fn cookie_date(date: &str) -> String {
    let year = &date[12..16];
    let year = if ("1970"..="2037").contains(&year) { &year[2..] } else { year };
    format!("{}-{}-{year}{}", &date[..7], &date[8..11], &date[16..])
}

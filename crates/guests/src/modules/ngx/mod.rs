//! The functions of `ngx` that need no request: encodings, digests, dates, and `ngx.re`.

mod dates;
mod expression;
mod regex;
mod replace;
mod uri;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use mlua::{Lua, LuaString, Table, Value};

use super::crypto::digest;
use crate::raise::{self, Checked};

pub use regex::table as regex;

/// Standard Base64 as nginx reads it: padding is optional, and what the last bits say is ignored.
const LENIENT: GeneralPurpose = lenient(&base64::alphabet::STANDARD);
/// The same with the alphabet for URLs.
const LENIENT_URL: GeneralPurpose = lenient(&base64::alphabet::URL_SAFE);

const fn lenient(alphabet: &base64::alphabet::Alphabet) -> GeneralPurpose {
    let config = GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(alphabet, config)
}

/// A table of `encode_base64`, `md5`, `escape_uri`, `http_time` and their like, for the host to put into `ngx`.
pub fn encodings(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    base64_functions(lua, &table)?;
    bytes(lua, &table, "md5", |data| digest::hex(&digest::md5(data)).into_bytes())?;
    bytes(lua, &table, "md5_bin", |data| digest::md5(data).to_vec())?;
    bytes(lua, &table, "sha1_bin", digest::sha1)?;
    bytes(lua, &table, "quote_sql_str", uri::quote_sql)?;
    for name in ["crc32_short", "crc32_long"] {
        let function = raise::metered(lua, |lua, value: Value| Ok(crc32(&text(lua, value)?.as_bytes())))?;
        table.raw_set(name, function)?;
    }
    let hmac = raise::metered(lua, |lua, (key, data): (LuaString, LuaString)| {
        let code = digest::hmac("sha1", &key.as_bytes(), &data.as_bytes());
        Ok(code.map(|code| lua.create_string(code)).transpose()?)
    })?;
    table.raw_set("hmac_sha1", hmac)?;
    uri::add(lua, &table)?;
    dates::add(lua, &table)?;
    Ok(table)
}

/// The module `ngx.base64`.
pub(super) fn base64_url(lua: &Lua) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    let encode = raise::metered(lua, |lua, value: Value| match value.as_string() {
        Some(text) => Ok((Value::String(lua.create_string(LENIENT_URL.encode(text.as_bytes()))?), None)),
        None => Ok((Value::Nil, Some("must provide a string"))),
    })?;
    table.raw_set("encode_base64url", encode)?;
    let decode = raise::metered(lua, |lua, value: Value| {
        let Some(text) = value.as_string() else { return Ok((Value::Nil, Some("must provide a string"))) };
        match decode(&LENIENT_URL, &text.as_bytes()) {
            Some(bytes) => Ok((Value::String(lua.create_string(bytes)?), None)),
            None => Ok((Value::Nil, Some("invalid input"))),
        }
    })?;
    table.raw_set("decode_base64url", decode)?;
    Ok(Value::Table(table))
}

fn base64_functions(lua: &Lua, table: &Table) -> mlua::Result<()> {
    let encode = raise::metered(lua, |lua, (value, no_padding): (Value, Value)| {
        let text = text(lua, value)?;
        let encoded = match no_padding {
            Value::Nil | Value::Boolean(false) => STANDARD.encode(text.as_bytes()),
            Value::Boolean(true) => STANDARD_NO_PAD.encode(text.as_bytes()),
            other => {
                let kind = crate::args::type_name(&other);
                return Err(format!("bad no_padding: boolean expected, got {kind}").into());
            }
        };
        Ok(encoded)
    })?;
    table.raw_set("encode_base64", encode)?;
    let decode = raise::metered(lua, |lua, value: Value| {
        let Value::String(text) = value else { return Err("string argument only".into()) };
        Ok(decode(&LENIENT, &text.as_bytes()).map(|bytes| lua.create_string(bytes)).transpose()?)
    })?;
    table.raw_set("decode_base64", decode)?;
    let decode_mime = raise::metered(lua, |lua, value: Value| {
        let Value::String(text) = value else { return Err("string argument only".into()) };
        let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
        let text: Vec<u8> = text.as_bytes().iter().copied().filter(is_letter).collect();
        Ok(self::decode(&LENIENT, &text).map(|bytes| lua.create_string(bytes)).transpose()?)
    })?;
    table.raw_set("decode_base64mime", decode_mime)
}

/// What Base64 stands for, up to the first `=`.
fn decode(engine: &GeneralPurpose, text: &[u8]) -> Option<Vec<u8>> {
    let end = memchr::memchr(b'=', text).unwrap_or(text.len());
    engine.decode(&text[..end]).ok()
}

/// Adds a function from bytes to bytes. What is not a string is written as one; `nil` is the empty string.
fn bytes(lua: &Lua, table: &Table, name: &str, function: fn(&[u8]) -> Vec<u8>) -> mlua::Result<()> {
    let function = raise::metered(lua, move |lua, value: Value| {
        let text = text(lua, value)?;
        Ok(lua.create_string(function(&text.as_bytes()))?)
    })?;
    table.raw_set(name, function)
}

/// A value as text.
fn text(lua: &Lua, value: Value) -> Checked<LuaString> {
    match value {
        Value::String(text) => Ok(text),
        Value::Nil | Value::Boolean(false) => Ok(lua.create_string("")?),
        value => match lua.coerce_string(value.clone())? {
            Some(text) => Ok(text),
            None => Ok(lua.create_string(value.to_string()?)?),
        },
    }
}

fn crc32(data: &[u8]) -> u32 {
    const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);
    CRC.checksum(data)
}

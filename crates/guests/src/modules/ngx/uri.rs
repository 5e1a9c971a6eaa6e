//! `escape_uri`, `unescape_uri`, `encode_args`, `decode_args` and `quote_sql_str`.

use mlua::{Lua, Table, Value};

use super::text;
use crate::args::{self, Listed};
use crate::raise::{self, Checked};
use crate::steps::Steps;

/// How many arguments `decode_args` reads unless the caller says otherwise.
const MAX_ARGS: i64 = 100;
/// What an argument costs, as if it were so many bytes.
const ARGUMENT: usize = 256;

pub(super) fn add(lua: &Lua, table: &Table) -> mlua::Result<()> {
    let escape = raise::metered(lua, |lua, (value, kind): (Value, Value)| {
        let text = text(lua, value)?;
        let keep = match kind {
            Value::Nil | Value::Integer(2) => is_unreserved,
            Value::Integer(0) => is_of_uri,
            Value::Integer(other) => return Err(format!("\"type\" {other} out of range").into()),
            _ => return Err("\"type\" is not a number".into()),
        };
        let mut out = Vec::new();
        percent_encode(&mut out, &text.as_bytes(), keep);
        Ok(lua.create_string(out)?)
    })?;
    table.raw_set("escape_uri", escape)?;
    super::bytes(lua, table, "unescape_uri", percent_decode)?;
    let encode = raise::metered(lua, |lua, value: Value| {
        let text = encode_args(lua, args::table("encode_args", 1, &value)?)?;
        Ok(lua.create_string(text)?)
    })?;
    table.raw_set("encode_args", encode)?;
    let decode = raise::metered(lua, |lua, (value, max): (Value, Value)| {
        let text = args::string(lua, "decode_args", 1, &value)?;
        let max = args::integer(lua, "decode_args", 2, &max, MAX_ARGS)?;
        decode_args(lua, &text.as_bytes(), usize::try_from(max).unwrap_or(0))
    })?;
    table.raw_set("decode_args", decode)
}

/// What stays as it is in a component of a URI.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!*'()".contains(&byte)
}

/// What stays as it is in a whole URI.
fn is_of_uri(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'#' | b'%' | b'?')
}

/// Hexadecimal digits.
const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

fn percent_encode(out: &mut Vec<u8>, text: &[u8], keep: fn(u8) -> bool) {
    for byte in text {
        if keep(*byte) {
            out.push(*byte);
        } else {
            out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xf)]]);
        }
    }
}

/// Decodes `%XX` and `+`. What is no escape stays.
fn percent_decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let hex = |byte: u8| char::from(byte).to_digit(16);
        rest = match (first, after) {
            (b'%', [high, low, after @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                out.push((hex(*high).unwrap_or(0) * 16 + hex(*low).unwrap_or(0)) as u8);
                after
            }
            (b'+', after) => {
                out.push(b' ');
                after
            }
            (other, after) => {
                out.push(*other);
                after
            }
        };
    }
    out
}

/// The query of a table, keys in order. `true` is an argument without value, `false` none.
fn encode_args(lua: &Lua, arguments: &Table) -> Checked<Vec<u8>> {
    let (mut pairs, steps) = (Vec::new(), Steps::of(lua));
    for pair in arguments.pairs::<Value, Value>() {
        let (key, value) = pair?;
        steps.take_bytes(ARGUMENT)?;
        let Value::String(key) = key else {
            return Err("attempt to use a non-string key in the \"args\" option table".into());
        };
        pairs.push((key.as_bytes().to_vec(), value));
    }
    pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut out = Vec::new();
    for (key, value) in &pairs {
        match value {
            Value::Table(list) => {
                for value in list.sequence_values::<Value>() {
                    encode_arg(lua, &mut out, key, &value?)?;
                }
            }
            value => encode_arg(lua, &mut out, key, value)?,
        }
    }
    Ok(out)
}

fn encode_arg(lua: &Lua, out: &mut Vec<u8>, key: &[u8], value: &Value) -> Checked<()> {
    let before = out.len();
    let text = match value {
        Value::Boolean(false) => return Ok(()),
        Value::Boolean(true) => None,
        Value::String(_) | Value::Integer(_) | Value::Number(_) => lua.coerce_string(value.clone())?,
        other => return Err(format!("attempt to use {} as query arg value", args::type_name(other)).into()),
    };
    if !out.is_empty() {
        out.push(b'&');
    }
    percent_encode(out, key, is_unreserved);
    if let Some(text) = text {
        out.push(b'=');
        percent_encode(out, &text.as_bytes(), is_unreserved);
    }
    Ok(Steps::of(lua).take_bytes(out.len() - before + ARGUMENT)?)
}

/// The arguments of a query as a table, and "truncated" if there are more than `max`. 0 is no limit.
fn decode_args(lua: &Lua, query: &[u8], max: usize) -> Checked<Listed> {
    let table = lua.create_table()?;
    let parts = query.split(|byte| *byte == b'&').filter(|part| !part.is_empty() && part[0] != b'=');
    let steps = Steps::of(lua);
    for (count, part) in parts.enumerate() {
        steps.take_bytes(ARGUMENT)?;
        if max > 0 && count == max {
            return Ok(Listed { table, is_truncated: true });
        }
        let (key, value) = match memchr::memchr(b'=', part) {
            Some(at) => (&part[..at], Value::String(lua.create_string(percent_decode(&part[at + 1..]))?)),
            None => (part, Value::Boolean(true)),
        };
        let key = lua.create_string(percent_decode(key))?;
        match table.raw_get::<Value>(&key)? {
            Value::Nil => table.raw_set(key, value)?,
            Value::Table(list) => list.raw_push(value)?,
            first => table.raw_set(key, lua.create_sequence_from([first, value])?)?,
        }
    }
    Ok(Listed { table, is_truncated: false })
}

/// A literal of SQL, as MySQL escapes it.
pub(super) fn quote_sql(text: &[u8]) -> Vec<u8> {
    let mut out = vec![b'\''];
    for byte in text {
        let escape = match byte {
            0 => b'0',
            0x08 => b'b',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            26 => b'Z',
            b'\\' | b'\'' | b'"' => *byte,
            _ => {
                out.push(*byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', escape]);
    }
    out.push(b'\'');
    out
}

//! A value of Lua as bytes.

use crate::kept;
use crate::steps::Steps;
use mlua::{Lua, Table, Value};

/// What a record begins with, so that values which code writes itself are not taken for one.
const MAGIC: &[u8] = b"\x01weir";
/// How deep tables may be nested.
const MAX_DEPTH: usize = 64;

/// What stands before each value.
mod tag {
    pub(super) const NIL: u8 = 0;
    pub(super) const FALSE: u8 = 1;
    pub(super) const TRUE: u8 = 2;
    pub(super) const NUMBER: u8 = 3;
    pub(super) const STRING: u8 = 4;
    pub(super) const TABLE: u8 = 5;
    pub(super) const NULL: u8 = 6;
}

/// A value with the number of its write.
pub(crate) struct Record<'b> {
    pub(crate) number: u64,
    pub(crate) value: &'b [u8],
}

impl<'b> Record<'b> {
    /// The record in these bytes, if they are one.
    pub(crate) fn read(bytes: &'b [u8]) -> Option<Self> {
        let (number, value) = bytes.strip_prefix(MAGIC)?.split_first_chunk()?;
        Some(Self { number: u64::from_le_bytes(*number), value })
    }

    /// The value.
    pub(crate) fn value(&self, lua: &Lua) -> mlua::Result<Value> {
        let mut rest = self.value;
        take_value(lua, &mut rest, MAX_DEPTH)?.ok_or_else(|| mlua::Error::runtime("the record is malformed"))
    }

    /// A value as a record; the type of what cannot be written.
    pub(crate) fn write(
        lua: &Lua,
        number: u64,
        value: &Value,
    ) -> mlua::Result<Result<Vec<u8>, &'static str>> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&number.to_le_bytes());
        let written = put(&mut out, value, (&Steps::of(lua), MAX_DEPTH))?;
        Ok(written.map(|()| out))
    }
}

fn put(
    out: &mut Vec<u8>,
    value: &Value,
    (steps, depth): (&Steps, usize),
) -> mlua::Result<Result<(), &'static str>> {
    steps.take_many(4)?;
    match value {
        Value::Nil => out.push(tag::NIL),
        Value::Boolean(false) => out.push(tag::FALSE),
        Value::Boolean(true) => out.push(tag::TRUE),
        Value::Integer(number) => put_number(out, *number as f64),
        Value::Number(number) => put_number(out, *number),
        Value::String(text) => {
            let bytes = text.as_bytes();
            steps.take_bytes(bytes.len())?;
            kept::within(out.len() + bytes.len())?;
            out.push(tag::STRING);
            // What is kept is shorter than what 32 bits count.
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(&bytes);
        }
        Value::Table(_) if depth == 0 => return Ok(Err("table, because it is nested too deep")),
        Value::Table(table) => return put_table(out, table, (steps, depth - 1)),
        null if *null == Value::NULL => out.push(tag::NULL),
        other => return Ok(Err(other.type_name())),
    }
    kept::within(out.len())?;
    Ok(Ok(()))
}

fn put_number(out: &mut Vec<u8>, number: f64) {
    out.push(tag::NUMBER);
    out.extend_from_slice(&number.to_le_bytes());
}

/// The members, up to a key that is nil.
fn put_table(
    out: &mut Vec<u8>,
    table: &Table,
    at: (&Steps, usize),
) -> mlua::Result<Result<(), &'static str>> {
    out.push(tag::TABLE);
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        if matches!(key, Value::Table(_)) {
            return Ok(Err("table as a key"));
        }
        for item in [&key, &value] {
            if let Err(kind) = put(out, item, at)? {
                return Ok(Err(kind));
            }
        }
    }
    out.push(tag::NIL);
    Ok(Ok(()))
}

fn take<'b>(rest: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

/// The next value; none where the bytes are malformed.
fn take_value(lua: &Lua, rest: &mut &[u8], depth: usize) -> mlua::Result<Option<Value>> {
    let Some([tag]) = take(rest, 1) else { return Ok(None) };
    Ok(Some(match *tag {
        tag::NIL => Value::Nil,
        tag::FALSE => Value::Boolean(false),
        tag::TRUE => Value::Boolean(true),
        tag::NULL => Value::NULL,
        tag::NUMBER => match take(rest, 8).and_then(|bytes| bytes.try_into().ok()) {
            Some(bytes) => Value::Number(f64::from_le_bytes(bytes)),
            None => return Ok(None),
        },
        tag::STRING => {
            let length = take(rest, 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
            match length.and_then(|length| take(rest, length as usize)) {
                Some(text) => Value::String(lua.create_string(text)?),
                None => return Ok(None),
            }
        }
        tag::TABLE if depth > 0 => match take_table(lua, rest, depth - 1)? {
            Some(table) => Value::Table(table),
            None => return Ok(None),
        },
        _ => return Ok(None),
    }))
}

fn take_table(lua: &Lua, rest: &mut &[u8], depth: usize) -> mlua::Result<Option<Table>> {
    let table = lua.create_table()?;
    loop {
        let key = match take_value(lua, rest, depth)? {
            None => return Ok(None),
            Some(Value::Nil) => return Ok(Some(table)),
            Some(key) => key,
        };
        let Some(value) = take_value(lua, rest, depth)? else { return Ok(None) };
        // A key that is no number cannot be set.
        if key.as_number().is_some_and(f64::is_nan) {
            return Ok(None);
        }
        table.raw_set(key, value)?;
    }
}

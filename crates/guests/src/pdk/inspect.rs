//! Values as `inspect.lua` writes them, for `kong.log.inspect`.

use crate::modules::number;
use crate::source::MAX_MESSAGE;
use crate::steps::Steps;
use mlua::{Lua, MultiValue, Table, Value};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt::Write;

/// How deep tables are shown.
const MAX_DEPTH: usize = 32;
/// How many members of tables are looked at: more do not fit into a message.
const MAX_MEMBERS: usize = MAX_MESSAGE;
/// What it costs to look at one.
const STEPS_PER_MEMBER: usize = 32;

/// The values with spaces between them, at least as far as they are logged.
pub(super) fn listed(lua: &Lua, values: &MultiValue) -> mlua::Result<String> {
    let mut text = String::new();
    for (at, value) in values.iter().enumerate() {
        if text.len() > MAX_MESSAGE {
            break;
        }
        text.push_str(if at > 0 { " " } else { "" });
        text = append(lua, text, value)?;
    }
    Ok(text)
}

fn append(lua: &Lua, text: String, value: &Value) -> mlua::Result<String> {
    let before = text.len();
    let mut writer = Writer { text, ..Writer::default() };
    writer.count(value, MAX_DEPTH)?;
    let steps = Steps::of(lua);
    steps.take_many((writer.members + 1) * STEPS_PER_MEMBER)?;
    writer.value(value, 0)?;
    steps.take_bytes(writer.text.len() - before)?;
    Ok(writer.text)
}

/// A text as far as it is logged.
fn visible(text: &[u8]) -> &[u8] {
    &text[..text.len().min(MAX_MESSAGE + 1)]
}

#[derive(Default)]
struct Writer {
    text: String,
    /// How often each table occurs.
    occurrences: HashMap<*const c_void, usize>,
    /// How many members were counted.
    members: usize,
    /// The numbers of what has one: tables that occur again, functions and their like.
    numbers: HashMap<*const c_void, usize>,
    /// How many of each kind have one.
    numbered: HashMap<&'static str, usize>,
}

impl Writer {
    fn count(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        let Value::Table(table) = value else { return Ok(()) };
        let times = self.occurrences.entry(table.to_pointer()).or_default();
        *times += 1;
        if *times > 1 || depth == 0 {
            return Ok(());
        }
        for pair in table.pairs::<Value, Value>() {
            if self.members == MAX_MEMBERS {
                break;
            }
            self.members += 1;
            let (key, value) = pair?;
            self.count(&key, depth - 1)?;
            self.count(&value, depth - 1)?;
        }
        self.count(&metatable(table)?, depth - 1)
    }

    fn is_full(&self) -> bool {
        self.text.len() > MAX_MESSAGE
    }

    fn line(&mut self, level: usize) {
        self.text.push('\n');
        (0..level).for_each(|_| self.text.push_str("  "));
    }

    /// The number of a value among those of its kind.
    fn number(&mut self, kind: &'static str, pointer: *const c_void) -> usize {
        if let Some(number) = self.numbers.get(&pointer) {
            return *number;
        }
        let of_kind = self.numbered.entry(kind).or_default();
        *of_kind += 1;
        self.numbers.insert(pointer, *of_kind);
        *of_kind
    }

    /// Writes `<kind number>`.
    fn reference(&mut self, kind: &'static str, pointer: *const c_void) {
        let number = self.number(kind, pointer);
        // Writing to a string cannot fail.
        let _ = write!(self.text, "<{kind} {number}>");
    }

    fn value(&mut self, value: &Value, level: usize) -> mlua::Result<()> {
        match value {
            Value::String(text) => self.quoted(&text.as_bytes()),
            Value::Nil | Value::Boolean(_) => self.text.push_str(&value.to_string()?),
            Value::Integer(value) => self.text.push_str(&number::text(*value as f64)),
            Value::Number(value) => self.text.push_str(&number::text(*value)),
            Value::Table(table) => self.table(table, level)?,
            Value::Function(_) => self.reference("function", value.to_pointer()),
            Value::Thread(_) => self.reference("thread", value.to_pointer()),
            _ => self.reference("userdata", value.to_pointer()),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, level: usize) -> mlua::Result<()> {
        let pointer = table.to_pointer();
        if self.numbers.contains_key(&pointer) {
            self.reference("table", pointer);
            return Ok(());
        }
        if level == MAX_DEPTH {
            self.text.push_str("{...}");
            return Ok(());
        }
        if self.occurrences.get(&pointer).is_some_and(|times| *times > 1) {
            let number = self.number("table", pointer);
            let _ = write!(self.text, "<{number}>");
        }
        self.text.push('{');
        let length = self.sequence(table, level + 1)?;
        match self.others(table, length, level + 1)? {
            0 if length == 0 => {}
            0 => self.text.push(' '),
            _ => self.line(level),
        }
        self.text.push('}');
        Ok(())
    }

    /// Writes what is there from 1 on; returns how much that is.
    fn sequence(&mut self, table: &Table, level: usize) -> mlua::Result<usize> {
        let mut length = 0;
        while !self.is_full() {
            let item: Value = table.raw_get(length + 1)?;
            if item.is_nil() {
                break;
            }
            self.text.push_str(if length > 0 { ", " } else { " " });
            self.value(&item, level)?;
            length += 1;
        }
        Ok(length)
    }

    /// Writes the other members, each in a line of its own, and the metatable; returns how many lines there are.
    fn others(&mut self, table: &Table, length: usize, level: usize) -> mlua::Result<usize> {
        let mut lines = 0;
        for key in other_keys(table, length)? {
            if self.is_full() {
                break;
            }
            self.text.push_str(if length + lines > 0 { "," } else { "" });
            self.line(level);
            self.key(&key, level)?;
            self.text.push_str(" = ");
            self.value(&table.raw_get(key)?, level)?;
            lines += 1;
        }
        let meta = metatable(table)?;
        if meta.is_table() && !self.is_full() {
            self.text.push_str(if length + lines > 0 { "," } else { "" });
            self.line(level);
            self.text.push_str("<metatable> = ");
            self.value(&meta, level)?;
            lines += 1;
        }
        Ok(lines)
    }

    fn key(&mut self, key: &Value, level: usize) -> mlua::Result<()> {
        if let Value::String(name) = key
            && is_name(visible(&name.as_bytes()))
        {
            self.text.push_str(&String::from_utf8_lossy(visible(&name.as_bytes())));
            return Ok(());
        }
        self.text.push('[');
        self.value(key, level)?;
        self.text.push(']');
        Ok(())
    }

    fn quoted(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(visible(text));
        let quote = if text.contains('"') && !text.contains('\'') { '\'' } else { '"' };
        self.text.push(quote);
        for c in text.chars() {
            match c {
                '\x07' => self.text.push_str("\\a"),
                '\x08' => self.text.push_str("\\b"),
                '\x0c' => self.text.push_str("\\f"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\x0b' => self.text.push_str("\\v"),
                '\\' => self.text.push_str("\\\\"),
                '"' if quote == '"' => self.text.push_str("\\\""),
                c if c.is_ascii_control() => {
                    let _ = write!(self.text, "\\{}", u32::from(c));
                }
                c => self.text.push(c),
            }
        }
        self.text.push(quote);
    }
}

/// The metatable as `getmetatable` returns it.
fn metatable(table: &Table) -> mlua::Result<Value> {
    let Some(meta) = table.metatable() else { return Ok(Value::Nil) };
    let shown: Value = meta.raw_get("__metatable")?;
    Ok(if shown.is_nil() { Value::Table(meta) } else { shown })
}

/// The keys that are not of the sequence, in the order in which they are shown.
fn other_keys(table: &Table, length: usize) -> mlua::Result<Vec<Value>> {
    let is_of_sequence = |key: &Value| match key {
        Value::Integer(index) => usize::try_from(*index).is_ok_and(|index| (1..=length).contains(&index)),
        Value::Number(index) => index.fract() == 0.0 && *index >= 1.0 && *index <= length as f64,
        _ => false,
    };
    let mut keys = Vec::new();
    for pair in table.pairs::<Value, Value>().take(length + MAX_MEMBERS) {
        let (key, _) = pair?;
        if !is_of_sequence(&key) {
            keys.push(key);
        }
    }
    keys.sort_by(order);
    Ok(keys)
}

/// Numbers first, then booleans, texts and tables.
fn order(one: &Value, other: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Integer(_) | Value::Number(_) => 1,
        Value::Boolean(_) => 2,
        Value::String(_) => 3,
        Value::Table(_) => 4,
        Value::Function(_) => 5,
        Value::Thread(_) => 7,
        _ => 6,
    };
    let number = |value: &Value| match value {
        Value::Integer(number) => Some(*number as f64),
        value => value.as_number(),
    };
    match (one, other) {
        (Value::String(one), Value::String(other)) => (*one.as_bytes()).cmp(&*other.as_bytes()),
        _ => match (number(one), number(other)) {
            (Some(one), Some(other)) => one.total_cmp(&other),
            _ => rank(one).cmp(&rank(other)),
        },
    }
}

/// The words of Lua, which are no names.
const KEYWORDS: [&str; 22] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local",
    "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];

fn is_name(key: &[u8]) -> bool {
    let is_start = |byte: &u8| *byte == b'_' || byte.is_ascii_alphabetic();
    key.first().is_some_and(is_start)
        && key.iter().all(|byte| is_start(byte) || byte.is_ascii_digit())
        && !KEYWORDS.iter().any(|word| word.as_bytes() == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one value and its key take at most: four bytes for each that is logged.
    const MOST: usize = 10 * MAX_MESSAGE;

    #[test]
    fn no_more_is_made_than_is_logged_and_it_costs_steps() {
        let lua = Lua::new();
        for code in [
            // Of each byte four are written.
            "local s, t = ('\\127'):rep(5000), {} for i = 1, 7000 do t[i] = s end return unpack(t)",
            "local t = {} for i = 1, 7000 do t[i] = ('x'):rep(100) end return unpack(t)",
            "return { [('a'):rep(1e6)] = 1 }",
            "return { [('a'):rep(1e6) .. '-'] = 1 }",
        ] {
            let values: MultiValue = lua.load(code).call(()).unwrap();
            Steps::of(&lua).begin();
            let text = listed(&lua, &values).unwrap();
            assert!((MAX_MESSAGE..MOST).contains(&text.len()), "{code}: {}", text.len());
            assert!(Steps::of(&lua).announced() > text.len() / 2, "{code}");
        }
    }
}

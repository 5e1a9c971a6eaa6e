//! Lua values to JSON.
//!
//! Nested tables are kept on a stack of their own, so that no depth that a script sets exhausts the thread's.

use mlua::{Table, Value};

use super::Metatables;
use super::config::{Config, InvalidNumbers};
use crate::args;
use crate::modules::number;
use crate::raise::{Checked, Raised};
use crate::steps::Steps;

/// What it costs to look at a key of a table that may be an array.
const STEPS_PER_KEY: usize = 16;

/// Writes one document.
pub(super) struct Encoder<'a> {
    config: &'a Config,
    metatables: &'a Metatables,
    steps: &'a Steps,
    out: Vec<u8>,
    /// The tables that are being written, the innermost last.
    open: Vec<Open>,
}

/// A table that is being written.
enum Open {
    /// An array: the index of the value that was written last, and the length.
    Array { table: Table, index: usize, len: usize },
    /// An object: the key of the value that was written last.
    Object { table: Table, key: Value },
}

impl<'a> Encoder<'a> {
    pub(super) fn new(config: &'a Config, metatables: &'a Metatables, steps: &'a Steps) -> Self {
        Self { config, metatables, steps, out: Vec::new(), open: Vec::new() }
    }

    /// The text of a value.
    pub(super) fn document(mut self, value: &Value) -> Checked<Vec<u8>> {
        self.value(value)?;
        while let Some(innermost) = self.open.pop() {
            self.proceed(innermost)?;
        }
        Ok(self.out)
    }

    /// Writes a value, or the beginning of a table.
    fn value(&mut self, value: &Value) -> Checked<()> {
        // A table that occurs in many places is written as often, so that the output may grow without limit.
        self.steps.take_many(super::STEPS_PER_VALUE)?;
        match value {
            Value::String(text) => self.string(&text.as_bytes())?,
            Value::Integer(number) => self.number(*number as f64)?,
            Value::Number(number) => self.number(*number)?,
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::Table(table) => self.table(table)?,
            Value::LightUserData(pointer) if pointer.0.is_null() => self.out.extend_from_slice(b"null"),
            Value::LightUserData(pointer) if *pointer == super::EMPTY_ARRAY => {
                self.out.extend_from_slice(b"[]")
            }
            _ if self.config.skip_unsupported => {}
            other => return Err(refuse(other, "type not supported")),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table) -> Checked<()> {
        let depth = self.open.len() + 1;
        if depth > self.config.encode_max_depth {
            return Err(format!("Cannot serialise, excessive nesting ({depth})").into());
        }
        let table = table.clone();
        let open = match self.shape(&table)? {
            Some(len) => Open::Array { table, index: 0, len },
            None => Open::Object { table, key: Value::Nil },
        };
        self.out.push(if matches!(open, Open::Array { .. }) { b'[' } else { b'{' });
        self.open.push(open);
        Ok(())
    }

    /// The length of a table that is written as an array; none for an object.
    fn shape(&self, table: &Table) -> Checked<Option<usize>> {
        let metatable = table.metatable();
        if metatable.as_ref() == Some(&self.metatables.array) {
            return Ok(Some(table.raw_len()));
        }
        let marked = metatable.as_ref() == Some(&self.metatables.empty_array);
        Ok(self.array_len(table)?.filter(|len| *len > 0 || marked || !self.config.empty_table_as_object))
    }

    /// Writes the next value of a table, or its end.
    fn proceed(&mut self, open: Open) -> Checked<()> {
        match open {
            Open::Array { index, len, .. } if index == len => self.out.push(b']'),
            Open::Array { table, index, len } => {
                let value: Value = table.raw_get(index + 1)?;
                self.open.push(Open::Array { table, index: index + 1, len });
                if !self.skips(&value) {
                    self.separate(b'[');
                    self.value(&value)?;
                }
            }
            Open::Object { table, key } => {
                let (key, value): (Value, Value) = self.metatables.next.call((&table, key))?;
                if key.is_nil() {
                    self.out.push(b'}');
                    return Ok(());
                }
                self.open.push(Open::Object { table, key: key.clone() });
                if !self.skips(&value) {
                    self.separate(b'{');
                    self.key(&key)?;
                    self.value(&value)?;
                }
            }
        }
        Ok(())
    }

    /// A comma, unless the table begins here.
    fn separate(&mut self, begin: u8) {
        if self.out.last() != Some(&begin) {
            self.out.push(b',');
        }
    }

    /// The highest index of a table that has only whole numbers from 1 as keys; none for an object.
    fn array_len(&self, table: &Table) -> Checked<Option<usize>> {
        let (mut max, mut items) = (0_i64, 0_i64);
        // A table with keys of text ends here after one step.
        for pair in table.pairs::<Value, Value>() {
            self.steps.take_many(STEPS_PER_KEY)?;
            match pair?.0 {
                Value::Integer(key) if key >= 1 => (max, items) = (max.max(key), items + 1),
                _ => return Ok(None),
            }
        }
        let Config { sparse_ratio, sparse_safe, sparse_convert, .. } = *self.config;
        if sparse_ratio > 0 && max > items.saturating_mul(sparse_ratio) && max > sparse_safe {
            return match sparse_convert {
                true => Ok(None),
                false => Err(Raised::Text("Cannot serialise table: excessively sparse array".to_owned())),
            };
        }
        Ok(Some(usize::try_from(max).unwrap_or(usize::MAX)))
    }

    fn key(&mut self, key: &Value) -> Checked<()> {
        match key {
            Value::String(text) => self.string(&text.as_bytes())?,
            Value::Integer(_) | Value::Number(_) => {
                self.out.push(b'"');
                self.value(key)?;
                self.out.push(b'"');
            }
            other => return Err(refuse(other, "table key must be a number or string")),
        }
        self.out.push(b':');
        Ok(())
    }

    fn skips(&self, value: &Value) -> bool {
        use Value::{Error, Function, Other, Thread, UserData};
        self.config.skip_unsupported
            && matches!(value, Function(_) | Thread(_) | UserData(_) | Error(_) | Other(_))
    }

    fn number(&mut self, value: f64) -> Checked<()> {
        match self.config.encode_invalid_numbers {
            _ if value.is_finite() => number::format(&mut self.out, value, self.config.precision),
            InvalidNumbers::Refuse => {
                return Err(refuse(&Value::Number(value), "must not be NaN or Infinity"));
            }
            InvalidNumbers::Null => self.out.extend_from_slice(b"null"),
            InvalidNumbers::Write if value.is_nan() => self.out.extend_from_slice(b"NaN"),
            InvalidNumbers::Write if value < 0.0 => self.out.extend_from_slice(b"-Infinity"),
            InvalidNumbers::Write => self.out.extend_from_slice(b"Infinity"),
        }
        Ok(())
    }

    fn string(&mut self, text: &[u8]) -> Checked<()> {
        self.steps.take_bytes(text.len())?;
        let before = self.out.len();
        self.out.push(b'"');
        let mut plain = 0;
        for (at, byte) in text.iter().enumerate() {
            let escape = match byte {
                b'"' => "\\\"",
                b'\\' => "\\\\",
                b'/' if self.config.escape_slash => "\\/",
                0x08 => "\\b",
                b'\t' => "\\t",
                b'\n' => "\\n",
                0x0c => "\\f",
                b'\r' => "\\r",
                0..0x20 | 0x7f => "",
                _ => continue,
            };
            self.out.extend_from_slice(&text[plain..at]);
            plain = at + 1;
            if escape.is_empty() {
                self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
            } else {
                self.out.extend_from_slice(escape.as_bytes());
            }
        }
        self.out.extend_from_slice(&text[plain..]);
        self.out.push(b'"');
        // Escapes make it longer.
        self.steps.take_bytes(self.out.len() - before - text.len())?;
        Ok(())
    }
}

fn refuse(value: &Value, reason: &str) -> Raised {
    Raised::Text(format!("Cannot serialise {}: {reason}", args::type_name(value)))
}

//! Lua values to JSON.

use mlua::{Table, Value};

use super::Metatables;
use super::config::{Config, InvalidNumbers};
use crate::args;
use crate::modules::number;
use crate::raise::{Checked, Raised};
use crate::steps::Steps;

/// Writes one document.
pub(super) struct Encoder<'a> {
    pub(super) config: &'a Config,
    pub(super) metatables: &'a Metatables,
    pub(super) steps: &'a Steps,
    pub(super) out: Vec<u8>,
}

impl Encoder<'_> {
    /// Appends a value at this depth of tables.
    pub(super) fn value(&mut self, value: &Value, depth: usize) -> Checked<()> {
        // A table that occurs in many places is written as often, so that the output may grow without limit.
        self.steps.take()?;
        match value {
            Value::String(text) => self.string(&text.as_bytes())?,
            Value::Integer(number) => self.number(*number as f64)?,
            Value::Number(number) => self.number(*number)?,
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::Table(table) => self.table(table, depth + 1)?,
            Value::LightUserData(pointer) if pointer.0.is_null() => self.out.extend_from_slice(b"null"),
            Value::LightUserData(pointer) if *pointer == super::EMPTY_ARRAY => self.out.extend_from_slice(b"[]"),
            _ if self.config.skip_unsupported => {}
            other => return Err(refuse(other, "type not supported")),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> Checked<()> {
        if depth > self.config.encode_max_depth {
            return Err(Raised::Text(format!("Cannot serialise, excessive nesting ({depth})")));
        }
        let metatable = table.metatable();
        if metatable.as_ref() == Some(&self.metatables.array) {
            return self.array(table, table.raw_len(), depth);
        }
        match self.array_len(table)? {
            Some(0) if metatable.as_ref() == Some(&self.metatables.empty_array) => self.array(table, 0, depth),
            Some(0) if self.config.empty_table_as_object => self.object(table, depth),
            Some(len) => self.array(table, len, depth),
            None => self.object(table, depth),
        }
    }

    /// The highest index of a table that has only whole numbers from 1 as keys; none for an object.
    fn array_len(&self, table: &Table) -> Checked<Option<usize>> {
        // Most tables with keys of text end here, after one step.
        let (mut max, mut items) = (0_i64, 0_i64);
        for pair in table.pairs::<Value, Value>() {
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

    fn array(&mut self, table: &Table, len: usize, depth: usize) -> Checked<()> {
        self.out.push(b'[');
        let mut first = true;
        for index in 1..=len {
            let value: Value = table.raw_get(index)?;
            if self.skips(&value) {
                continue;
            }
            if !std::mem::take(&mut first) {
                self.out.push(b',');
            }
            self.value(&value, depth)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: usize) -> Checked<()> {
        self.out.push(b'{');
        let mut first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if self.skips(&value) {
                continue;
            }
            if !std::mem::take(&mut first) {
                self.out.push(b',');
            }
            self.key(&key)?;
            self.value(&value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn key(&mut self, key: &Value) -> Checked<()> {
        match key {
            Value::String(text) => self.string(&text.as_bytes())?,
            Value::Integer(_) | Value::Number(_) => {
                self.out.push(b'"');
                self.value(key, 0)?;
                self.out.push(b'"');
            }
            other => return Err(refuse(other, "table key must be a number or string")),
        }
        self.out.push(b':');
        Ok(())
    }

    fn skips(&self, value: &Value) -> bool {
        use Value::{Error, Function, Other, Thread, UserData};
        self.config.skip_unsupported && matches!(value, Function(_) | Thread(_) | UserData(_) | Error(_) | Other(_))
    }

    fn number(&mut self, value: f64) -> Checked<()> {
        match self.config.encode_invalid_numbers {
            _ if value.is_finite() => number::format(&mut self.out, value, self.config.precision),
            InvalidNumbers::Refuse => return Err(refuse(&Value::Number(value), "must not be NaN or Infinity")),
            InvalidNumbers::Null => self.out.extend_from_slice(b"null"),
            InvalidNumbers::Write if value.is_nan() => self.out.extend_from_slice(b"NaN"),
            InvalidNumbers::Write if value < 0.0 => self.out.extend_from_slice(b"-Infinity"),
            InvalidNumbers::Write => self.out.extend_from_slice(b"Infinity"),
        }
        Ok(())
    }

    fn string(&mut self, text: &[u8]) -> Checked<()> {
        self.steps.take_bytes(text.len())?;
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
        Ok(())
    }
}

fn refuse(value: &Value, reason: &str) -> Raised {
    Raised::Text(format!("Cannot serialise {}: {reason}", args::type_name(value)))
}

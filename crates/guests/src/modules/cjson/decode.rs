//! JSON to Lua values, with lua-cjson's errors: what was expected, what was found, at which character.
//!
//! Nested values are kept on a stack of their own, so that no depth that a script sets exhausts the thread's.

use mlua::{Lua, LuaString, Table, Value};

use super::Metatables;
use super::config::Config;
use super::token::{Token, Tokens};
use crate::raise::{Checked, Raised};
use crate::steps::Steps;

/// Reads one document.
pub(super) struct Decoder<'a> {
    lua: &'a Lua,
    config: &'a Config,
    metatables: &'a Metatables,
    tokens: Tokens<'a>,
    steps: &'a Steps,
    /// The tables that are being filled, the innermost last.
    open: Vec<Open>,
}

/// A table that is being filled, and the key of its next value.
enum Open {
    Array(Table, usize),
    Object(Table, LuaString),
}

impl<'a> Decoder<'a> {
    pub(super) fn new(
        lua: &'a Lua,
        (config, metatables, steps): (&'a Config, &'a Metatables, &'a Steps),
        text: &'a [u8],
    ) -> Self {
        let tokens = Tokens::new(text, config.decode_invalid_numbers);
        Self { lua, config, metatables, tokens, steps, open: Vec::new() }
    }

    /// The whole document.
    pub(super) fn document(mut self) -> Checked<Value> {
        self.steps.take_bytes(self.tokens.text().len())?;
        if let [first, second, ..] = self.tokens.text()
            && (*first == 0 || *second == 0)
        {
            return Err("JSON parser does not support UTF-16 or UTF-32".into());
        }
        let mut token = self.tokens.next();
        loop {
            self.steps.take_many(super::STEPS_PER_VALUE)?;
            let complete = match token {
                Token::ObjectBegin => self.object()?,
                Token::ArrayBegin => self.array()?,
                token => Some(self.scalar(token)?),
            };
            token = match complete {
                None => self.tokens.next(),
                Some(value) => match self.close(value)? {
                    Some(document) => return Ok(document),
                    None => self.tokens.next(),
                },
            };
        }
    }

    fn scalar(&self, token: Token) -> Checked<Value> {
        Ok(match token {
            Token::String(text) => Value::String(self.lua.create_string(text)?),
            Token::Number(number) => Value::Number(number),
            Token::Boolean(value) => Value::Boolean(value),
            Token::Null => Value::NULL,
            other => return Err(self.expected("value", &other)),
        })
    }

    /// Begins an object and reads its first key. One without a key is complete.
    fn object(&mut self) -> Checked<Option<Value>> {
        self.check_depth()?;
        let table = self.lua.create_table()?;
        match self.tokens.next() {
            Token::ObjectEnd => Ok(Some(Value::Table(table))),
            token => {
                let key = self.key(token)?;
                self.open.push(Open::Object(table, key));
                Ok(None)
            }
        }
    }

    /// Begins an array. One without a value is complete.
    fn array(&mut self) -> Checked<Option<Value>> {
        self.check_depth()?;
        let table = self.lua.create_table()?;
        if self.config.array_with_mt {
            table.set_metatable(Some(self.metatables.array.clone()))?;
        }
        if self.tokens.take_array_end() {
            return Ok(Some(Value::Table(table)));
        }
        self.open.push(Open::Array(table, 1));
        Ok(None)
    }

    /// Adds a complete value to the innermost table, and closes those that end after it. The document is complete if
    /// none is left.
    fn close(&mut self, mut value: Value) -> Checked<Option<Value>> {
        loop {
            let Some(innermost) = self.open.pop() else {
                return match self.tokens.next() {
                    Token::End => Ok(Some(value)),
                    other => Err(self.expected("the end", &other)),
                };
            };
            value = match innermost {
                Open::Array(table, index) => {
                    table.raw_set(index, value)?;
                    match self.tokens.next() {
                        Token::ArrayEnd => Value::Table(table),
                        Token::Comma => {
                            self.open.push(Open::Array(table, index + 1));
                            return Ok(None);
                        }
                        other => return Err(self.expected("comma or array end", &other)),
                    }
                }
                Open::Object(table, key) => {
                    table.raw_set(key, value)?;
                    match self.tokens.next() {
                        Token::ObjectEnd => Value::Table(table),
                        Token::Comma => {
                            let token = self.tokens.next();
                            let key = self.key(token)?;
                            self.open.push(Open::Object(table, key));
                            return Ok(None);
                        }
                        other => return Err(self.expected("comma or object end", &other)),
                    }
                }
            };
        }
    }

    /// A key and the colon after it.
    fn key(&mut self, token: Token) -> Checked<LuaString> {
        let Token::String(key) = token else {
            return Err(self.expected("object key string", &token));
        };
        match self.tokens.next() {
            Token::Colon => Ok(self.lua.create_string(key)?),
            other => Err(self.expected("colon", &other)),
        }
    }

    fn check_depth(&self) -> Checked<()> {
        let depth = self.open.len() + 1;
        if depth <= self.config.decode_max_depth {
            return Ok(());
        }
        let position = self.tokens.position();
        Err(format!("Found too many nested data structures ({depth}) at character {position}").into())
    }

    fn expected(&self, what: &str, found: &Token) -> Raised {
        Raised::Text(format!(
            "Expected {what} but found {} at character {}",
            found.name(),
            self.tokens.position()
        ))
    }
}

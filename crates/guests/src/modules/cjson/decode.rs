//! JSON to Lua values, with lua-cjson's errors: what was expected, what was found, at which character.

use mlua::{Lua, Table, Value};

use super::Metatables;
use super::config::Config;
use super::token::{Token, Tokens};
use crate::raise::{Checked, Raised};

/// Reads one document.
pub(super) struct Decoder<'a> {
    pub(super) lua: &'a Lua,
    pub(super) config: &'a Config,
    pub(super) metatables: &'a Metatables,
    pub(super) tokens: Tokens<'a>,
}

impl Decoder<'_> {
    /// The whole document.
    pub(super) fn document(&mut self) -> Checked<Value> {
        if let [first, second, ..] = self.tokens.text()
            && (*first == 0 || *second == 0)
        {
            return Err("JSON parser does not support UTF-16 or UTF-32".into());
        }
        let token = self.tokens.next();
        let value = self.value(token, 0)?;
        match self.tokens.next() {
            Token::End => Ok(value),
            other => Err(self.expected("the end", &other)),
        }
    }

    fn value(&mut self, token: Token, depth: usize) -> Checked<Value> {
        Ok(match token {
            Token::String(text) => Value::String(self.lua.create_string(text)?),
            Token::Number(number) => Value::Number(number),
            Token::Boolean(value) => Value::Boolean(value),
            Token::Null => Value::NULL,
            Token::ObjectBegin => Value::Table(self.object(self.deeper(depth)?)?),
            Token::ArrayBegin => Value::Table(self.array(self.deeper(depth)?)?),
            other => return Err(self.expected("value", &other)),
        })
    }

    fn deeper(&self, depth: usize) -> Checked<usize> {
        if depth < self.config.decode_max_depth {
            return Ok(depth + 1);
        }
        Err(Raised::Text(format!(
            "Found too many nested data structures ({}) at character {}",
            depth + 1,
            self.tokens.position()
        )))
    }

    fn object(&mut self, depth: usize) -> Checked<Table> {
        let table = self.lua.create_table()?;
        let mut token = self.tokens.next();
        if matches!(token, Token::ObjectEnd) {
            return Ok(table);
        }
        loop {
            let Token::String(key) = token else {
                return Err(self.expected("object key string", &token));
            };
            let key = self.lua.create_string(key)?;
            match self.tokens.next() {
                Token::Colon => {}
                other => return Err(self.expected("colon", &other)),
            }
            token = self.tokens.next();
            table.raw_set(key, self.value(token, depth)?)?;
            match self.tokens.next() {
                Token::ObjectEnd => return Ok(table),
                Token::Comma => token = self.tokens.next(),
                other => return Err(self.expected("comma or object end", &other)),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Checked<Table> {
        let table = self.lua.create_table()?;
        if self.config.array_with_mt {
            table.set_metatable(Some(self.metatables.array.clone()))?;
        }
        let mut token = self.tokens.next();
        if matches!(token, Token::ArrayEnd) {
            return Ok(table);
        }
        for index in 1_usize.. {
            table.raw_set(index, self.value(token, depth)?)?;
            match self.tokens.next() {
                Token::ArrayEnd => break,
                Token::Comma => token = self.tokens.next(),
                other => return Err(self.expected("comma or array end", &other)),
            }
        }
        Ok(table)
    }

    fn expected(&self, what: &str, found: &Token) -> Raised {
        Raised::Text(format!("Expected {what} but found {} at character {}", found.name(), self.tokens.position()))
    }
}

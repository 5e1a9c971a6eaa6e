//! JSON text → one tree with positions.
use super::tree::{close_map, syntax};
use crate::node::{Entry, Node, Origin, Position, Value};
use crate::schema::ConfigError;
use std::borrow::Cow;

const MAX_DEPTH: usize = 64;

/// Parses a text that is one JSON value.
pub(super) fn parse(text: &str) -> Result<Node<'_>, Vec<ConfigError>> {
    let mut parser = Parser { text, at: 0, seen: 0, position: START, depth: 0, problems: Vec::new() };
    let parsed = parser.value().and_then(|node| match parser.peek() {
        None => Ok(node),
        Some(_) => Err(parser.unexpected("the end of the file")),
    });
    match parsed {
        Ok(node) if parser.problems.is_empty() => Ok(node),
        Ok(_) => Err(parser.problems),
        Err(problem) => {
            parser.problems.push(problem);
            Err(parser.problems)
        }
    }
}

const START: Position = Position { line: 1, column: 1 };

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// The offset that `position` belongs to: positions are counted on from the last one asked for.
    seen: usize,
    position: Position,
    depth: usize,
    problems: Vec<ConfigError>,
}

impl<'a> Parser<'a> {
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r')).count();
        self.text.as_bytes().get(self.at).copied()
    }

    fn position(&mut self) -> Position {
        for letter in self.text.get(self.seen..self.at).unwrap_or_default().chars() {
            match letter {
                '\n' => self.position = Position { line: self.position.line + 1, column: 1 },
                _ => self.position.column += 1,
            }
        }
        self.seen = self.at;
        self.position
    }

    fn unexpected(&mut self, expected: &str) -> ConfigError {
        let got = match self.peek() {
            None => "the end of the file".to_owned(),
            Some(_) => format!("{:?}", self.text[self.at..].chars().next().unwrap_or(' ')),
        };
        let at = self.position();
        syntax(at, format!("not valid JSON: expected {expected}, got {got}"))
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self) -> Result<Node<'a>, ConfigError> {
        let next = self.peek();
        let at = self.position();
        let value = match next {
            Some(b'{') => self.nested(Self::object)?,
            Some(b'[') => self.nested(Self::array)?,
            Some(b'"') => Value::Str(self.string()?, Origin::Quoted),
            Some(b'-' | b'0'..=b'9' | b'a'..=b'z') => self.word()?,
            _ => return Err(self.unexpected("a value")),
        };
        Ok(Node::new(value, at))
    }

    fn nested(
        &mut self,
        read: fn(&mut Self) -> Result<Value<'a>, ConfigError>,
    ) -> Result<Value<'a>, ConfigError> {
        if self.depth >= MAX_DEPTH {
            let at = self.position();
            return Err(syntax(at, format!("nested more than {MAX_DEPTH} levels deep")));
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Value<'a>, ConfigError> {
        let mut entries = Vec::new();
        if self.take(b'}') {
            return Ok(Value::Map(entries));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key in quotes"));
            }
            let at = self.position();
            let key = self.string()?;
            if !self.take(b':') {
                return Err(self.unexpected("`:`"));
            }
            entries.push(Entry { key, at, node: self.value()? });
            if self.take(b'}') {
                return Ok(Value::Map(close_map(entries, &mut self.problems)));
            }
            if !self.take(b',') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
    }

    fn array(&mut self) -> Result<Value<'a>, ConfigError> {
        let mut elements = Vec::new();
        if self.take(b']') {
            return Ok(Value::List(elements));
        }
        loop {
            elements.push(self.value()?);
            if self.take(b']') {
                return Ok(Value::List(elements));
            }
            if !self.take(b',') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, ConfigError> {
        let bytes = self.text.as_bytes();
        let mut end = self.at + 1;
        while let Some(byte) = bytes.get(end).filter(|byte| **byte != b'"') {
            end += if *byte == b'\\' { 2 } else { 1 };
        }
        let quoted = self.text.get(self.at..=end).filter(|_| end < bytes.len());
        let plain = quoted.filter(|text| !text.bytes().any(|b| b == b'\\' || b < 0x20));
        let text = match plain {
            Some(text) => Some(Cow::Borrowed(&text[1..text.len() - 1])),
            None => quoted.and_then(|text| serde_json::from_str(text).ok()).map(Cow::Owned),
        };
        let Some(text) = text else {
            let at = self.position();
            return Err(syntax(at, "not valid JSON: this string does not end, or holds an invalid escape"));
        };
        self.at = end + 1;
        Ok(text)
    }

    /// A number, true, false or null.
    fn word(&mut self) -> Result<Value<'a>, ConfigError> {
        let rest = &self.text[self.at..];
        let part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
        let word = &rest[..rest.bytes().take_while(|b| part(b)).count()];
        let value = match serde_json::from_str(word) {
            Ok(serde_json::Value::Null) => Value::Null,
            Ok(serde_json::Value::Bool(value)) => Value::Bool(value),
            Ok(serde_json::Value::Number(number)) => match number.as_i64() {
                Some(value) => Value::Int(value),
                None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            _ => return Err(self.unexpected("a value")),
        };
        self.at += word.len();
        Ok(value)
    }
}

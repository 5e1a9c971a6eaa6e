//! Parses expressions in `$(…)` that need no Lua: those that most templates have.

use super::expression::{Attribute, Constant, Expression, Field, HeaderName, Method};

/// The most terms of one expression.
const MAX_TERMS: usize = 256;

/// Why an expression is not evaluated here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reason {
    /// It is for Lua, which may refuse it.
    ForLua,
    /// It is a mistake in any case.
    Mistake(String),
}

/// What may stand behind a minus, where it is no part of a name.
const NAMES: [&str; 8] =
    ["headers", "query_params", "uri_captures", "consumer", "shared", "tonumber", "tostring", "not"];

/// A parser of one expression.
pub(super) struct Parser<'t> {
    rest: &'t str,
    terms: usize,
}

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { rest: text, terms: 0 }
    }

    /// The expression up to the parenthesis that ends it, and what follows.
    pub(super) fn parenthesised(mut self) -> Result<(Expression, &'t str), Reason> {
        let expression = self.any()?;
        self.expect(")")?;
        Ok((expression, self.rest))
    }

    fn any(&mut self) -> Result<Expression, Reason> {
        let mut left = self.all()?;
        while self.takes_word("or") {
            left = Expression::Or(left.into(), self.all()?.into());
        }
        Ok(left)
    }

    fn all(&mut self) -> Result<Expression, Reason> {
        let mut left = self.comparison()?;
        while self.takes_word("and") {
            left = Expression::And(left.into(), self.comparison()?.into());
        }
        Ok(left)
    }

    fn comparison(&mut self) -> Result<Expression, Reason> {
        let mut left = self.joined()?;
        loop {
            let equal = self.takes("==");
            if !equal && !self.takes("~=") {
                return Ok(left);
            }
            left = Expression::Compare(left.into(), self.joined()?.into(), equal);
        }
    }

    fn joined(&mut self) -> Result<Expression, Reason> {
        let mut left = self.unary()?;
        while self.takes("..") {
            left = Expression::Join(left.into(), self.unary()?.into());
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression, Reason> {
        self.count()?;
        if self.takes_word("not") {
            return Ok(Expression::Not(self.unary()?.into()));
        }
        let mut value = self.primary()?;
        while self.takes(":") {
            value = Expression::Call(value.into(), self.method()?);
            self.count()?;
        }
        Ok(value)
    }

    /// Counts a term. Evaluation recurses as deep as the expression, so the number is bounded.
    fn count(&mut self) -> Result<(), Reason> {
        self.terms += 1;
        if self.terms > MAX_TERMS { Err(Reason::ForLua) } else { Ok(()) }
    }

    fn primary(&mut self) -> Result<Expression, Reason> {
        if self.takes("(") {
            let inner = self.any()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if let Some(text) = self.text()? {
            return Ok(Expression::Constant(Constant::Text(text.into_bytes().into())));
        }
        let constant = |constant| Ok(Expression::Constant(constant));
        match self.word() {
            Some("nil") => constant(Constant::Nil),
            Some("true") => constant(Constant::Boolean(true)),
            Some("false") => constant(Constant::Boolean(false)),
            Some("headers") => Ok(Expression::Field(Field::Header(HeaderName::new(&self.key()?)))),
            Some("query_params") => Ok(Expression::Field(Field::Argument(self.key()?.into()))),
            Some("uri_captures") => self.capture().map(Expression::Field),
            Some("consumer") => self.attribute().map(Expression::Field),
            _ => Err(Reason::ForLua),
        }
    }

    fn capture(&mut self) -> Result<Field, Reason> {
        let before = self.rest;
        if self.takes("[")
            && let Some(group) = self.number()
        {
            self.expect("]")?;
            return Ok(Field::Capture(usize::try_from(group).unwrap_or(usize::MAX)));
        }
        self.rest = before;
        Ok(Field::NamedCapture(self.key()?.into()))
    }

    fn attribute(&mut self) -> Result<Field, Reason> {
        Ok(Field::Consumer(match self.key()?.as_str() {
            "id" => Attribute::Id,
            "custom_id" => Attribute::CustomId,
            "username" => Attribute::Username,
            _ => return Err(Reason::ForLua),
        }))
    }

    /// `.name` or `["name"]`.
    fn key(&mut self) -> Result<String, Reason> {
        if self.takes("[") {
            let key = self.text()?.ok_or(Reason::ForLua)?;
            self.expect("]")?;
            return Ok(key);
        }
        let named = self.takes(".");
        let key = self.word().filter(|_| named).ok_or(Reason::ForLua)?;
        if let Some(rest) = self.rest.strip_prefix('-')
            && let Some(word) = Self::new(rest).word().filter(|word| rest.starts_with(word))
            && !NAMES.contains(&word)
        {
            let message =
                format!("`{key}-{word}` is a subtraction: write names with hyphens as [\"{key}-{word}\"]");
            return Err(Reason::Mistake(message));
        }
        Ok(key.to_owned())
    }

    fn method(&mut self) -> Result<Method, Reason> {
        let name = self.word().ok_or(Reason::ForLua)?;
        self.expect("(")?;
        let method = match name {
            "lower" => Method::Lower,
            "upper" => Method::Upper,
            "sub" => {
                let from = self.number().ok_or(Reason::ForLua)?;
                let to = if self.takes(",") { self.number().ok_or(Reason::ForLua)? } else { -1 };
                Method::Sub(from, to)
            }
            _ => return Err(Reason::ForLua),
        };
        self.expect(")")?;
        Ok(method)
    }

    fn number(&mut self) -> Option<i64> {
        let text = self.rest.trim_start();
        let digits = text.strip_prefix('-').unwrap_or(text);
        let length = digits.bytes().take_while(u8::is_ascii_digit).count();
        let end = text.len() - digits.len() + length;
        let number = text[..end].parse().ok()?;
        self.rest = &text[end..];
        Some(number)
    }

    /// A text between quotes.
    fn text(&mut self) -> Result<Option<String>, Reason> {
        let start = self.rest.trim_start();
        let Some(quote) = start.chars().next().filter(|first| matches!(first, '\'' | '"')) else {
            return Ok(None);
        };
        let (mut text, mut characters) = (String::new(), start[1..].char_indices());
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => text.push(match characters.next() {
                    Some((_, escaped @ ('\\' | '\'' | '"'))) => escaped,
                    Some((_, 't')) => '\t',
                    Some((_, 'n')) => '\n',
                    _ => return Err(Reason::ForLua),
                }),
                end if end == quote => {
                    self.rest = &start[at + 2..];
                    return Ok(Some(text));
                }
                other => text.push(other),
            }
        }
        Err(Reason::ForLua)
    }

    fn word(&mut self) -> Option<&'t str> {
        let text = self.rest.trim_start();
        let length = text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        if length == 0 || text.as_bytes()[0].is_ascii_digit() {
            return None;
        }
        self.rest = &text[length..];
        Some(&text[..length])
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let before = self.rest;
        let taken = self.word() == Some(word);
        if !taken {
            self.rest = before;
        }
        taken
    }

    fn takes(&mut self, sign: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, sign: &str) -> Result<(), Reason> {
        if self.takes(sign) { Ok(()) } else { Err(Reason::ForLua) }
    }
}

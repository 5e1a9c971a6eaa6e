//! Expressions in `$(…)`: the subset of Lua that only reads the request.

use std::borrow::Cow;
use weir_plugin::form;
use weir_plugin::{Exchange, Headers, Known};

/// An expression, ready to be evaluated.
#[derive(Debug, PartialEq)]
pub(super) enum Expression {
    Constant(Constant),
    Field(Field),
    Not(Box<Expression>),
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
    /// Whether two are equal, or with `false` whether they are not.
    Compare(Box<Expression>, Box<Expression>, bool),
    Join(Box<Expression>, Box<Expression>),
    Call(Box<Expression>, Method),
}

#[derive(Debug, PartialEq)]
pub(super) enum Constant {
    Nil,
    Boolean(bool),
    Text(Box<[u8]>),
}

/// A property of the request.
#[derive(Debug, PartialEq)]
pub(super) enum Field {
    Header(HeaderName),
    Argument(Box<str>),
    NamedCapture(Box<str>),
    Capture(usize),
    Consumer(Attribute),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Attribute {
    Id,
    CustomId,
    Username,
}

/// A string method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Method {
    Lower,
    Upper,
    Sub(i64, i64),
}

/// The name of a header, as templates write it: underscores may stand for hyphens.
#[derive(Debug, PartialEq)]
pub(super) struct HeaderName {
    known: Known,
    name: Box<str>,
    hyphened: Option<Box<str>>,
}

impl HeaderName {
    pub(super) fn new(written: &str) -> Self {
        let name = written.to_ascii_lowercase();
        let hyphened = name.replace('_', "-");
        if Known::of(hyphened.as_bytes()) != Known::Other {
            return Self { known: Known::of(hyphened.as_bytes()), name: name.into(), hyphened: None };
        }
        let hyphened = (hyphened != name).then(|| hyphened.into());
        Self { known: Known::Other, name: name.into(), hyphened }
    }

    fn value<'h>(&self, headers: &'h Headers) -> Option<&'h [u8]> {
        match self.known {
            Known::Other => headers.get(&self.name).or_else(|| headers.get(self.hyphened.as_deref()?)),
            known => headers.get_known(known),
        }
    }
}

/// The value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'a> {
    Nil,
    Boolean(bool),
    Text(Cow<'a, [u8]>),
}

impl<'a> Value<'a> {
    fn of_text(text: Option<&'a [u8]>) -> Self {
        text.map_or(Value::Nil, |text| Value::Text(text.into()))
    }

    fn is_true(&self) -> bool {
        !matches!(self, Value::Nil | Value::Boolean(false))
    }

    /// The rendered text: empty for nil and false.
    pub(super) fn text(&self) -> &[u8] {
        match self {
            Value::Nil | Value::Boolean(false) => b"",
            Value::Boolean(true) => b"true",
            Value::Text(text) => text,
        }
    }
}

impl Expression {
    /// Evaluates it for a request. Where Lua would raise an error, the result is nil.
    pub(super) fn evaluate<'a>(&'a self, exchange: &'a Exchange) -> Value<'a> {
        match self {
            Expression::Constant(constant) => constant.value(),
            Expression::Field(field) => field.value(exchange),
            Expression::Not(inner) => Value::Boolean(!inner.evaluate(exchange).is_true()),
            Expression::And(left, right) => match left.evaluate(exchange) {
                left if left.is_true() => right.evaluate(exchange),
                left => left,
            },
            Expression::Or(left, right) => match left.evaluate(exchange) {
                left if left.is_true() => left,
                _ => right.evaluate(exchange),
            },
            Expression::Compare(left, right, equal) => {
                Value::Boolean((left.evaluate(exchange) == right.evaluate(exchange)) == *equal)
            }
            Expression::Join(left, right) => {
                let (left, right) = (left.evaluate(exchange), right.evaluate(exchange));
                Value::Text([left.text(), right.text()].concat().into())
            }
            Expression::Call(text, method) => method.call(text.evaluate(exchange)),
        }
    }
}

impl Constant {
    fn value(&self) -> Value<'_> {
        match self {
            Constant::Nil => Value::Nil,
            Constant::Boolean(boolean) => Value::Boolean(*boolean),
            Constant::Text(text) => Value::Text((&**text).into()),
        }
    }
}

impl Field {
    fn value<'a>(&self, exchange: &'a Exchange) -> Value<'a> {
        let of_text = |text: Option<&'a str>| Value::of_text(text.map(str::as_bytes));
        match self {
            Field::Header(name) => Value::of_text(name.value(&exchange.request.headers)),
            Field::Argument(name) => argument(exchange.query().unwrap_or_default(), name),
            Field::NamedCapture(name) => {
                of_text(exchange.uri_captures().and_then(|captures| captures.name(name)))
            }
            Field::Capture(group) => {
                of_text(exchange.uri_captures().and_then(|captures| captures.get(*group)))
            }
            Field::Consumer(attribute) => of_text(exchange.consumer().and_then(|consumer| match attribute {
                Attribute::Id => Some(&*consumer.id_text),
                Attribute::CustomId => consumer.entity.custom_id.as_deref(),
                Attribute::Username => consumer.entity.username.as_deref(),
            })),
        }
    }
}

/// The first argument of a name; true if it has no value.
fn argument<'q>(query: &'q str, name: &str) -> Value<'q> {
    match form::pairs(query).find(|pair| *pair.name == *name.as_bytes()) {
        None => Value::Nil,
        Some(pair) => pair.value.map_or(Value::Boolean(true), Value::Text),
    }
}

impl Method {
    fn call(self, value: Value<'_>) -> Value<'_> {
        let Value::Text(text) = value else { return Value::Nil };
        Value::Text(match self {
            Method::Lower => text.to_ascii_lowercase().into(),
            Method::Upper => text.to_ascii_uppercase().into(),
            Method::Sub(from, to) => {
                let range = range(text.len(), from, to);
                match text {
                    Cow::Borrowed(text) => text[range].into(),
                    Cow::Owned(text) => text[range].to_vec().into(),
                }
            }
        })
    }
}

/// The range of `string.sub`: positions count from 1, or from the end if they are negative.
fn range(length: usize, from: i64, to: i64) -> std::ops::Range<usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let absolute = |position: i64| if position < 0 { length + position + 1 } else { position };
    let start = absolute(from).max(1) - 1;
    let end = absolute(to).min(length);
    if start < end { start as usize..end as usize } else { 0..0 }
}

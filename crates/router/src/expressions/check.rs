//! What a predicate compares the values of its field with, once the types agree.
use super::ast::{Literal, Network, Operator};
use super::field::FieldType;
use crate::pattern::{Literals, Pattern};
use memchr::memmem;
use std::net::IpAddr;

pub(super) const TYPE_MISMATCH: &str = "Type mismatch between the LHS and RHS values of predicate";
const LOWER: &str = "lower-case transformation function only supported with String type fields";
const REGEX_VALUE: &str = "regex operator can only be used with String operands";
const REGEX_FIELD: &str = "Regex operators only supports string operands";
const AFFIX: &str = "Regex/Prefix/Postfix operators only supports string operands";
const ORDER: &str = "Greater/GreaterOrEqual/Lesser/LesserOrEqual operators only supports integer operands";
const IN: &str = "In/NotIn operators only supports IP in CIDR";
const CONTAINS: &str = "Contains operator only supports string operands";

/// How the values of a field are checked.
#[derive(Debug)]
pub(super) enum Check {
    Text(TextCheck),
    Integer(IntegerCheck, i64),
    /// Whether the address is in the network; whether it shall be.
    Address(Box<Network>, bool),
}

/// How a text is checked.
#[derive(Debug)]
pub(super) enum TextCheck {
    Equals(Box<str>),
    NotEquals(Box<str>),
    Prefix(Box<str>),
    Suffix(Box<str>),
    Contains(Box<str>),
    Regex(Box<Regex>),
}

/// A regex.
#[derive(Debug)]
pub(super) struct Regex {
    pub(super) pattern: Pattern,
    /// What texts that match begin with.
    pub(super) literals: Literals,
}

/// How a number is compared: a bit for each order that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IntegerCheck(u8);

impl IntegerCheck {
    pub(super) const LESS: IntegerCheck = IntegerCheck(0b001);
    pub(super) const EQUALS: IntegerCheck = IntegerCheck(0b010);
    pub(super) const GREATER: IntegerCheck = IntegerCheck(0b100);

    /// The check that holds where this one does not.
    pub(super) const fn opposite(self) -> IntegerCheck {
        IntegerCheck(self.0 ^ 0b111)
    }

    #[inline]
    pub(super) fn holds(self, value: i64, than: i64) -> bool {
        // `Less` is -1, `Equal` 0, `Greater` 1.
        self.0 >> (value.cmp(&than) as i8 + 1) & 1 == 1
    }
}

impl Check {
    /// The check of an operator and a value for a field of this type; `compile` compiles a regex. The error is in the
    /// words of Kong's router.
    pub(super) fn new(
        field: FieldType,
        lower: bool,
        operator: Operator,
        value: &Literal<'_>,
        compile: impl FnOnce(&str) -> Result<(Pattern, Literals), String>,
    ) -> Result<Check, String> {
        let takes_any_type = matches!(operator, Operator::Regex | Operator::In | Operator::NotIn);
        if operator == Operator::Regex && !matches!(value, Literal::Text(_)) {
            return Err(REGEX_VALUE.to_owned());
        }
        if !takes_any_type && Some(field) != type_of(value) {
            return Err(TYPE_MISMATCH.to_owned());
        }
        if lower && field != FieldType::Text {
            return Err(LOWER.to_owned());
        }
        match value {
            Literal::Text(_) if operator == Operator::Regex && field != FieldType::Text => {
                Err(REGEX_FIELD.to_owned())
            }
            Literal::Text(text) => text_check(operator, text, compile).map(Check::Text),
            Literal::Integer(number) => Ok(Check::Integer(integer_check(operator)?, *number)),
            Literal::Address(address) => address_check(operator, *address),
            Literal::Network(network) => match (field, operator) {
                (FieldType::Address, Operator::In) => Ok(Check::Address((*network).into(), true)),
                (FieldType::Address, Operator::NotIn) => Ok(Check::Address((*network).into(), false)),
                _ => Err(IN.to_owned()),
            },
        }
    }
}

/// The type of fields that a value is compared with; none of a network's.
fn type_of(value: &Literal<'_>) -> Option<FieldType> {
    match value {
        Literal::Text(_) => Some(FieldType::Text),
        Literal::Integer(_) => Some(FieldType::Integer),
        Literal::Address(_) => Some(FieldType::Address),
        Literal::Network(_) => None,
    }
}

fn text_check(
    operator: Operator,
    text: &str,
    compile: impl FnOnce(&str) -> Result<(Pattern, Literals), String>,
) -> Result<TextCheck, String> {
    Ok(match operator {
        Operator::Equals => TextCheck::Equals(text.into()),
        Operator::NotEquals => TextCheck::NotEquals(text.into()),
        Operator::Prefix => TextCheck::Prefix(text.into()),
        Operator::Suffix => TextCheck::Suffix(text.into()),
        Operator::Contains => TextCheck::Contains(text.into()),
        Operator::Regex => {
            let (pattern, literals) = compile(text)?;
            TextCheck::Regex(Box::new(Regex { pattern, literals }))
        }
        Operator::In | Operator::NotIn => return Err(IN.to_owned()),
        Operator::Greater | Operator::GreaterOrEqual | Operator::Less | Operator::LessOrEqual => {
            return Err(ORDER.to_owned());
        }
    })
}

fn integer_check(operator: Operator) -> Result<IntegerCheck, String> {
    Ok(match operator {
        Operator::Equals => IntegerCheck::EQUALS,
        Operator::NotEquals => IntegerCheck::EQUALS.opposite(),
        Operator::Greater => IntegerCheck::GREATER,
        Operator::GreaterOrEqual => IntegerCheck::LESS.opposite(),
        Operator::Less => IntegerCheck::LESS,
        Operator::LessOrEqual => IntegerCheck::GREATER.opposite(),
        other => return Err(unfit(other).to_owned()),
    })
}

fn address_check(operator: Operator, address: IpAddr) -> Result<Check, String> {
    let network = Network::host(address);
    match operator {
        Operator::Equals => Ok(Check::Address(network.into(), true)),
        Operator::NotEquals => Ok(Check::Address(network.into(), false)),
        other => Err(unfit(other).to_owned()),
    }
}

/// Why an operator does not fit a value that is no text.
fn unfit(operator: Operator) -> &'static str {
    match operator {
        Operator::Prefix | Operator::Suffix => AFFIX,
        Operator::Contains => CONTAINS,
        Operator::In | Operator::NotIn => IN,
        _ => ORDER,
    }
}

/// Apart, because searching takes much room on the stack.
#[inline(never)]
fn contains(text: &str, part: &str) -> bool {
    memmem::find(text.as_bytes(), part.as_bytes()).is_some()
}

impl TextCheck {
    /// Whether a text meets the check, and the length of what matched.
    #[inline]
    pub(super) fn matches(&self, text: &str) -> Option<usize> {
        match self {
            TextCheck::Equals(own) => (text == &**own).then_some(own.len()),
            TextCheck::NotEquals(own) => (text != &**own).then_some(0),
            TextCheck::Prefix(own) => text.starts_with(&**own).then_some(own.len()),
            TextCheck::Suffix(own) => text.ends_with(&**own).then_some(own.len()),
            TextCheck::Contains(own) => contains(text, own).then_some(0),
            TextCheck::Regex(regex) => regex.pattern.find(text),
        }
    }

    /// Whether it is about the text as a whole or its beginning, so that what matched counts as the matched path.
    pub(super) fn sets_matched_path(&self) -> bool {
        !matches!(self, TextCheck::NotEquals(_) | TextCheck::Contains(_))
    }
}

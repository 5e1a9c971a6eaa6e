//! Arguments as a message.

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};
use serde_json::{Map, Value as Json};
use std::collections::HashMap;
use std::fmt;

/// A field that cannot have its value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ArgumentError {
    /// Leads through messages: `author.age`.
    field: String,
    expected: String,
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the field {}: expected {}", self.field, self.expected)
    }
}

impl ArgumentError {
    fn expected(what: impl Into<String>) -> Self {
        Self { field: String::new(), expected: what.into() }
    }

    fn within(mut self, name: &str) -> Self {
        self.field = if self.field.is_empty() { name.to_owned() } else { format!("{name}.{}", self.field) };
        self
    }
}

/// The message with these members. Those that it does not have are left out.
pub(super) fn message(
    descriptor: &MessageDescriptor,
    members: &Map<String, Json>,
) -> Result<DynamicMessage, ArgumentError> {
    let mut message = DynamicMessage::new(descriptor.clone());
    for field in descriptor.fields() {
        let member = members.get(field.name()).or_else(|| members.get(field.json_name()));
        let Some(member) = member.filter(|member| !member.is_null()) else { continue };
        let value = of_field(&field, member).map_err(|error| error.within(field.name()))?;
        let fits = message.try_set_field(&field, value);
        fits.map_err(|_| ArgumentError::expected("a value of its type").within(field.name()))?;
    }
    Ok(message)
}

fn of_field(field: &FieldDescriptor, json: &Json) -> Result<Value, ArgumentError> {
    match (field.kind(), json) {
        (Kind::Message(entry), json) if field.is_map() => of_map(&entry, json),
        (kind, Json::Array(items)) if field.is_list() => {
            items.iter().map(|item| of_kind(&kind, item)).collect::<Result<_, _>>().map(Value::List)
        }
        (kind, item) if field.is_list() => Ok(Value::List(vec![of_kind(&kind, item)?])),
        (kind, json) => of_kind(&kind, json),
    }
}

fn of_map(entry: &MessageDescriptor, json: &Json) -> Result<Value, ArgumentError> {
    let members = json.as_object().ok_or_else(|| ArgumentError::expected("an object"))?;
    let (key_kind, kind) = (entry.map_entry_key_field().kind(), entry.map_entry_value_field().kind());
    let pair = |(name, value): (&String, &Json)| {
        let key = key(&key_kind, name).ok_or_else(|| ArgumentError::expected("keys of its type"))?;
        Ok((key, of_kind(&kind, value).map_err(|error| error.within(name))?))
    };
    members.iter().map(pair).collect::<Result<HashMap<_, _>, _>>().map(Value::Map)
}

fn key(kind: &Kind, text: &str) -> Option<MapKey> {
    of_kind(kind, &Json::from(text)).ok()?.into_map_key()
}

fn of_kind(kind: &Kind, json: &Json) -> Result<Value, ArgumentError> {
    let (value, expected) = match kind {
        Kind::Message(inner) => {
            let inner = json.as_object().map(|members| message(inner, members)).transpose()?;
            (inner.map(Value::Message), "an object")
        }
        Kind::Enum(names) => {
            let named = json.as_str().and_then(|name| names.get_value_by_name(name));
            let number = named.map(|value| value.number()).or_else(|| whole(json));
            (number.map(Value::EnumNumber), "a name or a number of the enum")
        }
        Kind::String => (text(json).map(Value::String), "a text"),
        Kind::Bytes => (text(json).map(|text| Value::Bytes(text.into())), "a text"),
        Kind::Bool => (boolean(json).map(Value::Bool), "true or false"),
        Kind::Double => (number(json).map(Value::F64), "a number"),
        Kind::Float => (number(json).map(|number| Value::F32(number as f32)), "a number"),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
            (whole(json).map(Value::I32), "a whole number of 32 bits")
        }
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
            (whole(json).map(Value::I64), "a whole number of 64 bits")
        }
        Kind::Uint32 | Kind::Fixed32 => (whole(json).map(Value::U32), "a whole number of 32 bits from 0 on"),
        Kind::Uint64 | Kind::Fixed64 => (whole(json).map(Value::U64), "a whole number of 64 bits from 0 on"),
    };
    value.ok_or_else(|| ArgumentError::expected(expected))
}

fn boolean(json: &Json) -> Option<bool> {
    match json {
        Json::Bool(value) => Some(*value),
        Json::String(text) => Some(!matches!(text.as_str(), "false" | "0")),
        Json::Number(number) => Some(number.as_f64() != Some(0.0)),
        _ => None,
    }
}

fn text(json: &Json) -> Option<String> {
    match json {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn number(json: &Json) -> Option<f64> {
    json.as_f64().or_else(|| json.as_str()?.parse().ok())
}

/// A whole number, which may be a text: `7`, `-7`, `0x1F` or, as responses have them, `#7`.
fn whole<T: TryFrom<i128>>(json: &Json) -> Option<T> {
    let number = match json {
        Json::Number(number) => {
            let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
            let rounded = || number.as_f64().filter(|float| float.fract() == 0.0).map(|float| float as i128);
            whole.or_else(rounded)?
        }
        Json::String(text) => {
            let text = text.strip_prefix('#').unwrap_or(text);
            let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
            let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
            let (digits, radix) = hexadecimal.map_or((digits, 10), |digits| (digits, 16));
            // Without a sign of their own.
            let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            sign * i128::from(u64::from_str_radix(digits, radix).ok().filter(|_| is_plain)?)
        }
        _ => return None,
    };
    T::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::grpc::proto;
    use prost_reflect::prost::Message;
    use serde_json::json;

    const ALL: &str = "syntax = \"proto3\"; package t; enum Kind { PLAIN = 0; BOLD = 1; } message Inner { int32 age = 1; }\n\
        message All { int32 a = 1; uint64 b = 2; sint64 c = 3; double d = 4; float e = 5; bool f = 6; string g = 7;\n\
        bytes h = 8; Kind kind = 9; Inner inner = 10; repeated int32 many = 11; map<string, Inner> by_name = 12;\n\
        map<int32, string> by_number = 13; repeated Inner inners = 14; fixed32 i = 15; }";

    fn all(members: &Json) -> Result<DynamicMessage, String> {
        let descriptor = proto::compile(ALL).unwrap().get_message_by_name("t.All").unwrap();
        message(&descriptor, members.as_object().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn fields_have_the_values_of_their_arguments() {
        for (given, same) in [
            (json!({ "a": "7" }), json!({ "a": 7 })),
            (json!({ "a": "-0x1F" }), json!({ "a": -31 })),
            (json!({ "b": "#0xFFFFFFFFFFFFFFFF" }), json!({ "b": u64::MAX })),
            (json!({ "c": "#-5000000000" }), json!({ "c": -5_000_000_000_i64 })),
            (json!({ "c": 3.0 }), json!({ "c": 3 })),
            (json!({ "d": "1.5", "e": "2" }), json!({ "d": 1.5, "e": 2 })),
            (json!({ "f": "false", "g": 1 }), json!({ "f": false, "g": "1" })),
            (json!({ "f": "yes" }), json!({ "f": true })),
            (json!({ "kind": "BOLD" }), json!({ "kind": 1 })),
            (json!({ "kind": "1" }), json!({ "kind": 1 })),
            (json!({ "many": "1" }), json!({ "many": [1] })),
            (json!({ "by_name": { "x": { "age": "1" } } }), json!({ "byName": { "x": { "age": 1 } } })),
            (json!({ "by_number": { "1": "x" } }), json!({ "byNumber": { "1": "x" } })),
            (json!({ "a": null, "none": 1, "inner": { "none": 1 } }), json!({ "inner": {} })),
        ] {
            let (given, same) = (all(&given).unwrap(), all(&same).unwrap());
            assert_eq!(given.encode_to_vec(), same.encode_to_vec());
        }
        assert_eq!(all(&json!({ "h": "é" })).unwrap().encode_to_vec(), [66, 2, 0xC3, 0xA9]);
    }

    #[test]
    fn what_a_field_cannot_be_is_an_error_that_names_it() {
        for (given, why) in [
            (json!({ "a": "" }), "the field a: expected a whole number of 32 bits"),
            (json!({ "a": "+1" }), "the field a: expected a whole number of 32 bits"),
            (json!({ "a": 2_147_483_648_i64 }), "the field a: expected a whole number of 32 bits"),
            (json!({ "a": 1.5 }), "the field a: expected a whole number of 32 bits"),
            (json!({ "b": -1 }), "the field b: expected a whole number of 64 bits from 0 on"),
            (json!({ "c": "#" }), "the field c: expected a whole number of 64 bits"),
            (json!({ "d": "x" }), "the field d: expected a number"),
            (json!({ "f": [] }), "the field f: expected true or false"),
            (json!({ "g": {} }), "the field g: expected a text"),
            (json!({ "kind": "ITALIC" }), "the field kind: expected a name or a number of the enum"),
            (json!({ "inner": "x" }), "the field inner: expected an object"),
            (json!({ "inner": { "age": "x" } }), "the field inner.age: expected a whole number of 32 bits"),
            (
                json!({ "inners": [{ "age": [] }] }),
                "the field inners.age: expected a whole number of 32 bits",
            ),
            (json!({ "by_name": [] }), "the field by_name: expected an object"),
            (json!({ "by_number": { "x": "" } }), "the field by_number: expected keys of its type"),
            (json!({ "by_name": { "x": 1 } }), "the field by_name.x: expected an object"),
        ] {
            assert_eq!(all(&given).map(|_| ()).unwrap_err(), why);
        }
    }
}

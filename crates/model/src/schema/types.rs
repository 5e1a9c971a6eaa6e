//! The Rust types that fields may have.
use super::reader::{Step, expected_one_of, shown};
use super::{FieldSchema, FieldType, FieldValue, Json, Kind, Literal, Reader, type_hints};
use crate::node::{Node, Origin, Value};
use crate::secret_reference::{NOT_RESOLVED, is_reference};
use std::collections::BTreeMap;
use std::fmt;
use uuid::Uuid;

impl FieldType for bool {
    const KIND: Kind = Kind::Boolean;

    fn read(node: &Node<'_>, field: &FieldSchema, reader: &mut Reader<'_>) -> Option<Self> {
        let value = match &node.value {
            Value::Bool(value) => Some(*value),
            // YAML 1.1 words, and the environment, which knows only strings.
            Value::Str(text, Origin::Plain | Origin::Interpolated) => match text.as_ref() {
                "true" | "yes" | "on" => Some(true),
                "false" | "no" | "off" => Some(false),
                _ => None,
            },
            _ => None,
        };
        if value.is_none() {
            let (got, hint) = (shown(node, field), type_hints::boolean(node, field));
            reader.report(node.at, format!("expected true or false, got {got}{hint}"));
        }
        value
    }

    fn to_json(&self) -> Json {
        (*self).into()
    }
}

impl FieldType for f64 {
    const KIND: Kind = Kind::Number;

    fn read(node: &Node<'_>, field: &FieldSchema, reader: &mut Reader<'_>) -> Option<Self> {
        let Some(value) = number(node) else {
            let (got, hint) = (shown(node, field), type_hints::number(node, field));
            reader.report(node.at, format!("expected a number, got {got}{hint}"));
            return None;
        };
        within_bounds(value, node, field, reader).then_some(value)
    }

    fn to_json(&self) -> Json {
        super::json::number(*self)
    }
}

/// The number that is written, if one is.
fn number(node: &Node<'_>) -> Option<f64> {
    match &node.value {
        Value::Int(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        Value::Str(text, Origin::Interpolated) => text.trim().parse().ok(),
        _ => None,
    }
    .filter(|value| value.is_finite())
}

fn within_bounds(value: f64, node: &Node<'_>, field: &FieldSchema, reader: &mut Reader<'_>) -> bool {
    let expected =
        if let Some((low, high)) = field.between.filter(|(low, high)| value < *low || value > *high) {
            format!("a number between {low} and {high}")
        } else if let Some(bound) = field.gt.filter(|bound| value <= *bound) {
            format!("a number greater than {bound}")
        } else if !allowed_number(value, field) {
            let values: Vec<_> = field.one_of.iter().map(|literal| literal.to_json().to_string()).collect();
            format!("one of {}", values.join(", "))
        } else {
            return true;
        };
    let is_percentage = field.between == Some((0.0, 1.0)) && (1.0..=100.0).contains(&value);
    let hint = if is_percentage { format!("; write {} for {value} %", value / 100.0) } else { String::new() };
    reader.report(node.at, format!("expected {expected}, got {}{hint}", shown(node, field)));
    false
}

fn allowed_number(value: f64, field: &FieldSchema) -> bool {
    field.one_of.is_empty()
        || field.one_of.iter().any(|literal| match literal {
            Literal::Int(allowed) => *allowed as f64 == value,
            Literal::Float(allowed) => *allowed == value,
            _ => false,
        })
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl FieldType for $integer {
            const KIND: Kind = Kind::Integer(<$integer>::MIN as i64, <$integer>::MAX as i64);

            fn read(node: &Node<'_>, field: &FieldSchema, reader: &mut Reader<'_>) -> Option<Self> {
                integer(node, <$integer>::MIN as i64, <$integer>::MAX as i64, field, reader)
                    .and_then(|value| value.try_into().ok())
            }

            fn to_json(&self) -> Json {
                (*self).into()
            }

            fn value(&self) -> FieldValue<'_> {
                FieldValue::Integer((*self).into())
            }
        }
    )*};
}
integers!(u8, u16, u32, i32, i64);

fn integer(
    node: &Node<'_>,
    low: i64,
    high: i64,
    field: &FieldSchema,
    reader: &mut Reader<'_>,
) -> Option<i64> {
    let value = match &node.value {
        Value::Int(value) => Some(*value),
        _ => number(node).filter(|v| v.fract() == 0.0 && v.abs() < 9e15).map(|v| v as i64),
    };
    let (least, most) = field.between.unwrap_or((low as f64, high as f64));
    let Some(value) = value else {
        let bounds = if most < 9e15 { format!(" between {least} and {most}") } else { String::new() };
        let hint = type_hints::number(node, field);
        reader.report(node.at, format!("expected a whole number{bounds}, got {}{hint}", shown(node, field)));
        return None;
    };
    let bounds = FieldSchema { between: Some((least, most)), ..*field };
    within_bounds(value as f64, node, &bounds, reader).then_some(value)
}

impl FieldType for String {
    const KIND: Kind = Kind::String;

    fn read(node: &Node<'_>, field: &FieldSchema, reader: &mut Reader<'_>) -> Option<Self> {
        let Some(text) = node.as_str() else {
            let hint = type_hints::string(node, field);
            reader.report(node.at, format!("expected a string, got {}{hint}", shown(node, field)));
            return None;
        };
        if !reader.checks(text, field) {
            return Some(text.to_owned());
        }
        match text_rules(text, node, field, reader.is_early()) {
            Ok(()) => Some(text.to_owned()),
            Err(message) => {
                // What a rule says to write would be a part of the reference.
                let is_unresolved = is_reference(text) && !field.takes_references();
                reader.report(node.at, if is_unresolved { NOT_RESOLVED.to_owned() } else { message });
                None
            }
        }
    }

    fn generate() -> Option<Self> {
        Some(Uuid::new_v4().simple().to_string())
    }

    fn to_json(&self) -> Json {
        self.as_str().into()
    }

    fn value(&self) -> FieldValue<'_> {
        FieldValue::Text(self)
    }

    fn list_value(list: &[Self]) -> FieldValue<'_> {
        FieldValue::Texts(list)
    }
}

fn text_rules(text: &str, node: &Node<'_>, field: &FieldSchema, is_early: bool) -> Result<(), String> {
    if text.len() < field.len_min.unwrap_or(1) {
        return Err(match field.len_min {
            Some(least) if least > 1 => format!("must have at least {least} characters"),
            _ => "must not be empty".to_owned(),
        });
    }
    if let Some(most) = field.len_max.filter(|most| text.len() > *most) {
        return Err(format!("must have at most {most} characters"));
    }
    if !field.one_of.is_empty() && !field.one_of.iter().any(|allowed| allowed.as_str() == Some(text)) {
        return Err(expected_one_of(field.one_of.iter().filter_map(Literal::as_str), node, field, is_early));
    }
    if let Some(start) = field.starts_with.filter(|start| !text.starts_with(start)) {
        return Err(format!("must start with {start}"));
    }
    field.check.map_or(Ok(()), |check| check(text)).map_err(|message| match node.value {
        // A rule's message may quote the value.
        Value::Str(_, Origin::Interpolated) => "the value from the environment is not valid here".to_owned(),
        _ => message,
    })
}

impl Literal {
    fn as_str(&self) -> Option<&'static str> {
        match self {
            Literal::Str(text) => Some(text),
            _ => None,
        }
    }
}

impl<T: FieldType> FieldType for Option<T> {
    const KIND: Kind = T::KIND;
    const OPTIONAL: bool = true;

    fn read(node: &Node<'_>, field: &FieldSchema, reader: &mut Reader<'_>) -> Option<Self> {
        match node.value {
            Value::Null => Some(None),
            _ => T::read(node, field, reader).map(Some),
        }
    }

    fn unset() -> Option<Self> {
        Some(None)
    }

    fn generate() -> Option<Self> {
        T::generate().map(Some)
    }

    fn to_json(&self) -> Json {
        self.as_ref().map_or(Json::Null, T::to_json)
    }

    fn value(&self) -> FieldValue<'_> {
        self.as_ref().map_or(FieldValue::Unset, T::value)
    }
}

impl<T: FieldType> FieldType for Vec<T> {
    const KIND: Kind = Kind::Array(&T::KIND);

    fn read(node: &Node<'_>, field: &FieldSchema, reader: &mut Reader<'_>) -> Option<Self> {
        let items = match &node.value {
            Value::List(items) => items.as_slice(),
            // Lua writes an empty list so.
            Value::Map(entries) if entries.is_empty() => &[],
            _ => {
                let (got, hint) = (shown(node, field), type_hints::list(node, field));
                reader.report(node.at, format!("expected a list, got {got}{hint}"));
                return None;
            }
        };
        let lengths = field.len_min.unwrap_or(0)..=field.len_max.unwrap_or(usize::MAX);
        if !lengths.contains(&items.len()) {
            reader.report(node.at, length_expected(field));
            return None;
        }
        let rules = field.element();
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            if reader.is_full() {
                break;
            }
            values.extend(reader.within(Step::Index(index), |reader| T::read(item, &rules, reader)));
        }
        (values.len() == items.len()).then_some(values)
    }

    fn to_json(&self) -> Json {
        self.iter().map(T::to_json).collect()
    }

    fn value(&self) -> FieldValue<'_> {
        T::list_value(self)
    }
}

fn length_expected(field: &FieldSchema) -> String {
    match (field.len_min, field.len_max) {
        (Some(least), None) => format!("must have at least {least} element{}", plural(least)),
        (None, Some(most)) => format!("must have at most {most} element{}", plural(most)),
        (least, most) => {
            format!("must have between {} and {} elements", least.unwrap_or(0), most.unwrap_or(usize::MAX))
        }
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

impl<T: FieldType> FieldType for BTreeMap<String, T> {
    const KIND: Kind = Kind::Map(&T::KIND);

    fn read(node: &Node<'_>, field: &FieldSchema, reader: &mut Reader<'_>) -> Option<Self> {
        let entries = match &node.value {
            Value::Map(entries) => entries.as_slice(),
            Value::List(items) if items.is_empty() => &[],
            _ => {
                let (got, hint) = (shown(node, field), type_hints::mapping(node));
                reader.report(node.at, format!("expected a mapping, got {got}{hint}"));
                return None;
            }
        };
        let rules = field.element();
        let mut values = BTreeMap::new();
        for entry in entries {
            if reader.is_full() {
                break;
            }
            let key = entry.key.to_string();
            let value = reader.within(Step::Key(key.clone()), |reader| {
                let checked = field.key_check.map_or(Ok(()), |check| check(&key));
                let checked = checked.map_err(|message| reader.report(entry.at, message)).is_ok();
                T::read(&entry.node, &rules, reader).filter(|_| checked)
            });
            values.extend(value.map(|value| (key, value)));
        }
        (values.len() == entries.len()).then_some(values)
    }

    fn to_json(&self) -> Json {
        self.iter().map(|(key, value)| (key.clone(), value.to_json())).collect()
    }
}

impl FieldType for Uuid {
    const KIND: Kind = Kind::Uuid;

    fn read(node: &Node<'_>, field: &FieldSchema, reader: &mut Reader<'_>) -> Option<Self> {
        if let Value::Id(id) = node.value {
            return Some(id);
        }
        match field.foreign {
            Some(kind) => read_reference(kind, node, field, reader),
            None => {
                let id = node.as_str().and_then(crate::rule::id);
                if id.is_none() {
                    reader.report(node.at, format!("expected a UUID, got {}", shown(node, field)));
                }
                id
            }
        }
    }

    fn generate() -> Option<Self> {
        Some(Uuid::new_v4())
    }

    fn to_json(&self) -> Json {
        self.to_string().into()
    }

    fn value(&self) -> FieldValue<'_> {
        FieldValue::Uuid(*self)
    }
}

/// A reference: a name, an id, or a mapping with one of them.
fn read_reference(kind: &str, node: &Node<'_>, field: &FieldSchema, reader: &mut Reader<'_>) -> Option<Uuid> {
    let named = match &node.value {
        Value::Map(_) => ["id", "name", "username"].iter().find_map(|key| node.get(key)),
        _ => Some(node),
    };
    let Some((named, name)) = named.and_then(|node| Some((node, node.as_str()?))) else {
        let hint = if matches!(node.value, Value::List(_)) { "; write one entity for each" } else { "" };
        let got = shown(node, field);
        let message = format!("expected the name or the id of one of the {kind}, got {got}{hint}");
        reader.report(node.at, message);
        return None;
    };
    let found = reader.references().resolve(kind, name);
    if found.is_none() {
        let message = unresolved(kind, name, &shown(named, field), reader);
        reader.report(named.at, message);
    }
    found
}

fn unresolved(kind: &str, name: &str, shown: &str, reader: &Reader<'_>) -> String {
    // Comparing with every name takes time; a file with many such mistakes has another cause.
    let names = if reader.is_early() { reader.references().names(kind) } else { Vec::new() };
    match super::did_you_mean(name, names) {
        hint if hint.is_empty() => {
            format!("{shown} is none of the {kind}; add it there, or name one of them")
        }
        hint => format!("{shown} is none of the {kind}{hint}"),
    }
}

impl FieldType for Json {
    const KIND: Kind = Kind::Any;

    fn read(node: &Node<'_>, _: &FieldSchema, _: &mut Reader<'_>) -> Option<Self> {
        Some(node.to_json())
    }

    fn to_json(&self) -> Json {
        self.clone()
    }
}

/// Text that is never shown: not by `Debug`, not in messages.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(String);

impl Secret {
    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Secret(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl FieldType for Secret {
    const KIND: Kind = Kind::String;

    fn read(node: &Node<'_>, field: &FieldSchema, reader: &mut Reader<'_>) -> Option<Self> {
        String::read(node, &FieldSchema { secret: true, ..*field }, reader).map(Secret)
    }

    fn generate() -> Option<Self> {
        // As long as Kong's.
        let digits = [Uuid::new_v4(), Uuid::new_v4()].map(|id| id.simple().to_string()).concat();
        Some(Secret(digits[..44].to_owned()))
    }

    fn to_json(&self) -> Json {
        self.0.as_str().into()
    }
}

//! A configuration as written: values, each with its position. What every reader reads from.
use serde_json::Value as Json;
use std::borrow::Cow;
use uuid::Uuid;

/// Where something stands in a file; both count from 1, and 0 means "nowhere" (not read from a file).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

/// A value and its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Node<'a> {
    /// What is written.
    pub value: Value<'a>,
    /// Where it starts.
    pub at: Position,
}

/// The value of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// Null, or nothing at all.
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A string.
    Str(Cow<'a, str>, Origin),
    /// An id that the reader itself put in.
    Id(Uuid),
    /// A sequence.
    List(Vec<Node<'a>>),
    /// A mapping, in written order, without duplicate keys.
    Map(Vec<Entry<'a>>),
}

/// How a string came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Written between quotes, or as a block.
    Quoted,
    /// Written bare: `on`, `a.b`.
    Plain,
    /// Holds a value of the environment: may stand for a number or a boolean, and is never shown.
    Interpolated,
}

/// One member of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry<'a> {
    /// The key.
    pub key: Cow<'a, str>,
    /// Where the key stands.
    pub at: Position,
    /// The value.
    pub node: Node<'a>,
}

impl<'a> Node<'a> {
    /// A node with this value at this position.
    pub fn new(value: Value<'a>, at: Position) -> Self {
        Node { value, at }
    }

    /// The members, when this is a mapping.
    pub fn entries(&self) -> &[Entry<'a>] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The elements, when this is a sequence.
    pub fn elements(&self) -> &[Node<'a>] {
        match &self.value {
            Value::List(elements) => elements,
            _ => &[],
        }
    }

    /// The member of this name, when this is a mapping that has it.
    pub fn entry(&self, key: &str) -> Option<&Entry<'a>> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The value of the member of this name, unless null.
    pub fn get(&self, key: &str) -> Option<&Node<'a>> {
        self.entry(key).map(|entry| &entry.node).filter(|node| node.value != Value::Null)
    }

    /// The text, when this is a string.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Str(text, _) => Some(text),
            _ => None,
        }
    }

    /// The deepest position known along a path such as `redis.port` or `paths[0]`.
    pub fn position_of(&self, path: &str) -> Position {
        let mut node = self;
        for part in path.split(['.', '[']).filter(|part| !part.is_empty()) {
            let next = match part.strip_suffix(']') {
                Some(index) => index.parse().ok().and_then(|i: usize| node.elements().get(i)),
                None => node.entry(part).map(|entry| &entry.node),
            };
            let Some(next) = next else { break };
            node = next;
        }
        node.at
    }

    /// What kind of value this is, for messages.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Str(..) | Value::Id(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// The same value as JSON.
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::Str(text, _) => text.as_ref().into(),
            Value::Id(id) => id.to_string().into(),
            Value::List(elements) => elements.iter().map(Node::to_json).collect(),
            Value::Map(entries) => entries.iter().map(|e| (e.key.to_string(), e.node.to_json())).collect(),
        }
    }
}

impl<'a> From<&'a Json> for Node<'a> {
    fn from(json: &'a Json) -> Self {
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(value) => Value::Int(value),
                None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::Str(text.as_str().into(), Origin::Quoted),
            Json::Array(items) => Value::List(items.iter().map(Node::from).collect()),
            Json::Object(members) => Value::Map(members.iter().map(entry_of).collect()),
        };
        Node::new(value, Position::default())
    }
}

fn entry_of<'a>((key, value): (&'a String, &'a Json)) -> Entry<'a> {
    Entry { key: key.as_str().into(), at: Position::default(), node: value.into() }
}

//! Tables of Lua in JSON: an empty one is written as `{}` or `[]`, whatever is meant.
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// A list, which may be written as an empty object.
pub(super) fn list<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Vec<T>, D::Error> {
    match Value::deserialize(from)? {
        Value::Array(elements) => {
            elements.into_iter().map(serde_json::from_value).collect::<Result<_, _>>().map_err(Error::custom)
        }
        Value::Object(members) if members.is_empty() => Ok(Vec::new()),
        _ => Err(Error::custom("expected a list")),
    }
}

/// An object, which may be written as an empty list.
pub(super) fn object<'de, D: Deserializer<'de>>(from: D) -> Result<Map<String, Value>, D::Error> {
    match Value::deserialize(from)? {
        Value::Object(members) => Ok(members),
        Value::Array(elements) if elements.is_empty() => Ok(Map::new()),
        _ => Err(Error::custom("expected an object")),
    }
}

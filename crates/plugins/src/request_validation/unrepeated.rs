//! JSON whose objects name each member once. Of two, the upstream may take another one than was validated.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;
use weir_plugin::Json;

/// Such a value.
#[derive(Debug)]
pub(super) struct Unrepeated(pub(super) Json);

impl<'de> Deserialize<'de> for Unrepeated {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(Self)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Json, E> {
        Ok(number.into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Json, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Json, E> {
        Ok(number.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Json, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut elements = Vec::new();
        while let Some(Unrepeated(element)) = seq.next_element()? {
            elements.push(element);
        }
        Ok(Json::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members = serde_json::Map::new();
        while let Some((name, Unrepeated(value))) = map.next_entry::<String, Unrepeated>()? {
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("an object names a member twice"));
            }
        }
        Ok(Json::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::Unrepeated;
    use weir_plugin::Json;

    #[test]
    fn a_value_is_read_as_it_is_unless_a_member_is_repeated() {
        for text in ["null", "[1, -1, 1.5, true, \"\\u0041\"]", "{\"a\": {\"b\": []}, \"b\": {}}"] {
            let Unrepeated(read) = serde_json::from_str(text).unwrap();
            assert_eq!(read, serde_json::from_str::<Json>(text).unwrap());
        }
        for text in ["{\"a\": 1, \"a\": 1}", "[{\"a\": {\"b\": 1, \"\\u0062\": 2}}]"] {
            let error = serde_json::from_str::<Unrepeated>(text).unwrap_err();
            assert!(error.to_string().contains("twice"), "{error}");
        }
    }
}

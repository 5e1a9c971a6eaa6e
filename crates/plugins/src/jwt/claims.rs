//! The members that the plugin reads from a token's header and claims; it skips the others.

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// One member, as far as the plugin reads it. A member of the wrong type counts as absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Claim<'a> {
    #[default]
    Absent,
    Text(Cow<'a, str>),
    Number(f64),
    Other,
}

impl Claim<'_> {
    pub(crate) fn number(&self) -> Option<f64> {
        if let Claim::Number(number) = self { Some(*number) } else { None }
    }
}

/// The members of a header or of claims that the plugin reads. If several have one name, the last counts.
#[derive(Debug, Default)]
pub(crate) struct Members<'a> {
    /// Whether the JSON is an object.
    pub(crate) is_object: bool,
    /// The name of the algorithm.
    pub(crate) alg: Claim<'a>,
    /// The member that names the credential.
    pub(crate) named: Claim<'a>,
    pub(crate) exp: Claim<'a>,
    pub(crate) nbf: Claim<'a>,
    /// The id of a key.
    pub(crate) kid: Claim<'a>,
    /// Whether `crit` names extensions. None is supported.
    pub(crate) has_critical: bool,
}

impl<'a> Members<'a> {
    /// Parses JSON; `name` is the name of the member that names the credential.
    pub(crate) fn read(json: &'a [u8], name: &str) -> Result<Self, &'static str> {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let read = match json.trim_ascii_start().first() {
            Some(b'{') => Reader(name).deserialize(&mut deserializer),
            _ => IgnoredAny::deserialize(&mut deserializer).map(|_| Members::default()),
        };
        let whole = read.and_then(|members| deserializer.end().map(|()| members));
        whole.map_err(|_| "JSON")
    }
}

struct Reader<'n>(&'n str);

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Members<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Members { is_object: true, ..Members::default() };
        while let Some(Name(name)) = map.next_key()? {
            let is_named = name == self.0;
            if !is_named && !matches!(&*name, "alg" | "exp" | "nbf" | "kid" | "crit") {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let claim: Claim<'de> = map.next_value()?;
            if is_named {
                members.named = claim.clone();
            }
            match &*name {
                "alg" => members.alg = claim,
                "exp" => members.exp = claim,
                "nbf" => members.nbf = claim,
                "kid" => members.kid = claim,
                "crit" => members.has_critical = true,
                _ => {}
            }
        }
        Ok(members)
    }
}

impl<'de> Deserialize<'de> for Claim<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ClaimVisitor)
    }
}

struct ClaimVisitor;

impl<'de> Visitor<'de> for ClaimVisitor {
    type Value = Claim<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Claim::Text(text.into()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Claim::Text(text.to_owned().into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Claim::Number(number as f64))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Claim::Number(number as f64))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Claim::Number(number))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(if value { Claim::Other } else { Claim::Absent })
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Claim::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Claim::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Claim::Other)
    }
}

//! JSON objects whose members are changed. The other members stay as they were written.

mod lenient;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The members of an object in their order, with their values as JSON text.
#[derive(Default)]
pub(crate) struct Members<'t>(Vec<Member<'t>>);

struct Member<'t> {
    name: String,
    /// The name with its quotes, if it cannot be parsed and written again.
    written: Option<&'t [u8]>,
    value: Cow<'t, [u8]>,
}

impl<'t> Members<'t> {
    /// None if the text is not a JSON object, even to a lenient parser.
    pub(crate) fn read(text: &'t [u8]) -> Option<Self> {
        serde_json::from_slice(text).ok().or_else(|| lenient::members(text).map(Self))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|member| member.name == name).map(|member| &*member.value)
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.0.retain(|member| member.name != name);
    }

    /// Renames a member; it replaces a member that has the new name.
    pub(crate) fn rename(&mut self, old: &str, new: &str) {
        if let Some(value) = self.get(old).map(<[u8]>::to_vec).filter(|_| old != new) {
            self.remove(new);
            self.set(old, value);
            for member in self.0.iter_mut().filter(|member| member.name == old) {
                (member.name, member.written) = (new.to_owned(), None);
            }
        }
    }

    /// Sets the value of a name, as JSON text.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<Vec<u8>>) {
        let value = Cow::Owned(value.into());
        let Some(first) = self.0.iter().position(|member| member.name == name) else {
            return self.0.push(Member { name: name.to_owned(), written: None, value });
        };
        self.0[first].value = value;
        let mut at = 0;
        self.0.retain(|member| {
            at += 1;
            at - 1 == first || member.name != name
        });
    }

    /// Adds a value to the list, or to the text that becomes the first of a list. Other values are replaced by a list
    /// of this one; an object stays as it is.
    pub(crate) fn append(&mut self, name: &str, value: &str) {
        let value = value.as_bytes();
        let list = match self.get(name).map(|found| (found.first(), found)) {
            Some((Some(b'{'), _)) => return,
            Some((Some(b'"'), text)) => [b"[", text, b",", value, b"]"].concat(),
            Some((Some(b'['), list)) => {
                let items = list[1..list.len() - 1].trim_ascii();
                [b"[", items, &b","[usize::from(items.is_empty())..], value, b"]"].concat()
            }
            _ => [b"[", value, b"]"].concat(),
        };
        self.set(name, list);
    }

    /// The object as JSON text.
    pub(crate) fn written(&self) -> Vec<u8> {
        let mut out = b"{".to_vec();
        for (at, member) in self.0.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            match member.written {
                Some(written) => out.extend_from_slice(written),
                None => out.extend_from_slice(quoted(member.name.as_bytes()).as_bytes()),
            }
            out.push(b':');
            out.extend_from_slice(&member.value);
        }
        out.push(b'}');
        out
    }
}

/// A text as JSON.
pub(crate) fn quoted(text: &[u8]) -> String {
    serde_json::Value::from(&*String::from_utf8_lossy(text)).to_string()
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    let value = value.get().as_bytes().into();
                    members.push(Member { name, written: None, value });
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, change: impl FnOnce(&mut Members<'_>)) -> String {
        let mut members = Members::read(text.as_bytes()).unwrap();
        change(&mut members);
        String::from_utf8(members.written()).unwrap()
    }

    #[test]
    fn members_that_are_not_named_stay_as_they_were_written() {
        let text = r#"{"z" : 12345678901234567890123, "a":1.50, "deep":{ "x": [1, 2] }}"#;
        let kept = changed(text, |members| members.set("b", quoted(b"1")));
        assert_eq!(kept, r#"{"z":12345678901234567890123,"a":1.50,"deep":{ "x": [1, 2] },"b":"1"}"#);
    }

    #[test]
    fn a_member_that_is_there_twice_is_one_once_it_is_changed() {
        let text = r#"{"a":1,"b":2,"a":3}"#;
        assert_eq!(changed(text, |members| members.set("a", "9")), r#"{"a":9,"b":2}"#);
        assert_eq!(changed(text, |members| members.rename("a", "c")), r#"{"c":1,"b":2}"#);
        assert_eq!(changed(text, |members| members.rename("b", "a")), r#"{"a":2}"#);
        assert_eq!(changed(text, |members| members.remove("a")), r#"{"b":2}"#);
    }

    #[test]
    fn values_are_appended_as_to_tables_of_lua() {
        let cases = [
            (r#"{"a":"x"}"#, r#"{"a":["x",1]}"#),
            (r#"{"a":[ ]}"#, r#"{"a":[1]}"#),
            (r#"{"a":[2]}"#, r#"{"a":[2,1]}"#),
            (r#"{"a":null}"#, r#"{"a":[1]}"#),
            (r#"{"a":{}}"#, r#"{"a":{}}"#),
            ("{}", r#"{"a":[1]}"#),
        ];
        for (before, after) in cases {
            assert_eq!(changed(before, |members| members.append("a", "1")), after, "{before}");
        }
    }

    #[test]
    fn what_is_no_object_is_not_read() {
        for text in ["", "[]", "\"a\"", "1", "null", "{", "{\"a\":}", "{} x", "{\"a\":\"\u{7f}", "\u{feff}{}"]
        {
            assert!(Members::read(text.as_bytes()).is_none(), "{text}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(changed(&deep, |_| {}), deep);
    }
}

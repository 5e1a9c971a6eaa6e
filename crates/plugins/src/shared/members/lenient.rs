//! Invalid JSON that servers read all the same: with control characters in texts, bytes that are not UTF-8, numbers
//! such as `NaN`, or a comma too many. What a server accepts, a plugin must not overlook.

use super::Member;

/// The members of an object, with names and values as they are written.
pub(super) fn members(text: &[u8]) -> Option<Vec<Member<'_>>> {
    let mut reader = Reader { text, at: 0 };
    let mut members = Vec::new();
    reader.sign(b'{')?;
    while reader.sign(b'}').is_none() {
        let written = reader.string()?;
        let name = unescaped(&String::from_utf8_lossy(&written[1..written.len() - 1]));
        reader.sign(b':')?;
        members.push(Member { name, written: Some(written), value: reader.value()?.into() });
        if reader.sign(b',').is_none() {
            reader.sign(b'}')?;
            break;
        }
    }
    reader.next().is_none().then_some(members)
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Reader<'t> {
    /// The next byte that is not a blank.
    fn next(&mut self) -> Option<u8> {
        let rest = &self.text[self.at..];
        self.at += rest.iter().take_while(|byte| b" \t\r\n".contains(byte)).count();
        self.text.get(self.at).copied()
    }

    fn sign(&mut self, sign: u8) -> Option<()> {
        let is_next = self.next() == Some(sign);
        self.at += usize::from(is_next);
        is_next.then_some(())
    }

    /// A text with its quotes.
    fn string(&mut self) -> Option<&'t [u8]> {
        self.sign(b'"')?;
        let start = self.at - 1;
        loop {
            let rest = self.text.get(self.at..)?;
            let found = memchr::memchr2(b'"', b'\\', rest)?;
            self.at += found + 1;
            if rest[found] == b'"' {
                return self.text.get(start..self.at);
            }
            self.at += 1;
        }
    }

    fn value(&mut self) -> Option<&'t [u8]> {
        let first = self.next()?;
        let start = self.at;
        match first {
            b'"' => drop(self.string()?),
            b'{' | b'[' => self.nested()?,
            _ => {
                let rest = &self.text[start..];
                self.at += rest.iter().take_while(|byte| !b",:{}[]\" \t\r\n".contains(byte)).count();
            }
        }
        self.text.get(start..self.at).filter(|value| !value.is_empty())
    }

    /// An object or a list, of any depth.
    fn nested(&mut self) -> Option<()> {
        let mut open = 0_usize;
        loop {
            match self.next()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => open += 1,
                b'}' | b']' => open -= 1,
                _ => {}
            }
            self.at += 1;
            if open == 0 {
                return Some(());
            }
        }
    }
}

/// A name without its escapes. An invalid escape stands for itself.
fn unescaped(written: &str) -> String {
    let Some(first) = written.find('\\') else { return written.to_owned() };
    let (mut name, mut rest) = (written[..first].to_owned(), &written[first..]);
    while let Some(at) = rest.find('\\') {
        name.push_str(&rest[..at]);
        let mut characters = rest[at + 1..].chars();
        let escaped = characters.next();
        rest = characters.as_str();
        name.extend(match escaped {
            Some('b') => Some('\u{8}'),
            Some('f') => Some('\u{c}'),
            Some('n') => Some('\n'),
            Some('r') => Some('\r'),
            Some('t') => Some('\t'),
            Some('u') => Some(unicode(&mut rest)),
            other => other,
        });
    }
    name.push_str(rest);
    name
}

/// The character of the digits that follow `\u`, and of the other half of a pair.
fn unicode(rest: &mut &str) -> char {
    let Some(first) = digits(rest) else { return char::REPLACEMENT_CHARACTER };
    *rest = &rest[4..];
    let second = rest.strip_prefix("\\u").and_then(digits).filter(|_| (0xd800..0xdc00).contains(&first));
    let mut decoded = char::decode_utf16([Some(first), second].into_iter().flatten());
    let character = decoded.next().and_then(Result::ok);
    if second.is_some() && character.is_some() {
        *rest = &rest[6..];
    }
    character.unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn digits(text: &str) -> Option<u16> {
    let digits = text.get(..4).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::members;
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_json_is_read_as_such(map in prop::collection::btree_map(any::<String>(), json(), 0..6), pretty in any::<bool>()) {
            let object = Value::Object(map.into_iter().collect::<Map<_, _>>());
            let text = if pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) };
            let text = text.unwrap();
            let read = members(text.as_bytes()).unwrap().into_iter();
            let read = read.map(|it| (it.name, serde_json::from_slice(&it.value).unwrap())).collect();
            prop_assert_eq!(Value::Object(read), object);
        }

        #[test]
        fn nothing_is_too_strange(text in "[\\[\\]{}\",:\\\\u0-9dDé \n]{0,40}") {
            if let Some(found) = members(text.as_bytes()) {
                prop_assert!(found.iter().all(|it| !it.value.is_empty()));
            }
        }
    }

    #[test]
    fn what_servers_read_is_read() {
        let names = |text: &str| {
            members(text.as_bytes()).map(|found| found.into_iter().map(|it| it.name).collect::<Vec<_>>())
        };
        let role = Some(vec!["role".to_owned()]);
        for text in [
            "{\"role\":NaN}",
            "{\"role\":-Infinity,}",
            "{\"role\":\"\u{1}\n\"}",
            "{\"role\":[1,{\"a\":\"]}\"},01]}",
            "{\"r\\u006fle\":0x10}",
            "{\"r\\o\\u006Ce\":\"\\ud800\"}",
        ] {
            assert_eq!(names(text), role, "{text}");
        }
        assert_eq!(names("{\"\\ud83d\\ude00\\ud83d\":1}"), Some(vec!["\u{1f600}\u{fffd}".to_owned()]));
        for none in
            ["", "{", "{}x", "[]", "{\"a\"}", "{\"a\":}", "{\"a\":1 2}", "{\"a\":[}", "{\"a", "{\"a\\"]
        {
            assert!(members(none.as_bytes()).is_none(), "{none}");
        }
    }
}

//! An event of a stream in OpenAI's form, as far as its tokens go. A token comes with a dozen members, so that they are read where they
//! stand: a tree of them would cost an allocation for each.

use super::reply::estimated_tokens;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use weir_plugin::Json;

/// What an event has.
#[derive(Debug, Default)]
pub(crate) struct Chunk<'e> {
    choices: Lenient<Vec<Lenient<Choice<'e>>>>,
    model: LenientText<'e>,
    usage: Lenient<Json>,
    error: Option<&'e RawValue>,
}

/// One of the answers that were asked for.
#[derive(Debug, Default)]
struct Choice<'e> {
    delta: Lenient<Delta<'e>>,
    text: LenientText<'e>,
}

/// A part of a message.
#[derive(Debug, Default)]
struct Delta<'e> {
    content: LenientText<'e>,
    reasoning_content: LenientText<'e>,
    reasoning: LenientText<'e>,
    refusal: LenientText<'e>,
    tool_calls: Lenient<Vec<Lenient<ToolCall<'e>>>>,
}

#[derive(Debug, Default)]
struct ToolCall<'e> {
    function: Lenient<Function<'e>>,
}

#[derive(Debug, Default)]
struct Function<'e> {
    arguments: LenientText<'e>,
}

/// An error that is more than a text.
#[derive(Debug, Default)]
struct Failure<'e> {
    message: LenientText<'e>,
}

/// Reads an object's members of these names. Of several with the same name the last one counts, as in a tree.
macro_rules! read_members {
    ($($object:ident { $($member:ident),* })*) => {$(
        impl<'de: 'e, 'e> Deserialize<'de> for $object<'e> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Members;

                impl<'de> Visitor<'de> for Members {
                    type Value = $object<'de>;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                        let mut object = $object::default();
                        while let Some(Text(name)) = map.next_key()? {
                            match &*name {
                                $(stringify!($member) => object.$member = map.next_value()?,)*
                                _ => {
                                    map.next_value::<IgnoredAny>()?;
                                }
                            }
                        }
                        Ok(object)
                    }
                }

                deserializer.deserialize_map(Members)
            }
        }
    )*};
}

read_members! {
    Chunk { choices, model, usage, error }
    Choice { delta, text }
    Delta { content, reasoning_content, reasoning, refusal, tool_calls }
    ToolCall { function }
    Function { arguments }
    Failure { message }
}

/// A text, which is copied only if it has escapes.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Text<'e>(#[serde(borrow)] Cow<'e, str>);

/// The same with half of a surrogate pair, as where a provider cuts an emoji in two: it is replaced.
struct Torn(String);

impl<'de> Deserialize<'de> for Torn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl Visitor<'_> for Bytes {
            type Value = Torn;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_bytes<E>(self, text: &[u8]) -> Result<Torn, E> {
                Ok(Torn(String::from_utf8_lossy(text).into_owned()))
            }
        }

        // As a string it would be refused.
        deserializer.deserialize_bytes(Bytes)
    }
}

/// A member that is a text; one of another type counts as missing.
#[derive(Debug, Default)]
struct LenientText<'e>(Option<Cow<'e, str>>);

impl<'de: 'e, 'e> Deserialize<'de> for LenientText<'e> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let member = <&'de RawValue>::deserialize(deserializer)?;
        Ok(Self::read(member.get()))
    }
}

impl<'e> LenientText<'e> {
    fn read(member: &'e str) -> Self {
        // Most members that are no texts are `null`, of which no error is made.
        if !member.starts_with('"') {
            return Self(None);
        }
        let whole = serde_json::from_str(member).map(|Text(text)| text);
        let torn = || serde_json::from_str(member).map(|Torn(text)| text.into());
        Self(whole.or_else(|_| torn()).ok())
    }

    fn as_str(&self) -> Option<&str> {
        self.0.as_deref()
    }

    fn estimated_tokens(&self) -> u64 {
        self.as_str().map_or(0, estimated_tokens)
    }
}

/// A member of this type; one of another type counts as missing.
#[derive(Debug)]
struct Lenient<T>(Option<T>);

impl<T> Default for Lenient<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let member = <&'de RawValue>::deserialize(deserializer)?.get();
        Ok(Self(if member == "null" { None } else { serde_json::from_str(member).ok() }))
    }
}

impl<T> Lenient<Vec<Lenient<T>>> {
    /// The members that are what they should be, each with its place.
    fn each(&self) -> impl Iterator<Item = (usize, &T)> {
        let members = self.0.iter().flatten().enumerate();
        members.filter_map(|(place, member)| Some((place, member.0.as_ref()?)))
    }
}

impl<'e> Chunk<'e> {
    /// Reads an event's data.
    pub(crate) fn read(data: &'e str) -> Result<Self, String> {
        serde_json::from_str(data).map_err(|error| format!("it is no JSON object: {error}"))
    }

    /// What the error says that it consists of, or the given text if that says nothing. What is no list of choices counts as none:
    /// some providers send `null`.
    pub(crate) fn error(&self, unsaid: &'static str) -> Option<Cow<'e, str>> {
        let error = self.error.filter(|_| self.choices.0.is_none())?.get();
        let message = || serde_json::from_str::<Failure<'e>>(error).ok()?.message.0;
        let said = LenientText::read(error).0.or_else(message);
        Some(said.unwrap_or(unsaid.into()))
    }

    /// Whether it is about tokens alone.
    pub(crate) fn is_without_choices(&self) -> bool {
        self.choices.0.as_ref().is_some_and(Vec::is_empty)
    }

    /// The model, where it is named.
    pub(crate) fn model(&self) -> Option<&str> {
        self.model.as_str()
    }

    /// What the provider has counted.
    pub(crate) fn counts(&self) -> Option<&Json> {
        self.usage.0.as_ref()
    }

    /// The text of the first answer.
    pub(crate) fn text(&self) -> &str {
        let first = self.choices.each().find(|(place, _)| *place == 0);
        first.and_then(|(_, choice)| choice.said()).unwrap_or_default()
    }

    /// What costs tokens beside that text.
    pub(crate) fn estimated_beside_text(&self) -> u64 {
        let of_choice = |(place, choice): (usize, &Choice<'_>)| {
            choice.estimated_beside_text() + if place > 0 { choice.estimated_text() } else { 0 }
        };
        self.choices.each().map(of_choice).sum()
    }
}

impl Choice<'_> {
    fn said(&self) -> Option<&str> {
        let content = self.delta.0.as_ref().and_then(|delta| delta.content.as_str());
        content.or(self.text.as_str())
    }

    fn estimated_text(&self) -> u64 {
        let content = self.delta.0.as_ref().map_or(0, |delta| delta.content.estimated_tokens());
        content + self.text.estimated_tokens()
    }

    fn estimated_beside_text(&self) -> u64 {
        let Some(delta) = &self.delta.0 else { return 0 };
        let texts = [&delta.reasoning_content, &delta.reasoning, &delta.refusal];
        let functions = delta.tool_calls.each().filter_map(|(_, call)| call.function.0.as_ref());
        let arguments = functions.map(|function| &function.arguments);
        texts.into_iter().chain(arguments).map(LenientText::estimated_tokens).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Chunk;
    use std::borrow::Cow;

    #[test]
    fn what_costs_tokens_is_read() {
        let data = r#"{"id":"1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"a\nb","refusal":"12345678",
            "tool_calls":[{"function":{"arguments":"{}"}},null,{"function":1}]},"logprobs":null},{"delta":{"content":"four"},"text":"four"}],
            "usage":{"prompt_tokens":3}}"#;
        let chunk = Chunk::read(data).unwrap();
        assert_eq!((chunk.model(), chunk.text()), (Some("m"), "a\nb"));
        assert_eq!(chunk.estimated_beside_text(), 2 + 1 + 1 + 1);
        assert_eq!(chunk.counts().unwrap()["prompt_tokens"], 3);
        assert!(chunk.error("").is_none() && !chunk.is_without_choices());
    }

    #[test]
    fn a_member_of_another_type_counts_as_missing() {
        let all = r#"{"choices":[1,{"delta":["x"],"text":{}},{"delta":{"content":3,"tool_calls":{}},"text":"four"}],"model":[],"usage":"x"}"#;
        let chunk = Chunk::read(all).unwrap();
        assert_eq!((chunk.model(), chunk.text(), chunk.estimated_beside_text()), (None, "", 1));
        for none in [r#"{"choices":null}"#, r#"{"choices":{}}"#, "{}"] {
            assert!(!Chunk::read(none).unwrap().is_without_choices(), "{none}");
        }
        assert!(Chunk::read(r#" {"choices":[]}"#).unwrap().is_without_choices());
    }

    #[test]
    fn an_error_stands_alone() {
        let cases = [
            (r#"{"error":"x"}"#, Some("x")),
            (r#"{"error":{"message":"x","code":1},"choices":null}"#, Some("x")),
            (r#"{"choices":1,"error":{"message":"x"}}"#, Some("x")),
            (r#"{"error":{"message":"x \ud83d"}}"#, Some("x \u{fffd}\u{fffd}\u{fffd}")),
            (r#"{"error":"\ud83d"}"#, Some("\u{fffd}\u{fffd}\u{fffd}")),
            (r#"{"error":{"message":["x"]}}"#, Some("unsaid")),
            (r#"{"error":7}"#, Some("unsaid")),
            (r#"{"error":null}"#, None),
            (r#"{"error": null }"#, None),
            (r#"{"error":"x","choices":[]}"#, None),
        ];
        for (data, error) in cases {
            assert_eq!(Chunk::read(data).unwrap().error("unsaid").as_deref(), error, "{data}");
        }
    }

    #[test]
    fn of_members_with_one_name_the_last_one_counts() {
        let data = r#"{"usage":null,"model":"a","choices":[],"error":"x","model":"b","error":null,
            "choices":[{"delta":{"content":"a"},"delta":{"content":"a","content":"b","tool_calls":[
                {"function":{"arguments":"1","arguments":"12345678"}}]}}],"usage":{"prompt_tokens":3}}"#;
        let chunk = Chunk::read(data).unwrap();
        assert_eq!((chunk.model(), chunk.text(), chunk.estimated_beside_text()), (Some("b"), "b", 2));
        assert_eq!(chunk.counts().unwrap()["prompt_tokens"], 3);
        assert!(chunk.error("").is_none() && !chunk.is_without_choices());
    }

    #[test]
    fn a_text_with_half_of_a_pair_counts() {
        let data =
            r#"{"model":"m","choices":[{"delta":{"content":"12345678\ud83d and on","refusal":"\ude00"}}]}"#;
        let chunk = Chunk::read(data).unwrap();
        assert_eq!(chunk.text(), "12345678\u{fffd}\u{fffd}\u{fffd} and on");
        assert_eq!(chunk.estimated_beside_text(), 3);
        let whole = Chunk::read(r#"{"choices":[{"delta":{"content":"\ud83d\ude00"}}]}"#).unwrap();
        assert_eq!(whole.text(), "😀");
    }

    #[test]
    fn a_text_is_not_copied() {
        let chunk = Chunk::read(r#"{"model":"m","choices":[{"delta":{"content":"é"}}]}"#).unwrap();
        let delta = chunk.choices.0.unwrap().remove(0).0.unwrap().delta.0.unwrap();
        assert!(matches!(delta.content.0, Some(Cow::Borrowed("é"))));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for wrong in ["", "1", "[]", r#"[[],"m"]"#, "null", "{", "{} {}", r#"{"a":}"#] {
            assert!(Chunk::read(wrong).is_err(), "{wrong}");
        }
    }
}

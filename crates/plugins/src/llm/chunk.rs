//! An event of a stream in OpenAI's form, as far as its tokens go. A token comes with a dozen members, so that they are read where they
//! stand: a tree of them would cost an allocation for each.

use super::reply::estimated_tokens;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use weir_plugin::Json;

/// What an event has.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'e"))]
pub(crate) struct Chunk<'e> {
    #[serde(default)]
    choices: Lenient<Vec<Lenient<Choice<'e>>>>,
    #[serde(default)]
    model: Lenient<Text<'e>>,
    #[serde(default)]
    usage: Lenient<Json>,
    #[serde(default)]
    error: Lenient<Json>,
}

/// One of the answers that were asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'e"))]
struct Choice<'e> {
    #[serde(default)]
    delta: Lenient<Delta<'e>>,
    #[serde(default)]
    text: Lenient<Text<'e>>,
}

/// A part of a message.
#[derive(Debug, Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'e"))]
struct Delta<'e> {
    #[serde(default)]
    content: Lenient<Text<'e>>,
    #[serde(default)]
    reasoning_content: Lenient<Text<'e>>,
    #[serde(default)]
    reasoning: Lenient<Text<'e>>,
    #[serde(default)]
    refusal: Lenient<Text<'e>>,
    #[serde(default)]
    tool_calls: Lenient<Vec<Lenient<ToolCall<'e>>>>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'e"))]
struct ToolCall<'e> {
    #[serde(default)]
    function: Lenient<Function<'e>>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'e"))]
struct Function<'e> {
    #[serde(default)]
    arguments: Lenient<Text<'e>>,
}

/// A text, which is copied only if it has escapes.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Text<'e>(#[serde(borrow)] Cow<'e, str>);

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
        let member = <&'de RawValue>::deserialize(deserializer)?;
        Ok(Self(serde_json::from_str(member.get()).ok()))
    }
}

impl Lenient<Text<'_>> {
    fn as_str(&self) -> Option<&str> {
        self.0.as_ref().map(|text| &*text.0)
    }

    fn estimated_tokens(&self) -> u64 {
        self.as_str().map_or(0, estimated_tokens)
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
        // A list would be read as the members in their order.
        if !data.trim_start().starts_with('{') {
            return Err("it is no JSON object".to_owned());
        }
        serde_json::from_str(data).map_err(|error| format!("it is no JSON: {error}"))
    }

    /// The error that it consists of.
    pub(crate) fn error(&self) -> Option<&Json> {
        self.error.0.as_ref().filter(|error| !error.is_null() && self.choices.0.is_none())
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
        texts.into_iter().chain(arguments).map(Lenient::estimated_tokens).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Chunk;

    #[test]
    fn what_costs_tokens_is_read() {
        let data = r#"{"id":"1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"a\nb","refusal":"12345678",
            "tool_calls":[{"function":{"arguments":"{}"}},null,{"function":1}]},"logprobs":null},{"delta":{"content":"four"},"text":"four"}],
            "usage":{"prompt_tokens":3}}"#;
        let chunk = Chunk::read(data).unwrap();
        assert_eq!((chunk.model(), chunk.text()), (Some("m"), "a\nb"));
        assert_eq!(chunk.estimated_beside_text(), 2 + 1 + 1 + 1);
        assert_eq!(chunk.counts().unwrap()["prompt_tokens"], 3);
        assert!(chunk.error().is_none() && !chunk.is_without_choices());
    }

    #[test]
    fn a_member_of_another_type_counts_as_missing() {
        let all = r#"{"choices":[1,{"delta":[],"text":{}},{"delta":{"content":3,"tool_calls":{}},"text":"four"}],"model":[],"usage":"x"}"#;
        let chunk = Chunk::read(all).unwrap();
        assert_eq!((chunk.model(), chunk.text(), chunk.estimated_beside_text()), (None, "", 1));
        for none in [r#"{"choices":null}"#, r#"{"choices":{}}"#, "{}"] {
            assert!(!Chunk::read(none).unwrap().is_without_choices(), "{none}");
        }
        assert!(Chunk::read(r#" {"choices":[]}"#).unwrap().is_without_choices());
    }

    #[test]
    fn an_error_stands_alone() {
        assert_eq!(Chunk::read(r#"{"error":"x"}"#).unwrap().error().unwrap(), "x");
        for none in [r#"{"error":null}"#, r#"{"error":"x","choices":[]}"#] {
            assert_eq!(Chunk::read(none).unwrap().error(), None, "{none}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for wrong in ["", "1", "[]", r#"[[],"m"]"#, "null", "{", "{} {}", r#"{"a":}"#] {
            assert!(Chunk::read(wrong).is_err(), "{wrong}");
        }
    }
}

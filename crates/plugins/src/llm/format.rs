//! The forms of chats that clients may send: OpenAI's, and those of two providers.

use super::Object;
use super::prompts::{role_of, text_of};
use serde_json::json;
use weir_plugin::Json;

/// The form of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    OpenAi,
    Gemini,
    Bedrock,
}

impl Format {
    /// The form of this `llm_format`.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "gemini" => Self::Gemini,
            "bedrock" => Self::Bedrock,
            _ => Self::OpenAi,
        }
    }

    /// Where the turns of a chat stand.
    fn member(self) -> &'static str {
        if self == Self::Gemini { "contents" } else { "messages" }
    }

    /// The turns of a chat, if it has any.
    pub(crate) fn turns(self, body: &Object) -> Option<&Vec<Json>> {
        body.get(self.member())?.as_array().filter(|turns| !turns.is_empty())
    }

    /// The role of a turn, in OpenAI's words, and its text; none of a turn that has parts without text.
    pub(crate) fn read(self, turn: &Json) -> Option<(&str, String)> {
        let role = turn.get("role").map_or(Some("user"), Json::as_str)?;
        match self {
            Self::OpenAi => {
                let role = turn.get("role")?.as_str()?;
                Some((role, turn.get("content")?.as_str()?.to_owned()))
            }
            Self::Gemini => {
                Some((if role == "model" { "assistant" } else { role }, text_of(turn.get("parts"))))
            }
            Self::Bedrock => Some((role_of(turn), text_of(turn.get("content")))),
        }
    }

    /// Adds a turn at this place, or to the instructions, where these stand apart. Returns whether it is a turn.
    pub(crate) fn insert(self, body: &mut Object, (role, text): (&str, &str), at: usize) -> bool {
        if role == "system" && self != Self::OpenAi {
            self.instruct(body, text);
            return false;
        }
        let turn = match self {
            Self::OpenAi => json!({ "role": role, "content": text }),
            Self::Gemini => {
                json!({ "role": if role == "assistant" { "model" } else { role }, "parts": [{ "text": text }] })
            }
            Self::Bedrock => json!({ "role": role, "content": [{ "text": text }] }),
        };
        if let Some(turns) = body.get_mut(self.member()).and_then(Json::as_array_mut) {
            turns.insert(at.min(turns.len()), turn);
        }
        true
    }

    /// Adds to the instructions of the system, which stand apart from the chat.
    fn instruct(self, body: &mut Object, text: &str) {
        let list = match self {
            Self::Gemini => {
                let name = if body.contains_key("system_instruction") {
                    "system_instruction"
                } else {
                    "systemInstruction"
                };
                body.entry(name).or_insert_with(|| json!({ "parts": [] })).get_mut("parts")
            }
            _ => Some(body.entry("system").or_insert_with(|| json!([]))),
        };
        if let Some(list) = list.and_then(Json::as_array_mut) {
            list.push(json!({ "text": text }));
        }
    }
}

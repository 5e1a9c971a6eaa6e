//! A model's response in OpenAI's form.

use super::prompts::text_of;
use super::{Call, Object, Route};
use serde_json::json;
use weir_plugin::Json;

/// How many tokens prompts and response have, as far as the provider says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt: Option<u64>,
    pub(crate) completion: Option<u64>,
    pub(crate) total: Option<u64>,
}

impl Usage {
    /// What a provider counts under these two names.
    pub(crate) fn read(counts: Option<&Json>, prompt: &str, completion: &str) -> Self {
        let count =
            |name: &str| counts.and_then(|counts| counts.get(name)?.as_f64()).map(|count| count as u64);
        Self { prompt: count(prompt), completion: count(completion), total: None }
    }

    /// What OpenAI's form says under `usage`.
    pub(crate) fn of_openai(counts: Option<&Json>) -> Self {
        let usage = Self::read(counts, "prompt_tokens", "completion_tokens");
        Self { total: counts.and_then(|counts| counts.get("total_tokens")?.as_u64()), ..usage }
    }

    /// All tokens.
    pub(crate) fn total(&self) -> Option<u64> {
        self.total.or_else(|| {
            self.prompt.zip(self.completion).map(|(prompt, completion)| prompt.saturating_add(completion))
        })
    }

    /// Takes over what the other knows.
    pub(crate) fn update(&mut self, other: Self) {
        self.prompt = other.prompt.or(self.prompt);
        self.completion = other.completion.or(self.completion);
        self.total = other.total.or(self.total);
    }

    /// In OpenAI's form, which has all three; none if the provider counts nothing. Google leaves out what is 0.
    pub(super) fn json(&self) -> Option<Json> {
        self.prompt.or(self.completion)?;
        let (prompt, completion) = (self.prompt.unwrap_or(0), self.completion.unwrap_or(0));
        let total = self.total.unwrap_or_else(|| prompt.saturating_add(completion));
        Some(json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total }))
    }
}

/// A response.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Reply {
    /// The provider's name of it.
    pub(crate) id: Option<String>,
    /// The model that has answered, where the provider says so.
    pub(crate) model: Option<String>,
    /// The texts: one, unless several were asked for.
    pub(crate) texts: Vec<String>,
    /// Calls of functions that the model asks for, in OpenAI's form.
    pub(crate) tool_calls: Vec<Json>,
    /// Why it has ended, in OpenAI's words.
    pub(crate) finish: Option<String>,
    pub(crate) usage: Usage,
}

impl Reply {
    /// How many tokens it has, where the provider does not count them.
    pub(crate) fn estimated_tokens(&self) -> u64 {
        let arguments = self.tool_calls.iter().filter_map(|call| call["function"]["arguments"].as_str());
        self.texts.iter().map(String::as_str).chain(arguments).map(estimated_tokens).sum()
    }

    /// The response in OpenAI's form.
    pub(crate) fn into_json(self, call: &Call) -> Json {
        let choices: Vec<_> =
            self.texts.iter().enumerate().map(|(index, text)| self.choice(call.route, index, text)).collect();
        let object = if call.route == Route::Completions { "text_completion" } else { "chat.completion" };
        let mut reply = json!({
            "id": self.id.as_ref().unwrap_or(&call.id),
            "object": object,
            "created": call.created,
            "model": self.model.as_ref().unwrap_or(&call.model),
            "choices": choices,
        });
        if let Some(usage) = self.usage.json() {
            reply["usage"] = usage;
        }
        reply
    }

    fn choice(&self, route: Route, index: usize, text: &str) -> Json {
        if route == Route::Completions {
            return json!({ "index": index, "text": text, "logprobs": null, "finish_reason": self.finish });
        }
        let mut message = Object::new();
        message.insert("role".to_owned(), "assistant".into());
        let content = if text.is_empty() && !self.tool_calls.is_empty() { Json::Null } else { text.into() };
        message.insert("content".to_owned(), content);
        if !self.tool_calls.is_empty() {
            message.insert("tool_calls".to_owned(), self.tool_calls.clone().into());
        }
        json!({ "index": index, "message": message, "logprobs": null, "finish_reason": self.finish })
    }
}

/// How many tokens a text has, where the provider does not count them: one for four bytes, as in Kong.
pub(super) fn estimated_tokens(text: &str) -> u64 {
    text.trim().len().div_ceil(4) as u64
}

/// How many tokens a message in OpenAI's form has beside its text, or a part of one.
pub(super) fn estimated_beside_text(message: &Json) -> u64 {
    let texts = [&message["reasoning_content"], &message["reasoning"], &message["refusal"]];
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let arguments = calls.map(|call| &call["function"]["arguments"]);
    let texts = texts.into_iter().chain(arguments);
    texts.map(|text| estimated_tokens(text.as_str().unwrap_or_default())).sum()
}

/// How many tokens a whole response in OpenAI's form has.
pub(super) fn estimated_of_openai(body: &Json) -> u64 {
    let choices = body.get("choices").and_then(Json::as_array).into_iter().flatten();
    let of_choice = |choice: &Json| {
        let said = text_of(choice["message"].get("content"));
        let texts = [&*said, choice["text"].as_str().unwrap_or_default()];
        texts.map(estimated_tokens).iter().sum::<u64>() + estimated_beside_text(&choice["message"])
    };
    choices.map(of_choice).sum()
}

/// A call of a function in OpenAI's form.
pub(super) fn tool_call(id: &str, name: &str, arguments: &Json) -> Json {
    let function = json!({ "name": name, "arguments": arguments.to_string() });
    json!({ "id": id, "type": "function", "function": function })
}

/// A provider's word for why a response has ended, in OpenAI's words.
pub(super) fn finish_reason(word: &str) -> String {
    let known = match word.to_ascii_lowercase().as_str() {
        "end_turn"
        | "stop_sequence"
        | "complete"
        | "stop"
        | "eos_token"
        | "finish_reason_unspecified"
        | "pause_turn" => "stop",
        "max_tokens" | "length" | "model_length" | "model_context_window_exceeded" => "length",
        "tool_use" | "tool_calls" | "tool_call" => "tool_calls",
        "safety"
        | "content_filter"
        | "content_filtered"
        | "guardrail_intervened"
        | "recitation"
        | "refusal"
        | "error_toxic" => "content_filter",
        other => return other.to_owned(),
    };
    known.to_owned()
}

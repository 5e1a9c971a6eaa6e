//! The body of a request in OpenAI's form: messages of a chat, or a prompt to be completed.

use super::{LlmError, Object, Route};
use std::fmt;
use weir_plugin::{Exchange, Json, Known};

/// A request's body.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Prompts(pub(crate) Object);

/// Why a body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It is not JSON, or does not say that it is.
    NotJson,
    /// It is longer than the plugin reads.
    TooLong { len: usize, max: usize },
    /// It is longer than the node buffers.
    NotBuffered,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson => f.write_str("the body is not JSON"),
            Self::TooLong { len, max } => write!(
                f,
                "the body has {len} bytes, and max_request_body_size of the plugin is {max}: raise that, or send less"
            ),
            Self::NotBuffered => f.write_str(
                "the body is longer than what the node buffers: raise client_body_buffer_size, or send less",
            ),
        }
    }
}

/// The body of a request, unless it is longer than `max` bytes; 0 is no limit.
pub(crate) fn body_within(exchange: &Exchange, max: usize) -> Result<&[u8], Unreadable> {
    match exchange.body() {
        Some(body) if max > 0 && body.len() > max => Err(Unreadable::TooLong { len: body.len(), max }),
        Some(body) => Ok(body),
        None => Err(Unreadable::NotBuffered),
    }
}

impl Prompts {
    /// Reads the body of a request; none that is longer than `max` bytes, unless that is 0.
    pub(crate) fn of(exchange: &Exchange, max: usize) -> Result<Object, Unreadable> {
        let content_type = exchange.header(Known::ContentType).unwrap_or(b"application/json");
        let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let body = body_within(exchange, max)?;
        match media_type.eq_ignore_ascii_case(b"application/json") {
            true => serde_json::from_slice(body).map_err(|_| Unreadable::NotJson),
            false => Err(Unreadable::NotJson),
        }
    }

    /// Reads the body of a request that has prompts.
    pub(crate) fn read(exchange: &Exchange, max: usize) -> Result<Self, LlmError> {
        let object = Self::of(exchange, max).map_err(LlmError::malformed)?;
        let prompts = Self(object);
        if prompts.messages().is_none() && prompts.prompt().is_none() {
            return Err(LlmError::Request("request body doesn't contain valid prompts".to_owned()));
        }
        Ok(prompts)
    }

    /// The messages of a chat.
    pub(crate) fn messages(&self) -> Option<&Vec<Json>> {
        self.0.get("messages")?.as_array().filter(|messages| !messages.is_empty())
    }

    /// The prompt to be completed.
    pub(crate) fn prompt(&self) -> Option<&str> {
        self.0.get("prompt")?.as_str()
    }

    /// The model that the request names.
    pub(crate) fn model(&self) -> Option<&str> {
        self.0.get("model")?.as_str().filter(|name| !name.is_empty())
    }

    /// Whether the request is one for this route.
    pub(crate) fn fit(&self, route: Route) -> Result<(), LlmError> {
        let format = match (self.messages(), self.prompt()) {
            (Some(_), Some(_)) => {
                return Err(LlmError::Request("request matches multiple LLM request formats".to_owned()));
            }
            (Some(_), None) => Route::Chat,
            _ => Route::Completions,
        };
        if format == route {
            return Ok(());
        }
        let (format, route) = (format.name(), route.name());
        Err(LlmError::Request(format!(
            "[{format}] message format is not compatible with [{route}] route type"
        )))
    }

    /// How many words prompts in Gemini's own form have.
    fn words_of_parts(&self) -> usize {
        let contents = self.0.get("contents").and_then(Json::as_array).into_iter().flatten();
        let system =
            ["systemInstruction", "system_instruction"].into_iter().filter_map(|name| self.0.get(name));
        contents.chain(system).map(|content| words(content.get("parts"))).sum()
    }

    /// How many tokens the prompts have, if a word has so many: what providers that count none are taken to have got.
    pub(crate) fn estimated_tokens(&self, tokens_per_word: f64) -> u64 {
        let of = |member: &str| words(self.0.get(member));
        let words: usize = match self.messages() {
            Some(messages) => messages.iter().map(|message| words(message.get("content"))).sum(),
            None => of("prompt"),
        };
        // Bedrock's own form has system prompts beside the messages, Gemini's has contents with parts.
        let words = words + of("system") + self.words_of_parts();
        (words as f64 * tokens_per_word).round() as u64
    }
}

/// How many words a text has, or the texts among the parts of a message.
fn words(content: Option<&Json>) -> usize {
    let count = |text: &str| text.split_whitespace().count();
    match content {
        Some(Json::String(text)) => count(text),
        Some(Json::Array(parts)) => {
            parts.iter().filter_map(|part| part.get("text")?.as_str()).map(count).sum()
        }
        _ => 0,
    }
}

/// The text of a message's content, that of all its parts.
pub(super) fn text_of(content: Option<&Json>) -> String {
    match content {
        Some(Json::String(text)) => text.clone(),
        Some(Json::Array(parts)) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}

/// The members of a message: its role, and its content.
pub(super) fn role_of(message: &Json) -> &str {
    message.get("role").and_then(Json::as_str).unwrap_or("user")
}

/// The texts of all system messages, one behind the other, and the other messages.
pub(super) fn system_apart(messages: &[Json]) -> (Option<String>, Vec<&Json>) {
    let is_system = |message: &&Json| matches!(role_of(message), "system" | "developer");
    let (system, others): (Vec<_>, Vec<_>) = messages.iter().partition(is_system);
    let texts: Vec<_> = system.iter().map(|message| text_of(message.get("content"))).collect();
    ((!texts.is_empty()).then(|| texts.join("\n")), others)
}

/// What `data:image/png;base64,…` holds: the media type, and the data in base64.
pub(super) fn data_url(url: &str) -> Option<(&str, &str)> {
    let (kind, data) = url.strip_prefix("data:")?.split_once(',')?;
    Some((kind.strip_suffix(";base64")?, data))
}

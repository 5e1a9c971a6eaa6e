//! The providers, and the forms in which they take requests and send responses.

mod anthropic;
mod azure;
mod bedrock;
mod cohere;
mod gemini;
mod huggingface;
mod llama2_raw;
mod ollama;
mod openai;

use super::config::Options;
use super::frames::{Event, StreamFormat};
use super::stream::Output;
use super::{Call, Object, Prompts, Reply, Route};
use weir_plugin::Json;

/// The form of a provider's API.
pub(crate) trait Dialect: Send + Sync {
    /// The URL, unless one is configured.
    fn default_url(&self, call: &Call) -> Result<String, String>;

    /// The URL that requests go to.
    fn url(&self, call: &Call) -> Result<String, String> {
        call.options.upstream_url.clone().map_or_else(|| self.default_url(call), Ok)
    }

    /// Headers that requests need beside the key.
    fn headers(&self, _call: &Call) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The region of AWS that requests are signed for, if they are signed.
    fn region(&self, _call: &Call) -> Option<String> {
        None
    }

    /// The body of a request, of one in OpenAI's form.
    fn request(&self, prompts: Prompts, call: &Call) -> Result<Json, String>;

    /// What a whole response says; none if it is in OpenAI's form already.
    fn response(&self, body: &Json, call: &Call) -> Result<Option<Reply>, String>;

    /// How streams of the provider may be cut.
    fn stream_formats(&self) -> &'static [StreamFormat] {
        &[StreamFormat::Sse]
    }

    /// Sends the result of an event.
    fn event(&self, event: &Event, call: &Call, out: &mut Output) -> Result<(), String>;
}

/// The dialect of a provider with these options.
pub(super) fn dialect(provider: &str, options: &Options) -> &'static dyn Dialect {
    let format = match provider {
        "llama2" => options.llama2_format.as_deref(),
        "mistral" => options.mistral_format.as_deref(),
        _ => None,
    };
    match (provider, format) {
        (_, Some("ollama")) => &ollama::Ollama,
        (_, Some("raw")) => &llama2_raw::Llama2Raw,
        ("mistral", _) => &openai::OpenAi { host: "https://api.mistral.ai:443" },
        ("anthropic", _) => &anthropic::Anthropic,
        ("azure", _) => &azure::Azure,
        ("bedrock", _) => &bedrock::Bedrock,
        ("cohere", _) => &cohere::Cohere,
        ("gemini", _) => &gemini::Gemini,
        ("huggingface", _) => &huggingface::HuggingFace,
        _ => &openai::OpenAi { host: "https://api.openai.com:443" },
    }
}

/// A name that a request may have chosen, where it stands in a URL: it leads to no other host or path.
fn in_url<'n>(name: &'n str, what: &str) -> Result<&'n str, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@".contains(&byte);
    let is_part = name.bytes().all(fits) && name.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if is_part { Ok(name) } else { Err(format!("the {what} may have letters, digits and -_.:/@ alone")) }
}

/// What a provider does not have.
fn unsupported(call: &Call) -> String {
    format!("no transformer for {}://{}", call.provider, call.route.name())
}

/// The error for a response that is not what was expected.
fn no_such(what: &str, call: &Call) -> String {
    let (provider, route) = (&call.provider, call.route.name());
    format!("transformation failed from type {provider}://{route}: {what}")
}

/// The event as JSON.
fn read(event: &Event) -> Result<Json, String> {
    let read: Json = serde_json::from_str(&event.data).map_err(|error| format!("it is no JSON: {error}"))?;
    if read.is_object() { Ok(read) } else { Err("it is no JSON object".to_owned()) }
}

/// The error that an event or a response consists of.
fn error_of(json: &Json) -> Option<&str> {
    let error = json.get("error").filter(|error| !error.is_null() && json.get("choices").is_none())?;
    Some(error.as_str().or_else(|| text(error, "/message")).unwrap_or(FAILED))
}

/// What clients get of an error without a message.
const FAILED: &str = "the AI provider failed";

/// A text within JSON.
fn text<'j>(json: &'j Json, pointer: &str) -> Option<&'j str> {
    json.pointer(pointer).and_then(Json::as_str)
}

/// Moves members, under new names.
fn moved(from: &mut Object, names: &[(&str, &str)]) -> Object {
    let take =
        |(old, new): &(&str, &str)| Some((new.to_string(), from.remove(*old).filter(|v| !v.is_null())?));
    names.iter().filter_map(take).collect()
}

/// What a request has under `stop`, as a list.
fn stops(value: Json) -> Json {
    if value.is_string() { Json::Array(vec![value]) } else { value }
}

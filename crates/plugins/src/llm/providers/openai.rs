//! OpenAI, and others that speak its API.

use super::{Call, Dialect, Event, FAILED, Json, Output, Prompts, Reply, Route, no_such};
use crate::llm::{Chunk, Usage};
use serde_json::json;

/// OpenAI's API at a host.
pub(super) struct OpenAi {
    /// Scheme, host and port.
    pub(super) host: &'static str,
}

impl Dialect for OpenAi {
    fn default_url(&self, call: &Call) -> Result<String, String> {
        let path = match call.route {
            Route::Chat => "/v1/chat/completions",
            Route::Completions => "/v1/completions",
            Route::Preserve => "/",
        };
        Ok(format!("{}{path}", self.host))
    }

    fn request(&self, prompts: Prompts, call: &Call) -> Result<Json, String> {
        Ok(request(prompts, call))
    }

    fn response(&self, body: &Json, call: &Call) -> Result<Option<Reply>, String> {
        response(body, call)
    }

    fn event(&self, event: &Event, call: &Call, out: &mut Output) -> Result<(), String> {
        same(event, call, out)
    }
}

/// The request with its model. There is no `top_k` in OpenAI's API.
pub(super) fn request(Prompts(mut body): Prompts, call: &Call) -> Json {
    body.insert("model".to_owned(), call.model.as_str().into());
    body.insert("stream".to_owned(), call.streams.into());
    body.remove("top_k");
    // Mistral counts them unasked, and refuses members that it does not know.
    if call.streams && call.counts_usage && call.provider != "mistral" {
        body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    }
    Json::Object(body)
}

/// The response stays as it is, if it is one.
pub(super) fn response(body: &Json, call: &Call) -> Result<Option<Reply>, String> {
    let what = || no_such(&format!("'choices' not in {} response", call.route.name()), call);
    body.get("choices").map(|_| None).ok_or_else(what)
}

/// The event stays as it is, unless it is an error. The client gets none about tokens that it has not asked for.
pub(super) fn same(event: &Event, call: &Call, out: &mut Output) -> Result<(), String> {
    let chunk = Chunk::read(&event.data)?;
    if let Some(error) = chunk.error(FAILED) {
        out.fail(&error);
        return Ok(());
    }
    let is_unasked = call.counts_usage && !call.includes_usage && chunk.is_without_choices();
    if is_unasked {
        out.usage.update(Usage::of_openai(chunk.counts()))
    } else {
        out.same(&event.data, &chunk)
    }
    Ok(())
}

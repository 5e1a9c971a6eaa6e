//! Cohere's API, version 1.

use super::super::prompts::{role_of, text_of};
use super::super::reply::{Usage, finish_reason};
use super::{
    Call, Dialect, Event, Json, Output, Prompts, Reply, Route, StreamFormat, moved, no_such, read, stops,
    text,
};
use serde_json::json;

/// Cohere's API.
pub(super) struct Cohere;

impl Dialect for Cohere {
    fn default_url(&self, call: &Call) -> Result<String, String> {
        let path = match call.route {
            Route::Chat => "/v1/chat",
            Route::Completions => "/v1/generate",
            Route::Preserve => "/",
        };
        Ok(format!("https://api.cohere.com:443{path}"))
    }

    fn request(&self, mut prompts: Prompts, call: &Call) -> Result<Json, String> {
        let names = [
            ("max_completion_tokens", "max_tokens"),
            ("max_tokens", "max_tokens"),
            ("temperature", "temperature"),
            ("top_p", "p"),
            ("top_k", "k"),
            ("seed", "seed"),
            ("frequency_penalty", "frequency_penalty"),
            ("presence_penalty", "presence_penalty"),
            ("stop", "stop_sequences"),
        ];
        let mut request = moved(&mut prompts.0, &names);
        if let Some(stop) = request.remove("stop_sequences") {
            request.insert("stop_sequences".to_owned(), stops(stop));
        }
        request.insert("model".to_owned(), call.model.as_str().into());
        request.insert("stream".to_owned(), call.streams.into());
        match prompts.messages().map(Vec::as_slice) {
            Some([history @ .., last]) if call.route == Route::Chat => {
                if !history.is_empty() {
                    request.insert("chat_history".to_owned(), history.iter().map(turn).collect());
                }
                request.insert("message".to_owned(), text_of(last.get("content")).into());
            }
            _ => drop(request.insert("prompt".to_owned(), prompts.prompt().into())),
        }
        Ok(Json::Object(request))
    }

    fn response(&self, body: &Json, call: &Call) -> Result<Option<Reply>, String> {
        let texts: Vec<_> = match (body.get("generations").and_then(Json::as_array), text(body, "/text")) {
            (Some(generations), _) => {
                generations.iter().map(|one| text(one, "/text").unwrap_or_default().to_owned()).collect()
            }
            (None, Some(text)) => vec![text.to_owned()],
            (None, None) => {
                return Err(no_such("'text' or 'generations' missing from cohere response body", call));
            }
        };
        let id = text(body, "/generation_id").or_else(|| text(body, "/id")).map(str::to_owned);
        let finish = text(body, "/finish_reason").or_else(|| text(body, "/generations/0/finish_reason"));
        let finish = Some(finish_reason(finish.unwrap_or("stop")));
        Ok(Some(Reply { id, texts, finish, usage: usage(body), ..Reply::default() }))
    }

    fn stream_formats(&self) -> &'static [StreamFormat] {
        &[StreamFormat::Sse, StreamFormat::Objects]
    }

    fn event(&self, event: &Event, call: &Call, out: &mut Output) -> Result<(), String> {
        let event = read(event)?;
        let is_end = event["is_finished"] == true || event["event_type"] == "stream-end";
        match text(&event, "/event_type") {
            Some("stream-start") => {
                out.id = text(&event, "/generation_id").map(str::to_owned);
                out.begin(call);
            }
            Some("text-generation") | None if !is_end => {
                match (text(&event, "/text"), text(&event, "/message")) {
                    (None, Some(error)) => out.fail(error),
                    (said, _) => out.text(call, said.unwrap_or_default()),
                }
            }
            _ => {}
        }
        if is_end {
            let response = &event["response"];
            out.usage.update(usage(response));
            let finish = text(&event, "/finish_reason").or_else(|| text(response, "/finish_reason"));
            out.finish(call, finish.unwrap_or("stop"));
            out.done(call);
        }
        Ok(())
    }
}

/// A message of the chat so far.
fn turn(message: &Json) -> Json {
    let role = match role_of(message) {
        "assistant" => "CHATBOT",
        "system" | "developer" => "SYSTEM",
        _ => "USER",
    };
    json!({ "role": role, "message": text_of(message.get("content")) })
}

/// What is billed, or else what was counted.
fn usage(body: &Json) -> Usage {
    let mut usage = Usage::read(body.get("token_count"), "prompt_tokens", "response_tokens");
    for counts in ["/meta/tokens", "/meta/billed_units"] {
        usage.update(Usage::read(body.pointer(counts), "input_tokens", "output_tokens"));
    }
    usage
}

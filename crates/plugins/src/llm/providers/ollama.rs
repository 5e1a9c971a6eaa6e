//! Ollama's API, and servers of Llama and Mistral that speak it.

use super::super::prompts::text_of;
use super::super::reply::{Usage, finish_reason, tool_call};
use super::{
    Call, Dialect, Event, Json, Output, Prompts, Reply, Route, StreamFormat, error_of, moved, no_such, read,
    text,
};

/// Ollama's API.
pub(super) struct Ollama;

impl Dialect for Ollama {
    fn default_url(&self, _: &Call) -> Result<String, String> {
        Err("model.options.upstream_url must be set for the ollama format".to_owned())
    }

    fn request(&self, Prompts(mut body): Prompts, call: &Call) -> Result<Json, String> {
        let mut request = moved(&mut body, &[("tools", "tools")]);
        match call.route {
            Route::Completions => request.insert("prompt".to_owned(), body["prompt"].take()),
            _ => request.insert("messages".to_owned(), messages(&body["messages"])),
        };
        request.insert("model".to_owned(), call.model.as_str().into());
        request.insert("stream".to_owned(), call.streams.into());
        let names = [
            ("max_completion_tokens", "num_predict"),
            ("max_tokens", "num_predict"),
            ("temperature", "temperature"),
            ("top_p", "top_p"),
            ("top_k", "top_k"),
            ("stop", "stop"),
            ("seed", "seed"),
        ];
        request.insert("options".to_owned(), Json::Object(moved(&mut body, &names)));
        Ok(Json::Object(request))
    }

    fn response(&self, body: &Json, call: &Call) -> Result<Option<Reply>, String> {
        let said =
            said(body).ok_or_else(|| no_such("neither 'message' nor 'response' in ollama response", call))?;
        Ok(Some(Reply {
            id: None,
            model: text(body, "/model").map(str::to_owned),
            texts: vec![said.to_owned()],
            tool_calls: tool_calls(body),
            finish: Some(finish(body, call)),
            usage: usage(body),
        }))
    }

    fn stream_formats(&self) -> &'static [StreamFormat] {
        &[StreamFormat::Sse, StreamFormat::Objects]
    }

    fn event(&self, event: &Event, call: &Call, out: &mut Output) -> Result<(), String> {
        let event = read(event)?;
        if let Some(error) = error_of(&event) {
            out.fail(error);
            return Ok(());
        }
        out.model = text(&event, "/model").map(str::to_owned).or(out.model.take());
        if let Some(said) = said(&event).filter(|said| !said.is_empty()) {
            out.text(call, said);
        }
        out.tool_calls(call, tool_calls(&event));
        if event["done"] == true {
            out.usage.update(usage(&event));
            out.finish(call, &finish(&event, call));
            out.done(call);
        }
        Ok(())
    }
}

/// The messages; their content is a text, and the arguments of functions are objects.
fn messages(messages: &Json) -> Json {
    let flat = |message: &Json| {
        let mut message = message.clone();
        if message["content"].is_array() {
            message["content"] = text_of(message.get("content")).into();
        }
        for call in message.get_mut("tool_calls").and_then(Json::as_array_mut).into_iter().flatten() {
            let arguments =
                text(call, "/function/arguments").and_then(|text| serde_json::from_str(text).ok());
            if let Some(arguments) = arguments {
                call["function"]["arguments"] = arguments;
            }
        }
        message
    };
    messages.as_array().into_iter().flatten().map(flat).collect()
}

/// The text of a chat's message, or of a completion.
fn said(body: &Json) -> Option<&str> {
    text(body, "/message/content").or_else(|| text(body, "/response"))
}

fn tool_calls(body: &Json) -> Vec<Json> {
    let calls = body.pointer("/message/tool_calls").and_then(Json::as_array).into_iter().flatten();
    let converted = calls.enumerate().map(|(index, call)| {
        let name = text(call, "/function/name").unwrap_or_default();
        tool_call(&format!("call_{index}"), name, &call["function"]["arguments"])
    });
    converted.collect()
}

fn usage(body: &Json) -> Usage {
    Usage::read(Some(body), "prompt_eval_count", "eval_count")
}

/// Why it has ended. Old servers do not say so: then it is whether the response has as many tokens as it may have.
fn finish(body: &Json, call: &Call) -> String {
    if !tool_calls(body).is_empty() {
        return "tool_calls".to_owned();
    }
    let is_full = call.options.max_tokens.is_some_and(|max| body["eval_count"].as_i64() == Some(max));
    finish_reason(text(body, "/done_reason").unwrap_or(if is_full { "length" } else { "stop" }))
}

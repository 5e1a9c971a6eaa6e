//! Anthropic: the Messages API, and the older one for completions.

use super::super::prompts::{data_url, role_of, system_apart, text_of};
use super::super::reply::{Usage, finish_reason, tool_call};
use super::{
    Call, Dialect, Event, FAILED, Json, Object, Output, Prompts, Reply, Route, moved, no_such, read, stops,
    text,
};
use serde_json::json;

/// Anthropic's API.
pub(super) struct Anthropic;

/// What a response may have where neither request nor configuration say so: the API needs to know.
const MAX_TOKENS: u64 = 4096;

impl Dialect for Anthropic {
    fn default_url(&self, call: &Call) -> Result<String, String> {
        let path = match call.route {
            Route::Chat => "/v1/messages",
            Route::Completions => "/v1/complete",
            Route::Preserve => "/",
        };
        Ok(format!("https://api.anthropic.com:443{path}"))
    }

    fn headers(&self, call: &Call) -> Vec<(&'static str, String)> {
        let version = call.options.anthropic_version.clone();
        version.map(|version| ("anthropic-version", version)).into_iter().collect()
    }

    fn request(&self, prompts: Prompts, call: &Call) -> Result<Json, String> {
        let mut request = match call.route {
            Route::Completions => completion(prompts),
            _ => messages(prompts),
        };
        request.insert("model".to_owned(), call.model.as_str().into());
        request.insert("stream".to_owned(), call.streams.into());
        Ok(Json::Object(request))
    }

    fn response(&self, body: &Json, call: &Call) -> Result<Option<Reply>, String> {
        let reply = Reply {
            id: text(body, "/id").map(str::to_owned),
            model: text(body, "/model").map(str::to_owned),
            finish: text(body, "/stop_reason").map(finish_reason),
            usage: usage(body.get("usage")),
            ..Reply::default()
        };
        if call.route == Route::Completions {
            let missing = || no_such("'completion' not in anthropic://llm/v1/chat response", call);
            let said = text(body, "/completion").ok_or_else(missing)?.to_owned();
            return Ok(Some(Reply { texts: vec![said], ..reply }));
        }
        let missing = || no_such("'content' not in anthropic://llm/v1/chat response", call);
        let content = body.get("content").and_then(Json::as_array).ok_or_else(missing)?;
        let texts: Vec<_> = content.iter().filter_map(|block| text(block, "/text")).collect();
        let tool_calls = content.iter().filter(|block| block["type"] == "tool_use").map(|block| {
            let (id, name) = (text(block, "/id"), text(block, "/name"));
            tool_call(id.unwrap_or_default(), name.unwrap_or_default(), &block["input"])
        });
        let tool_calls = tool_calls.collect();
        Ok(Some(Reply { texts: vec![texts.join("\n")], tool_calls, ..reply }))
    }

    fn event(&self, event: &Event, call: &Call, out: &mut Output) -> Result<(), String> {
        let body = read(event)?;
        match text(&body, "/type").unwrap_or(&event.name) {
            "message_start" => {
                let message = &body["message"];
                out.id = text(message, "/id").map(str::to_owned);
                out.model = text(message, "/model").map(str::to_owned);
                out.usage.update(usage(message.get("usage")));
                out.begin(call);
            }
            "content_block_start" if body["content_block"]["type"] == "tool_use" => {
                let block = &body["content_block"];
                let function = json!({ "name": block["name"], "arguments": "" });
                let index = out.next_tool();
                let begun =
                    json!({ "index": index, "id": block["id"], "type": "function", "function": function });
                out.delta(call, json!({ "tool_calls": [begun] }), "");
            }
            "content_block_delta" => block_delta(&body, call, out),
            "message_delta" => {
                out.usage.update(usage(body.get("usage")));
                if let Some(reason) = text(&body, "/delta/stop_reason") {
                    out.finish(call, reason);
                }
            }
            "message_stop" => out.done(call),
            "completion" => {
                out.text(call, text(&body, "/completion").unwrap_or_default());
                if let Some(reason) = text(&body, "/stop_reason") {
                    out.finish(call, reason);
                    out.done(call);
                }
            }
            "error" => out.fail(text(&body, "/error/message").unwrap_or(FAILED)),
            _ => {}
        }
        Ok(())
    }
}

/// The tokens of a response. Those of the prompts that a cache holds are counted apart.
fn usage(counts: Option<&Json>) -> Usage {
    let mut usage = Usage::read(counts, "input_tokens", "output_tokens");
    let cached = Usage::read(counts, "cache_creation_input_tokens", "cache_read_input_tokens");
    let more = cached.prompt.unwrap_or(0).saturating_add(cached.completion.unwrap_or(0));
    usage.prompt = usage.prompt.map(|prompt| prompt.saturating_add(more));
    usage
}

/// Some of a block: of a text, of the arguments of a function, or of what precedes them.
fn block_delta(body: &Json, call: &Call, out: &mut Output) {
    if let Some(said) = text(body, "/delta/text") {
        out.text(call, said);
    } else if let Some(arguments) = text(body, "/delta/partial_json") {
        let part = json!({ "index": out.tool(), "function": { "arguments": arguments } });
        out.estimate(arguments);
        out.delta(call, json!({ "tool_calls": [part] }), "");
    } else if let Some(thought) = text(body, "/delta/thinking") {
        out.estimate(thought);
    }
}

/// A request to the Messages API.
fn messages(mut prompts: Prompts) -> Object {
    let all = prompts.messages().cloned().unwrap_or_default();
    let (system, others) = system_apart(&all);
    let body = &mut prompts.0;
    let names = [
        ("max_completion_tokens", "max_tokens"),
        ("max_tokens", "max_tokens"),
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("top_k", "top_k"),
        ("stop", "stop_sequences"),
    ];
    let mut request = moved(body, &names);
    request.entry("max_tokens").or_insert(MAX_TOKENS.into());
    if let Some(stop) = request.remove("stop_sequences") {
        request.insert("stop_sequences".to_owned(), stops(stop));
    }
    request.insert("messages".to_owned(), others.into_iter().map(message).collect());
    if let Some(system) = system {
        request.insert("system".to_owned(), system.into());
    }
    if let Some(tools) = body.get("tools").and_then(Json::as_array) {
        request.insert("tools".to_owned(), tools.iter().map(tool).collect());
    }
    if let Some(choice) = body.get("tool_choice") {
        request.insert("tool_choice".to_owned(), tool_choice(choice));
    }
    request
}

/// A request to the API for completions.
fn completion(mut prompts: Prompts) -> Object {
    let prompt = format!("\n\nHuman: {}\n\nAssistant:", prompts.prompt().unwrap_or_default());
    let names = [
        ("max_tokens", "max_tokens_to_sample"),
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("top_k", "top_k"),
    ];
    let mut request = moved(&mut prompts.0, &names);
    request.entry("max_tokens_to_sample").or_insert(MAX_TOKENS.into());
    request.insert("prompt".to_owned(), prompt.into());
    request
}

/// A message of the chat; results of functions come from the user.
fn message(message: &Json) -> Json {
    let role = role_of(message);
    if role == "tool" {
        let result = json!({
            "type": "tool_result",
            "tool_use_id": message["tool_call_id"],
            "content": text_of(message.get("content")),
        });
        return json!({ "role": "user", "content": [result] });
    }
    let calls: Vec<_> = message.get("tool_calls").and_then(Json::as_array).into_iter().flatten().collect();
    let content = match message.get("content") {
        Some(Json::Array(parts)) => parts.iter().map(part).collect(),
        Some(Json::String(text)) if calls.is_empty() => Json::String(text.clone()),
        Some(Json::String(text)) if !text.is_empty() => json!([{ "type": "text", "text": text }]),
        _ => json!([]),
    };
    let Json::Array(mut blocks) = content else { return json!({ "role": role, "content": content }) };
    blocks.extend(calls.into_iter().map(|call| {
        let arguments = text(call, "/function/arguments").unwrap_or("{}");
        let input: Json = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        json!({ "type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": input })
    }));
    json!({ "role": role, "content": blocks })
}

/// A part of a message: images differ.
fn part(part: &Json) -> Json {
    let Some(url) = text(part, "/image_url/url") else { return part.clone() };
    let source = match data_url(url) {
        Some((kind, data)) => json!({ "type": "base64", "media_type": kind, "data": data }),
        None => json!({ "type": "url", "url": url }),
    };
    json!({ "type": "image", "source": source })
}

fn tool(tool: &Json) -> Json {
    let function = &tool["function"];
    // OpenAI's functions without parameters may leave them out; Anthropic needs a schema.
    let schema = function.get("parameters").filter(|schema| schema.is_object()).cloned();
    let schema = schema.unwrap_or_else(|| json!({ "type": "object" }));
    let mut converted = json!({ "name": function["name"], "input_schema": schema });
    if let Some(description) = function.get("description") {
        converted["description"] = description.clone();
    }
    converted
}

fn tool_choice(choice: &Json) -> Json {
    match choice.as_str() {
        Some("required") => json!({ "type": "any" }),
        Some(kind) => json!({ "type": kind }),
        None => json!({ "type": "tool", "name": choice["function"]["name"] }),
    }
}

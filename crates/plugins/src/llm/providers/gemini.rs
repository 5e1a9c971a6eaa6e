//! Google's Gemini, at its own API or on Vertex AI.

use super::super::prompts::{data_url, role_of, system_apart, text_of};
use super::super::reply::{Usage, finish_reason, tool_call};
use super::{
    Call, Dialect, Event, Json, Object, Output, Prompts, Reply, Route, StreamFormat, error_of, in_url, moved,
    no_such, read, stops, text, unsupported,
};
use serde_json::json;

/// Gemini.
pub(super) struct Gemini;

impl Dialect for Gemini {
    fn default_url(&self, call: &Call) -> Result<String, String> {
        if call.route == Route::Completions {
            return Err(unsupported(call));
        }
        // Otherwise a stream is one array, whose end is known last.
        let operation = if call.streams { "streamGenerateContent?alt=sse" } else { "generateContent" };
        let model = in_url(&call.model, "name of the model")?;
        let vertex = call.options.gemini.as_ref();
        let parts = vertex
            .and_then(|of| of.api_endpoint.as_ref().zip(of.project_id.as_ref()).zip(of.location_id.as_ref()));
        Ok(match parts {
            Some(((host, project), location)) => format!(
                "https://{host}/v1/projects/{project}/locations/{location}/publishers/google/models/{model}:{operation}"
            ),
            None => format!("https://generativelanguage.googleapis.com/v1beta/models/{model}:{operation}"),
        })
    }

    fn request(&self, mut prompts: Prompts, call: &Call) -> Result<Json, String> {
        if call.route == Route::Completions {
            return Err(unsupported(call));
        }
        let messages = prompts.messages().cloned().unwrap_or_default();
        let (system, others) = system_apart(&messages);
        if system.is_some() && call.model.starts_with("gemini-1.0") {
            return Err("system prompts aren't supported on gemini-1.0 models".to_owned());
        }
        let contents = others.into_iter().map(content).collect::<Result<Vec<_>, _>>()?;
        let names = [
            ("max_completion_tokens", "maxOutputTokens"),
            ("max_tokens", "maxOutputTokens"),
            ("temperature", "temperature"),
            ("top_p", "topP"),
            ("top_k", "topK"),
            ("stop", "stopSequences"),
        ];
        let mut options = moved(&mut prompts.0, &names);
        if let Some(stop) = options.remove("stopSequences") {
            options.insert("stopSequences".to_owned(), stops(stop));
        }
        let mut request = Object::new();
        request.insert("contents".to_owned(), contents.into());
        request.insert("generationConfig".to_owned(), options.into());
        if let Some(system) = system {
            request.insert("systemInstruction".to_owned(), json!({ "parts": [{ "text": system }] }));
        }
        let tools = prompts.0.get("tools").and_then(Json::as_array);
        if let Some(tools) = tools.filter(|tools| !tools.is_empty()) {
            let functions: Vec<_> =
                tools.iter().filter_map(|tool| declaration(tool.get("function")?)).collect();
            request.insert("tools".to_owned(), json!([{ "functionDeclarations": functions }]));
        }
        Ok(Json::Object(request))
    }

    fn response(&self, body: &Json, call: &Call) -> Result<Option<Reply>, String> {
        let none = "no generation candidates received from Gemini, or max_tokens too short";
        let candidate = body.pointer("/candidates/0").ok_or_else(|| no_such(none, call))?;
        let tool_calls = tool_calls(candidate);
        let finish = match tool_calls.is_empty() {
            true => text(candidate, "/finishReason").map(finish_reason),
            false => Some("tool_calls".to_owned()),
        };
        let texts = vec![said(candidate)];
        Ok(Some(Reply { texts, tool_calls, finish, usage: usage(body), ..Reply::default() }))
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
        out.usage.update(usage(&event));
        if let Some(reason) = text(&event, "/promptFeedback/blockReason") {
            out.refusal = Some(format!("the prompt is blocked: {reason}"));
        }
        let Some(candidate) = event.pointer("/candidates/0") else { return Ok(()) };
        let said = said(candidate);
        if !said.is_empty() {
            out.text(call, &said);
        }
        out.tool_calls(call, tool_calls(candidate));
        if let Some(reason) = text(candidate, "/finishReason") {
            out.finish(call, reason);
        }
        Ok(())
    }
}

/// A message of the chat: its role, and its parts.
fn content(message: &Json) -> Result<Json, String> {
    let role = role_of(message);
    if role == "tool" {
        let name = text(message, "/name").or_else(|| text(message, "/tool_call_id")).unwrap_or_default();
        let result = json!({ "content": text_of(message.get("content")) });
        return Ok(json!({
            "role": "user",
            "parts": [{ "functionResponse": { "name": name, "response": result } }],
        }));
    }
    let mut parts = match message.get("content") {
        Some(Json::Array(parts)) => parts.iter().map(part).collect::<Result<Vec<_>, _>>()?,
        content => match text_of(content) {
            text if text.is_empty() => Vec::new(),
            text => vec![json!({ "text": text })],
        },
    };
    for call in message.get("tool_calls").and_then(Json::as_array).into_iter().flatten() {
        let arguments = text(call, "/function/arguments").unwrap_or("{}");
        let args: Json = serde_json::from_str(arguments).unwrap_or_default();
        parts.push(json!({ "functionCall": { "name": call["function"]["name"], "args": args } }));
    }
    let role = if role == "assistant" { "model" } else { "user" };
    Ok(json!({ "role": role, "parts": parts }))
}

/// A function, by the members that Google knows: it refuses others, such as `strict`.
fn declaration(function: &Json) -> Option<Json> {
    let known = |name: &&String| ["name", "description", "parameters"].contains(&name.as_str());
    let members = function.as_object()?.iter().filter(|(name, _)| known(name));
    Some(Json::Object(members.map(|(name, value)| (name.clone(), value.clone())).collect()))
}

/// A part of a message.
fn part(part: &Json) -> Result<Json, String> {
    match text(part, "/type") {
        Some("text") => Ok(json!({ "text": text(part, "/text").unwrap_or_default() })),
        Some("image_url") => {
            let url = text(part, "/image_url/url")
                .ok_or("message part type is 'image_url' but is missing .image_url.url block")?;
            Ok(match data_url(url) {
                Some((kind, data)) => json!({ "inlineData": { "mimeType": kind, "data": data } }),
                None => json!({ "fileData": { "mimeType": "image/generic", "fileUri": url } }),
            })
        }
        kind => Err(format!("cannot transform part of type '{}' to Gemini format", kind.unwrap_or("nil"))),
    }
}

fn parts(candidate: &Json) -> impl Iterator<Item = &Json> {
    candidate.pointer("/content/parts").and_then(Json::as_array).into_iter().flatten()
}

/// The texts of a candidate, without its thoughts.
fn said(candidate: &Json) -> String {
    parts(candidate).filter(|part| part["thought"] != true).filter_map(|part| text(part, "/text")).collect()
}

fn tool_calls(candidate: &Json) -> Vec<Json> {
    let calls = parts(candidate).filter_map(|part| part.get("functionCall"));
    let converted = calls.enumerate().map(|(index, call)| {
        tool_call(&format!("call_{index}"), text(call, "/name").unwrap_or_default(), &call["args"])
    });
    converted.collect()
}

fn usage(body: &Json) -> Usage {
    let counts = body.get("usageMetadata");
    let usage = Usage::read(counts, "promptTokenCount", "candidatesTokenCount");
    Usage { total: counts.and_then(|counts| counts.get("totalTokenCount")?.as_u64()), ..usage }
}

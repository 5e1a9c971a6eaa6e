//! Amazon Bedrock, by its Converse API.

use super::super::prompts::{role_of, system_apart, text_of};
use super::super::reply::{Usage, finish_reason};
use super::{
    Call, Dialect, Event, Json, Object, Output, Prompts, Reply, Route, StreamFormat, in_url, moved, no_such,
    read, stops, text, unsupported,
};
use serde_json::json;

/// Amazon Bedrock.
pub(super) struct Bedrock;

impl Dialect for Bedrock {
    fn default_url(&self, call: &Call) -> Result<String, String> {
        let region = self.region(call).ok_or("AWS region not specified anywhere")?;
        let operation = if call.streams { "converse-stream" } else { "converse" };
        let model = in_url(&call.model, "name of the model")?;
        Ok(format!("https://bedrock-runtime.{region}.amazonaws.com/model/{model}/{operation}"))
    }

    fn region(&self, call: &Call) -> Option<String> {
        let configured = call.options.bedrock.as_ref().and_then(|of| of.aws_region.clone());
        configured
            .or_else(|| ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().find_map(|name| std::env::var(name).ok()))
    }

    fn request(&self, mut prompts: Prompts, call: &Call) -> Result<Json, String> {
        if call.route == Route::Completions {
            return Err(unsupported(call));
        }
        let messages = prompts.messages().cloned().unwrap_or_default();
        let (system, others) = system_apart(&messages);
        let names = [
            ("max_completion_tokens", "maxTokens"),
            ("max_tokens", "maxTokens"),
            ("temperature", "temperature"),
            ("top_p", "topP"),
            ("stop", "stopSequences"),
        ];
        let mut options = moved(&mut prompts.0, &names);
        if let Some(stop) = options.remove("stopSequences") {
            options.insert("stopSequences".to_owned(), stops(stop));
        }
        let mut request = Object::new();
        request.insert("messages".to_owned(), others.into_iter().map(content).collect());
        request.insert("inferenceConfig".to_owned(), options.into());
        if let Some(system) = system {
            request.insert("system".to_owned(), json!([{ "text": system }]));
        }
        Ok(Json::Object(request))
    }

    fn response(&self, body: &Json, call: &Call) -> Result<Option<Reply>, String> {
        let none = "no generation candidates received from Bedrock, or max_tokens too short";
        let content = body.pointer("/output/message/content").and_then(Json::as_array);
        let content = content.ok_or_else(|| no_such(none, call))?;
        let texts = vec![content.iter().filter_map(|part| text(part, "/text")).collect()];
        let finish = text(body, "/stopReason").map(finish_reason);
        Ok(Some(Reply { texts, finish, usage: usage(body), ..Reply::default() }))
    }

    fn stream_formats(&self) -> &'static [StreamFormat] {
        &[StreamFormat::Aws]
    }

    fn event(&self, event: &Event, call: &Call, out: &mut Output) -> Result<(), String> {
        let body = read(event)?;
        match event.name.as_str() {
            "messageStart" => out.begin(call),
            "contentBlockDelta" => {
                if let Some(said) = text(&body, "/delta/text") {
                    out.text(call, said);
                }
            }
            "messageStop" => out.finish(call, text(&body, "/stopReason").unwrap_or("stop")),
            "metadata" => out.usage.update(usage(&body)),
            name if name.ends_with("Exception") => {
                out.fail(text(&body, "/message").unwrap_or(name));
            }
            _ => {}
        }
        Ok(())
    }
}

/// A message of the chat.
fn content(message: &Json) -> Json {
    let role = if role_of(message) == "assistant" { "assistant" } else { "user" };
    json!({ "role": role, "content": [{ "text": text_of(message.get("content")) }] })
}

fn usage(body: &Json) -> Usage {
    let counts = body.get("usage");
    let usage = Usage::read(counts, "inputTokens", "outputTokens");
    Usage { total: counts.and_then(|counts| counts.get("totalTokens")?.as_u64()), ..usage }
}

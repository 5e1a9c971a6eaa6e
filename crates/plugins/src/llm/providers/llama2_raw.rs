//! Servers of Llama 2 that take its prompt format as it is.

use super::super::prompts::{role_of, text_of};
use super::super::reply::Usage;
use super::{Call, Dialect, Event, Json, Output, Prompts, Reply, Route, no_such};
use serde_json::json;
use std::fmt::Write;

/// Llama 2's prompt format.
pub(super) struct Llama2Raw;

impl Dialect for Llama2Raw {
    fn default_url(&self, _: &Call) -> Result<String, String> {
        Err("model.options.upstream_url must be set for the raw format".to_owned())
    }

    fn request(&self, prompts: Prompts, call: &Call) -> Result<Json, String> {
        if call.streams {
            return Err(format!(
                "no transformer available from format llama2://stream/{}/raw",
                call.route.name()
            ));
        }
        let inputs = match call.route {
            Route::Completions => {
                let prompt = prompts.prompt().unwrap_or_default();
                format!("<s>[INST] <<SYS>>\nYou are a helpful assistant.\n<</SYS>>\n\n{prompt} [/INST]")
            }
            _ => instructions(prompts.messages().map(Vec::as_slice).unwrap_or_default()),
        };
        let body = &prompts.0;
        let parameters = json!({
            "max_new_tokens": body.get("max_tokens"),
            "temperature": body.get("temperature"),
            "top_p": body.get("top_p").cloned().unwrap_or(1.0.into()),
            "top_k": body.get("top_k").cloned().unwrap_or(40.into()),
        });
        Ok(json!({ "inputs": inputs, "parameters": parameters }))
    }

    fn response(&self, body: &Json, call: &Call) -> Result<Option<Reply>, String> {
        let list = body.get("data").unwrap_or(body).as_array();
        let generated = match list.map(Vec::as_slice) {
            Some([only]) => only.get("generated_text").and_then(Json::as_str),
            Some(_) | None => return Err(no_such("cannot parse response from llama2 endpoint", call)),
        };
        let generated =
            generated.ok_or_else(|| no_such("response data is empty from llama2 endpoint", call))?;
        let answer = generated.rsplit("[/INST]").next().unwrap_or_default().trim();
        let usage = Usage::of_openai(body.get("usage"));
        let finish = Some("stop".to_owned());
        Ok(Some(Reply { texts: vec![answer.to_owned()], finish, usage, ..Reply::default() }))
    }

    fn event(&self, _: &Event, _: &Call, _: &mut Output) -> Result<(), String> {
        Err("the raw format has no streams".to_owned())
    }
}

/// A chat in Llama 2's format: the system's text stands within the first instruction, answers follow instructions.
fn instructions(messages: &[Json]) -> String {
    let mut out = String::new();
    let mut system = String::new();
    for message in messages {
        let text = text_of(message.get("content"));
        // Writing to a string cannot fail.
        let _ = match role_of(message) {
            "system" => {
                system = format!("<<SYS>>\n{text}\n<</SYS>>\n\n");
                Ok(())
            }
            "assistant" => write!(out, " {text} </s>"),
            _ => write!(out, "<s>[INST] {}{text} [/INST]", std::mem::take(&mut system)),
        };
    }
    out
}

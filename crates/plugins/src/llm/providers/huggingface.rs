//! Hugging Face's inference API: chats in OpenAI's form, completions in that of text generation.

use super::super::reply::{Usage, finish_reason};
use super::{
    Call, Dialect, Event, Json, Output, Prompts, Reply, Route, error_of, in_url, moved, no_such, openai,
    read, text,
};
use serde_json::json;

/// Hugging Face's inference API.
pub(super) struct HuggingFace;

impl Dialect for HuggingFace {
    fn default_url(&self, call: &Call) -> Result<String, String> {
        let model = in_url(&call.model, "name of the model")?;
        Ok(format!("https://api-inference.huggingface.co/models/{model}"))
    }

    fn url(&self, call: &Call) -> Result<String, String> {
        let base = call.options.upstream_url.clone().map_or_else(|| self.default_url(call), Ok)?;
        let base = base.trim_end_matches('/');
        Ok(if call.route == Route::Completions {
            base.to_owned()
        } else {
            format!("{base}/v1/chat/completions")
        })
    }

    fn request(&self, mut prompts: Prompts, call: &Call) -> Result<Json, String> {
        let configured = call.options.huggingface.as_ref();
        let flag = |get: fn(&super::super::config::HuggingFace) -> Option<bool>| {
            configured.and_then(get).unwrap_or(false)
        };
        let options =
            json!({ "use_cache": flag(|of| of.use_cache), "wait_for_model": flag(|of| of.wait_for_model) });
        if call.route == Route::Chat {
            let mut request = openai::request(prompts, call);
            request["options"] = options;
            return Ok(request);
        }
        let names = [
            ("max_tokens", "max_new_tokens"),
            ("temperature", "temperature"),
            ("top_p", "top_p"),
            ("top_k", "top_k"),
            ("stop", "stop"),
            ("seed", "seed"),
        ];
        let parameters = moved(&mut prompts.0, &names);
        let inputs = prompts.prompt().unwrap_or_default();
        Ok(json!({ "inputs": inputs, "parameters": parameters, "options": options, "stream": call.streams }))
    }

    fn response(&self, body: &Json, call: &Call) -> Result<Option<Reply>, String> {
        if let Some(error) = text(body, "/error").or_else(|| text(body, "/message")) {
            return Err(no_such(&format!("API error: {error}"), call));
        }
        if body.get("choices").is_some() {
            return Ok(None);
        }
        let generated = text(body, "/0/generated_text").or_else(|| text(body, "/generated_text"));
        let generated = generated.ok_or_else(|| no_such("Invalid response format", call))?;
        let finish = Some("stop".to_owned());
        Ok(Some(Reply { texts: vec![generated.to_owned()], finish, ..Reply::default() }))
    }

    fn event(&self, event: &Event, call: &Call, out: &mut Output) -> Result<(), String> {
        let parsed = read(event)?;
        if parsed.get("choices").is_some() {
            return openai::same(event, call, out);
        }
        if let Some(error) = error_of(&parsed) {
            out.fail(error);
            return Ok(());
        }
        if parsed.pointer("/token/special") != Some(&Json::Bool(true))
            && let Some(token) = text(&parsed, "/token/text")
        {
            out.text(call, token);
        }
        if let Some(details) = parsed.get("details").filter(|details| !details.is_null()) {
            out.usage.update(Usage::read(Some(details), "prompt_tokens", "generated_tokens"));
            out.finish(call, &finish_reason(text(details, "/finish_reason").unwrap_or("stop")));
        }
        Ok(())
    }
}

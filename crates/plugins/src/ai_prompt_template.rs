//! Replaces requests for a large language model by templates, so that clients fill in values alone.
//!
//! ```yaml
//! plugins:
//!   - name: ai-prompt-template
//!     route: chat
//!     config:
//!       allow_untemplated_requests: false
//!       templates:
//!         - name: python
//!           template: |
//!             {"messages": [
//!               {"role": "system", "content": "You are a {{language}} developer."},
//!               {"role": "user", "content": "Write a program that {{purpose}}."}]}
//! ```
//!
//! `curl localhost:8000/chat --json '{"messages": "{template://python}", "properties": {"language": "Python", "purpose": "sorts names"}}'`
//!
//! The template takes the place of the whole body. Values are escaped, so that they cannot end the text that they stand in. Names
//! consist of letters, digits and `_`. In a value, `{{name}}` means nothing; Kong takes it for a missing parameter.
//!
//! With `by_template_name`, as in [APISIX's objects](../coming-from-apisix.md), a request is
//! `{"template_name": "python", "language": "Python", "purpose": "sorts names"}` instead.
//!
//! With `log_original_request`, records of log plugins have the client's body as `ai.payload.original_request`.
//!
//! ## Responses
//!
//! | status | `error.message` | when |
//! |---|---|---|
//! | 400 | `this LLM route only supports application/json requests` | the body is no JSON, or longer than `max_request_body_size` (or 1 MiB, or `client_body_buffer_size`), which the message names then |
//! | 400 | `cannot run 'messages' and 'prompt' templates at the same time` | it has both |
//! | 400 | `only 'llm/v1/chat' and 'llm/v1/completions' formats are supported for templating` | it has neither |
//! | 400 | `this LLM route only supports templated requests`, `template name is missing in request.` | `allow_untemplated_requests` is false, and it names no template |
//! | 400 | `could not find template name […]`, `template: … not configured.` | there is no such template |
//! | 400 | `properties must be an object`, `property values must be a string, got …` | the values are no texts |
//! | 400 | `missing template parameters: […]` | a value is missing |

use crate::llm::{LlmError, Object, Prompts, log_field};
use weir_plugin::{BuildContext, Exchange, Flow, Hooks, Json, Phases, Plugin, Record, WantsBody};

/// The templates.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The templates.
    pub templates: Vec<Template>,
    /// Lets requests pass that name no template.
    #[field(default = true)]
    pub allow_untemplated_requests: bool,
    /// Logs the client's body.
    #[field(default = false)]
    pub log_original_request: bool,
    /// The longest body of a request, in bytes; 0 for no limit.
    #[field(nullable, default = 8192, gt = -1)]
    pub max_request_body_size: i64,
    /// Requests name a template as APISIX's plugin of this name has it: by `template_name`, with the values beside it.
    #[field(default = false, extension)]
    pub by_template_name: bool,
}

/// A template.
#[derive(Debug, Clone, Record)]
pub(super) struct Template {
    /// What requests name it by.
    pub name: String,
    /// The body, with `{{name}}` in the place of values.
    pub template: String,
}

/// One configured instance.
pub(super) struct AiPromptTemplate(Config);

impl Plugin for AiPromptTemplate {
    const NAME: &'static str = "ai-prompt-template";
    const PRIORITY: i32 = 773;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self(config))
    }
}

impl Hooks for AiPromptTemplate {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn wants_body(&self) -> WantsBody {
        WantsBody::Yes
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if self.0.log_original_request {
            let body = String::from_utf8_lossy(exchange.body().unwrap_or_default()).into_owned();
            log_field(exchange, "ai.payload.original_request", body.into());
        }
        let max = usize::try_from(self.0.max_request_body_size).unwrap_or(0);
        let body = Prompts::of(exchange, max).map_err(LlmError::no_json);
        match body.and_then(|body| self.fill_in(&body)) {
            Ok(None) => Flow::Continue,
            Ok(Some(filled)) => {
                exchange.set_body(filled.into_bytes());
                Flow::Continue
            }
            Err(error) => Flow::Respond(error.response()),
        }
    }
}

impl AiPromptTemplate {
    /// The template that the body names, with its values; none if it names none and need not.
    fn fill_in(&self, body: &Object) -> Result<Option<String>, LlmError> {
        if self.0.by_template_name {
            return self.fill_in_named(body);
        }
        let error = |message: &str| LlmError::Request(message.to_owned());
        let member = |name| body.get(name).filter(|value| !value.is_null());
        let named = match (member("messages"), member("prompt")) {
            (Some(_), Some(_)) => {
                return Err(error("cannot run 'messages' and 'prompt' templates at the same time"));
            }
            (Some(named), None) | (None, Some(named)) => named.as_str(),
            (None, None) => {
                let formats =
                    "only 'llm/v1/chat' and 'llm/v1/completions' formats are supported for templating";
                return Err(error(formats));
            }
        };
        let name = named.and_then(|text| text.strip_prefix("{template://")?.strip_suffix('}'));
        let Some(name) = name else {
            let refused = error("this LLM route only supports templated requests");
            return if self.0.allow_untemplated_requests { Ok(None) } else { Err(refused) };
        };
        let template = self.0.templates.iter().find(|template| template.name == name);
        let template = template.ok_or_else(|| error(&format!("could not find template name [{name}]")))?;
        let values = values(body.get("properties")).map_err(LlmError::Request)?;
        filled(&template.template, &values).map(Some).map_err(LlmError::Request)
    }
}

impl AiPromptTemplate {
    /// The template that `template_name` names, with the members beside it as its values.
    fn fill_in_named(&self, body: &Object) -> Result<Option<String>, LlmError> {
        let error = |message: &str| LlmError::Request(message.to_owned());
        let Some(name) = body.get("template_name").and_then(Json::as_str) else {
            let refused = error("template name is missing in request.");
            return if self.0.allow_untemplated_requests { Ok(None) } else { Err(refused) };
        };
        let template = self.0.templates.iter().find(|template| template.name == name);
        let template = template.ok_or_else(|| error(&format!("template: {name} not configured.")))?;
        let text = |value: &Json| match value {
            Json::String(_) => escaped(value),
            other => escaped(&other.to_string().into()),
        };
        let values = body.iter().map(|(name, value)| Ok((name.as_str(), text(value)?)));
        let values = values.collect::<Result<Vec<_>, String>>().map_err(LlmError::Request)?;
        filled(&template.template, &values).map(Some).map_err(LlmError::Request)
    }
}

/// The values, each escaped to stand within a JSON text.
fn values(properties: Option<&Json>) -> Result<Vec<(&str, String)>, String> {
    let object = match properties {
        None | Some(Json::Null) => return Ok(Vec::new()),
        Some(Json::Array(list)) if list.is_empty() => return Ok(Vec::new()),
        Some(Json::Object(object)) => object,
        Some(_) => return Err("properties must be an object".to_owned()),
    };
    object.iter().map(|(name, value)| escaped(value).map(|value| (name.as_str(), value))).collect()
}

fn escaped(value: &Json) -> Result<String, String> {
    // Lua's names of types, as Kong has them.
    let kind = match value {
        Json::String(_) => {
            let quoted = value.to_string();
            return Ok(quoted[1..quoted.len() - 1].to_owned());
        }
        Json::Number(_) => "number",
        Json::Bool(_) => "boolean",
        Json::Null => "userdata",
        Json::Array(_) | Json::Object(_) => "table",
    };
    Err(format!("property values must be a string, got {kind}"))
}

/// The template with the values in the place of their names.
fn filled(template: &str, values: &[(&str, String)]) -> Result<String, String> {
    let (mut out, mut rest) = (String::with_capacity(template.len()), template);
    let mut missing: Vec<&str> = Vec::new();
    while let Some((before, behind)) = rest.split_once("{{") {
        out.push_str(before);
        let end = behind.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(behind.len());
        let (name, after) = behind.split_at(end);
        let Some(after) = after.strip_prefix("}}").filter(|_| !name.is_empty()) else {
            // The second brace may begin a name, as in `{{{name}}`.
            out.push('{');
            rest = &rest[before.len() + 1..];
            continue;
        };
        match values.iter().find(|(known, _)| *known == name) {
            Some((_, value)) => out.push_str(value),
            None if !missing.contains(&name) => missing.push(name),
            None => {}
        }
        rest = after;
    }
    if !missing.is_empty() {
        return Err(format!("missing template parameters: [{}]", missing.join("], [")));
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::filled;

    #[test]
    fn names_are_replaced_by_values_that_are_not_read_again() {
        let values = [("a_1", "x {{b}}".to_owned()), ("b", "\\\"".to_owned())];
        for (template, expected) in [
            ("{{a_1}}{{b}}.", Ok("x {{b}}\\\".")),
            ("{{{b}}} {{ b }} {{}} {{b} {{", Ok("{\\\"} {{ b }} {{}} {{b} {{")),
            ("{\"a\":{\"b\":\"{{b}}\"}}", Ok("{\"a\":{\"b\":\"\\\"\"}}")),
            ("{{x}} {{y}} {{x}}", Err("missing template parameters: [x], [y]")),
        ] {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(filled(template, &values), expected, "{template}");
        }
    }
}

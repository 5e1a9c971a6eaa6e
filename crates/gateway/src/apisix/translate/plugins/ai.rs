//! Plugins of APISIX for large language models whose fields have other names in Weir's plugins.
use super::adapted::Adapted;
use crate::apisix::object::Invalid;
use crate::apisix::translate::schema::Plugins;
use serde_json::json;
use weir_model::schema::{FieldError, Json, Record};

/// Adds messages to chats.
#[derive(Clone, Record)]
#[record(check = adds_something)]
pub(super) struct PromptDecorator {
    #[field(len_min = 1)]
    prepend: Option<Vec<Message>>,
    #[field(len_min = 1)]
    append: Option<Vec<Message>>,
}

/// A message of a chat.
#[derive(Clone, Record)]
struct Message {
    #[field(one_of = ["system", "user", "assistant"])]
    role: String,
    content: String,
}

fn adds_something(config: &PromptDecorator) -> Vec<FieldError> {
    let adds = config.prepend.is_some() || config.append.is_some();
    if adds { Vec::new() } else { vec![FieldError::new("", "set `prepend` or `append`")] }
}

impl Adapted for PromptDecorator {
    fn ours(&self, _: &Json) -> Result<Json, Invalid> {
        let messages =
            |of: &Option<Vec<Message>>| of.as_ref().map(|of| of.iter().map(message).collect::<Json>());
        Ok(json!({
            "prompts": { "prepend": messages(&self.prepend), "append": messages(&self.append) },
            "max_request_body_size": 0,
        }))
    }
}

fn message(Message { role, content }: &Message) -> Json {
    json!({ "role": role, "content": content })
}

/// Refuses chats by what they say.
#[derive(Clone, Record)]
#[record(check = may_match)]
pub(super) struct PromptGuard {
    #[field(default = false)]
    match_all_roles: bool,
    #[field(default = false)]
    match_all_conversation_history: bool,
    #[field(default = [])]
    allow_patterns: Vec<String>,
    #[field(default = [])]
    deny_patterns: Vec<String>,
}

fn may_match(config: &PromptGuard) -> Vec<FieldError> {
    let mut found = Vec::new();
    if config.allow_patterns.is_empty() && config.deny_patterns.is_empty() {
        found.push(FieldError::new("", "set `allow_patterns` or `deny_patterns`"));
    }
    if config.match_all_roles && !config.match_all_conversation_history {
        let message =
            "of the latest message alone, all roles cannot be matched here; set it with `match_all_roles`";
        found.push(FieldError::new("match_all_conversation_history", message));
    }
    found
}

impl Adapted for PromptGuard {
    fn ours(&self, _: &Json) -> Result<Json, Invalid> {
        Ok(json!({
            "allow_patterns": self.allow_patterns,
            "deny_patterns": self.deny_patterns,
            "match_all_roles": self.match_all_roles,
            "allow_all_conversation_history": !self.match_all_conversation_history,
            "max_request_body_size": 0,
        }))
    }
}

/// Fills templates in.
#[derive(Clone, Record)]
pub(super) struct PromptTemplate {
    #[field(len_min = 1)]
    templates: Vec<Template>,
}

/// A template: a chat, with `{{name}}` in the place of values.
#[derive(Clone, Record)]
struct Template {
    name: String,
    template: Json,
}

impl Adapted for PromptTemplate {
    fn ours(&self, _: &Json) -> Result<Json, Invalid> {
        let template = |of: &Template| json!({ "name": of.name, "template": of.template.to_string() });
        Ok(json!({
            "templates": self.templates.iter().map(template).collect::<Json>(),
            "by_template_name": true,
            "allow_untemplated_requests": false,
            "max_request_body_size": 0,
        }))
    }
}

/// Sends requests to a model: the only instance of ours.
#[derive(Clone, Record)]
pub(super) struct Proxy {
    provider: String,
    provider_conf: Option<Json>,
    auth: Json,
    options: Option<Json>,
    r#override: Option<Json>,
    logging: Option<Json>,
    #[field(default = 30000, between = [1, 600000])]
    timeout: u32,
    #[field(default = true)]
    ssl_verify: bool,
    #[field(default = true)]
    keepalive: bool,
    #[field(default = 60000, between = [1000, 2147483646])]
    keepalive_timeout: u32,
    #[field(default = 30, between = [1, 2147483646])]
    keepalive_pool: u32,
}

impl Adapted for Proxy {
    fn ours(&self, _: &Json) -> Result<Json, Invalid> {
        let instance = json!({
            "name": format!("ai-proxy-{}", self.provider),
            "provider": self.provider,
            "provider_conf": self.provider_conf,
            "auth": self.auth,
            "options": self.options,
            "override": self.r#override,
        });
        let mut ours = json!({ "instances": [instance], "timeout": self.timeout });
        if let Some(logging) = &self.logging {
            ours["logging"] = logging.clone();
        }
        Ok(ours)
    }
}

/// Whether a provider is to be asked in the place of an upstream, and whether its certificate is to be verified.
pub(in crate::apisix::translate) fn provider(set: &Plugins) -> Option<bool> {
    let enabled = |name| set.get(name).filter(|config| config["_meta"]["disable"] != true);
    let config = enabled("ai-proxy-multi").or_else(|| enabled("ai-proxy"))?;
    Some(config["ssl_verify"] != false)
}

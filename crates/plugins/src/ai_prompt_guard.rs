//! Refuses requests for a large language model by what their prompts say.
//!
//! ```yaml
//! plugins:
//!   - name: ai-prompt-guard
//!     route: chat
//!     config:
//!       deny_patterns: ["(?i)password", "(?i)credit card"]
//!       allow_patterns: ["(?i)bicycle"]
//! ```
//!
//! A request passes if no pattern of `deny_patterns` is found in its prompt, and one of `allow_patterns` is, where there are any.
//! The prompt is `prompt`, or what the user has said in `messages`, the latest first; with `match_all_roles` what everybody has,
//! with `allow_all_conversation_history` the latest alone. Other requests get 400 with the message `bad request`.
//!
//! Patterns are regexes of Perl's kind, and their case counts. One that takes too long for a prompt refuses the request with 500.
//! With an `llm_format` of `gemini` or `bedrock`, requests are in the form of that provider.

use crate::llm::{Format, LlmError, Object, Prompts};
use fancy_regex::Regex;
use weir_plugin::{
    BuildContext, Exchange, FieldError, Flow, Hooks, Json, LocalResponse, Phases, Plugin, Record, WantsBody,
};

/// Roles whose messages are no prompts of the user. Providers take a role that they do not know for the user's.
const OTHER_ROLES: [&str; 6] = ["system", "developer", "assistant", "model", "tool", "function"];

/// What prompts may say.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// Patterns, one of which must be found.
    #[field(len_max = 10, check = pattern)]
    pub allow_patterns: Option<Vec<String>>,
    /// Patterns, none of which may be found.
    #[field(len_max = 10, check = pattern)]
    pub deny_patterns: Option<Vec<String>>,
    /// Looks at the latest message alone.
    #[field(default = false)]
    pub allow_all_conversation_history: bool,
    /// Looks at the messages of all, not at the user's alone.
    #[field(default = false)]
    pub match_all_roles: bool,
    /// The longest body of a request, in bytes; 0 for no limit.
    #[field(nullable, default = 8192, gt = -1)]
    pub max_request_body_size: i64,
    /// The form of requests: OpenAI's, or that of the provider.
    #[field(nullable, default = "openai", one_of = ["openai", "bedrock", "gemini"])]
    pub llm_format: String,
}

fn pattern(text: &str) -> Result<(), String> {
    if text.is_empty() || text.chars().count() > 500 {
        return Err("expected a pattern of 1 to 500 characters".to_owned());
    }
    Regex::new(text).map(drop).map_err(|error| format!("{text:?} is no regex: {error}"))
}

fn violations(config: &Config) -> Vec<FieldError> {
    let mut found = Vec::new();
    let is_empty = |list: &Option<Vec<String>>| list.as_ref().is_none_or(Vec::is_empty);
    if is_empty(&config.allow_patterns) && is_empty(&config.deny_patterns) {
        let message = "at least one of these fields must be non-empty: 'allow_patterns', 'deny_patterns'";
        found.push(FieldError::new("", message));
    }
    if config.match_all_roles && config.allow_all_conversation_history {
        let message = "allow_all_conversation_history needs to be false when match_all_roles is set to true";
        found.push(FieldError::new("allow_all_conversation_history", message));
    }
    found
}

/// One configured instance.
pub(super) struct AiPromptGuard {
    config: Config,
    format: Format,
    allow: Vec<Regex>,
    deny: Vec<Regex>,
}

impl Plugin for AiPromptGuard {
    const NAME: &'static str = "ai-prompt-guard";
    const PRIORITY: i32 = 771;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let regexes = |patterns: &Option<Vec<String>>| {
            let compiled = patterns.iter().flatten().map(|pattern| Regex::new(pattern));
            compiled.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())
        };
        let (allow, deny) = (regexes(&config.allow_patterns)?, regexes(&config.deny_patterns)?);
        Ok(Self { format: Format::named(&config.llm_format), allow, deny, config })
    }
}

impl Hooks for AiPromptGuard {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn wants_body(&self) -> WantsBody {
        WantsBody::Yes
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let max = usize::try_from(self.config.max_request_body_size).unwrap_or(0);
        let body = match Prompts::of(exchange, max) {
            Ok(body) => body,
            Err(why) => return Flow::Respond(LlmError::no_json(why).response()),
        };
        match self.prompt(&body).map_or(Ok(false), |prompt| self.may_pass(&prompt)) {
            Ok(true) => Flow::Continue,
            // Clients do not see what guards the model.
            Ok(false) => Flow::Respond(LlmError::Request("bad request".to_owned()).response()),
            Err(error) => {
                tracing::error!(request_id = exchange.id(), "ai-prompt-guard: a pattern failed: {error}");
                Flow::Respond(LocalResponse::error(500, "An unexpected error occurred"))
            }
        }
    }
}

impl AiPromptGuard {
    fn may_pass(&self, prompt: &str) -> Result<bool, Box<fancy_regex::Error>> {
        let is_any = |patterns: &[Regex]| -> Result<bool, Box<fancy_regex::Error>> {
            for pattern in patterns {
                if pattern.is_match(prompt)? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        Ok(!is_any(&self.deny)? && (self.allow.is_empty() || is_any(&self.allow)?))
    }

    /// What the patterns are looked for in; none if it cannot be read.
    fn prompt(&self, body: &Object) -> Option<String> {
        let Some(turns) = self.format.turns(body) else {
            return body.get("prompt")?.as_str().map(str::to_owned);
        };
        let mut prompt = String::new();
        for turn in turns.iter().rev() {
            if !self.config.match_all_roles
                && turn.get("role").and_then(Json::as_str).is_some_and(|role| OTHER_ROLES.contains(&role))
            {
                continue;
            }
            let (_, text) = self.format.read(turn)?;
            prompt.push_str(&text);
            if self.config.allow_all_conversation_history {
                break;
            }
            prompt.push(' ');
        }
        Some(prompt)
    }
}

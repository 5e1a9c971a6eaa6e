//! Adds messages before and behind those of a chat, for a large language model.
//!
//! ```yaml
//! plugins:
//!   - name: ai-prompt-decorator
//!     route: chat
//!     config:
//!       prompts:
//!         prepend:
//!           - {role: system, content: "You answer questions about our bicycles, and nothing else."}
//!         append:
//!           - {role: user, content: Answer in at most three sentences.}
//! ```
//!
//! The plugin runs before [ai-proxy](ai-proxy.md). With an `llm_format` of `gemini` or `bedrock`, requests are in the form of
//! that provider: texts of `system` go to its instructions, behind those of the client.
//!
//! ## Responses
//!
//! | status | `error.message` | when |
//! |---|---|---|
//! | 400 | `this LLM route only supports application/json requests` | the body is no JSON, or longer than `max_request_body_size` (or 1 MiB, or `client_body_buffer_size`), which the message names then |
//! | 400 | `this LLM route only supports llm/chat type requests` | it has no `messages` |

use crate::llm::{Format, LlmError, Prompts};
use weir_plugin::{BuildContext, Exchange, FieldError, Flow, Hooks, Phases, Plugin, Record, WantsBody};

/// What is added.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The messages that are added.
    #[field(default = {})]
    pub prompts: Additions,
    /// The longest body of a request, in bytes; 0 for no limit.
    #[field(nullable, default = 8192, gt = -1)]
    pub max_request_body_size: i64,
    /// The form of requests: OpenAI's, or that of the provider.
    #[field(nullable, default = "openai", one_of = ["openai", "bedrock", "gemini"])]
    pub llm_format: String,
}

/// Messages that are added.
#[derive(Debug, Clone, Record)]
pub(super) struct Additions {
    /// Before the client's, in this order.
    #[field(len_max = 15)]
    pub prepend: Option<Vec<Addition>>,
    /// Behind the client's, in this order.
    #[field(len_max = 15)]
    pub append: Option<Vec<Addition>>,
}

/// A message that is added.
#[derive(Debug, Clone, Record)]
pub(super) struct Addition {
    /// Who says it.
    #[field(default = "system", one_of = ["system", "assistant", "user"])]
    pub role: String,
    /// What is said.
    #[field(len_min = 1, len_max = 500)]
    pub content: String,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let is_empty = |list: &Option<Vec<Addition>>| list.as_ref().is_none_or(Vec::is_empty);
    if !is_empty(&config.prompts.prepend) || !is_empty(&config.prompts.append) {
        return Vec::new();
    }
    let message = "at least one of these fields must be non-empty: 'prompts.prepend', 'prompts.append'";
    vec![FieldError::new("", message)]
}

/// One configured instance.
pub(super) struct AiPromptDecorator {
    config: Config,
    format: Format,
}

impl Plugin for AiPromptDecorator {
    const NAME: &'static str = "ai-prompt-decorator";
    const PRIORITY: i32 = 772;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self { format: Format::named(&config.llm_format), config })
    }
}

impl Hooks for AiPromptDecorator {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn wants_body(&self) -> WantsBody {
        WantsBody::Yes
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        match self.decorate(exchange) {
            Ok(()) => Flow::Continue,
            Err(error) => Flow::Respond(error.response()),
        }
    }
}

impl AiPromptDecorator {
    fn decorate(&self, exchange: &mut Exchange) -> Result<(), LlmError> {
        let max = usize::try_from(self.config.max_request_body_size).unwrap_or(0);
        let mut body = Prompts::of(exchange, max).map_err(LlmError::no_json)?;
        if self.format.turns(&body).is_none() {
            let message = "this LLM route only supports llm/chat type requests";
            return Err(LlmError::Request(message.to_owned()));
        }
        let Additions { prepend, append } = &self.config.prompts;
        let mut at = 0;
        for Addition { role, content } in prepend.iter().flatten() {
            at += usize::from(self.format.insert(&mut body, (role, content), at));
        }
        for Addition { role, content } in append.iter().flatten() {
            self.format.insert(&mut body, (role, content), usize::MAX);
        }
        exchange.set_body(serde_json::Value::Object(body).to_string().into_bytes());
        Ok(())
    }
}

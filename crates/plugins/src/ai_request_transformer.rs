//! Has a large language model rewrite the body of requests, before they go to the upstream.
//!
//! ```yaml
//! plugins:
//!   - name: ai-request-transformer
//!     route: orders
//!     config:
//!       prompt: Return the same JSON, with the member "city" in English. Return nothing but JSON.
//!       transformation_extract_pattern: '\{[\s\S]*\}'
//!       llm:
//!         route_type: llm/v1/chat
//!         auth: {header_name: Authorization, header_value: "{vault://env/openai-key}"}
//!         model: {provider: openai, name: gpt-4o-mini}
//! ```
//!
//! The model gets `prompt` as the system's message, and the body as the user's. What it answers takes the body's place, or the
//! part of it that `transformation_extract_pattern` finds. `llm` is as in [ai-proxy](ai-proxy.md), which says what is logged as well:
//! under `ai.ai-request-transformer`. What a model has cost is logged and counted also where its answer is of no use, and calls that have failed are: by the status
//! of its answer, or 502 if there was none that could be read.
//!
//! The key is in no log. The value of a header is the whole secret: that of `openai-key` begins with `Bearer `. The provider is asked through the proxy, if one is configured.
//!
//! ## Responses
//!
//! | status | `error.message` | when |
//! |---|---|---|
//! | 400 | `the body has … bytes, and max_request_body_size of the plugin is …` | it is longer than that |
//! | 400 | `the body is longer than what the node buffers` | it is longer than 1 MiB, or a larger `client_body_buffer_size` |
//! | 400 | `failed to introspect request with AI service: …` | the provider cannot be reached within `http_timeout`, or its status is not 2xx |
//! | 400 | `failed to convert AI response to Kong format: …`, `no 'choices' in upstream AI service response` | its answer cannot be read |
//! | 400 | `AI response did not match specified regular expression` | nothing was found in it |
//! | 500 | another | the provider cannot be asked, for lack of credentials |

use crate::llm::{LlmError, Rewriter, Rewriting, body_within};
use std::sync::Arc;
use weir_plugin::{BuildContext, Exchange, Flow, Hooks, Phases, Plugin, Resume, WantsBody};

/// One configured instance.
pub(super) struct AiRequestTransformer(Arc<Rewriter>);

impl Plugin for AiRequestTransformer {
    const NAME: &'static str = "ai-request-transformer";
    const PRIORITY: i32 = 777;
    type Config = Rewriting;

    fn new(config: Rewriting, build: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self(Arc::new(Rewriter::new(Self::NAME, config, build)?)))
    }
}

impl Hooks for AiRequestTransformer {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn wants_body(&self) -> WantsBody {
        WantsBody::Yes
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let rewriter = self.0.clone();
        let body = body_within(exchange, rewriter.max_len().unwrap_or(0));
        let body = body.map_err(|why| LlmError::Request(why.to_string()));
        let question = body.and_then(|body| rewriter.question(exchange, body));
        let question = match question {
            Ok(question) => question,
            Err(error) => return Flow::Respond(error.response()),
        };
        Flow::Wait(Box::pin(async move {
            let answer = rewriter.ask(question).await;
            let resume: Resume = Box::new(move |exchange| match rewriter.record(exchange, answer) {
                Ok(text) => {
                    exchange.set_body(text.into_bytes());
                    Flow::Continue
                }
                Err(error) => {
                    tracing::warn!(request_id = exchange.id(), "ai-request-transformer: {error}");
                    Flow::Respond(error.response())
                }
            });
            resume
        }))
    }
}

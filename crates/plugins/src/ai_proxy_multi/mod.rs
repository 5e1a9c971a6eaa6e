//! Sends requests to one of several instances of large language models, and to another where that fails or its limit is used up. Like
//! APISIX's plugin of this name.
//!
//! ```yaml
//! services:
//!   - name: models
//!     url: https://localhost:32000
//!     tls_verify: true
//!     routes:
//!       - name: chat
//!         paths: [/chat]
//! plugins:
//!   - name: ai-proxy-multi
//!     route: chat
//!     config:
//!       fallback_strategy: [rate_limiting, http_429, http_5xx]
//!       timeout: 10000
//!       instances:
//!         - name: own
//!           provider: openai-compatible
//!           priority: 1
//!           override: {endpoint: "http://llm.internal:8080"}
//!           options: {model: llama-3.3-70b}
//!         - name: claude
//!           provider: anthropic
//!           weight: 3
//!           auth: {header: {x-api-key: "{vault://env/anthropic-key}"}}
//!           options: {model: claude-sonnet-4-5, max_tokens: 1024}
//!         - name: gpt
//!           provider: openai
//!           auth: {header: {Authorization: "{vault://env/openai-key}"}}
//!           options: {model: gpt-4o}
//! ```
//!
//! Clients speak OpenAI's chat API, as with [ai-proxy](ai-proxy.md), which describes requests, responses, streams and logs. The request goes
//! to the instance in the place of the service. The value of a header is the whole secret: that of `openai-key` begins with `Bearer `, as OpenAI
//! expects it. Whether certificates are verified is the service's: set its `tls_verify`, because otherwise
//! the keys go to any server that answers.
//!
//! ## Which instance is asked
//!
//! Those of the highest `priority` come first, in proportion to their weights; with `balancer.algorithm: chash` the same one for the same
//! value of what is hashed. A weight of 0 takes an instance out.
//!
//! | `fallback_strategy` | another instance is asked |
//! |---|---|
//! | none | never |
//! | `rate_limiting`, `instance_health_and_rate_limiting` | in the place of one whose [limit](ai-rate-limiting.md) is used up |
//! | `http_429` | behind one that answers 429 |
//! | `http_5xx` | behind one that answers 5xx, cannot be reached, resets the connection, sends no HTTP, or nothing within `timeout`; where a stream was asked for, also behind a 200 that is no stream of events, or whose first bytes have an error or no event that can be read |
//! | `fallback_http_statuses` | behind one that answers with one of these |
//!
//! Each instance is asked once at most, and the next only as long as the client has got nothing: a response with a status of 2xx
//! counts from its first byte behind the head. A stream that breaks off later stays broken. What the client gets
//! in the end is the last response. It says which instances failed before in `tries` of the log.
//!
//! An instance that has failed so is not asked for a second, and for twice as long each time that it fails again, up to
//! 30 seconds, or as long as its `Retry-After` says, up to a minute. If no other is left, it is asked all the same. That holds for all callers once
//! another instance has answered the same request with 2xx, and before for the consumer or the client's address alone, so that no caller
//! takes instances from others with requests that make them fail.
//!
//! ## Providers
//!
//! | provider | default URL, and format |
//! |---|---|
//! | openai | `https://api.openai.com/v1/chat/completions` |
//! | deepseek, aimlapi, openrouter | those of OpenAI's format |
//! | openai-compatible, azure-openai, vertex-ai | OpenAI's format at `override.endpoint`; without a path it gets `/v1/chat/completions` |
//! | anthropic | Messages with the header `x-api-key`, otherwise OpenAI's format |
//! | gemini | Gemini's own with the header `x-goog-api-key` or the parameter `key`, otherwise OpenAI's format |
//! | bedrock | Converse in `provider_conf.region`, signed with `auth.aws` |
//! | cohere, mistral, huggingface, ollama | as those of [ai-proxy](ai-proxy.md) |
//!
//! `options.model` replaces the model that a request names, and the other members of `options` those of its body.
//!
//! ## Responses
//!
//! As those of [ai-proxy](ai-proxy.md#responses) without `X-Kong-LLM-Model`, and those of [ai-rate-limiting](ai-rate-limiting.md) where no instance has tokens left.

mod attempts;
mod config;
mod health;
mod instance;
mod pool;
#[cfg(test)]
mod tests;

use crate::llm::InFlight;
use attempts::Attempts;
use config::Config;
use pool::Pool;
use std::sync::Arc;
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldWarning, Flow, Hooks, Json, Phases, Plugin, WantsBody,
};

/// One configured instance of the plugin.
pub(super) struct AiProxyMulti(Arc<Pool>);

impl Plugin for AiProxyMulti {
    const NAME: &'static str = "ai-proxy-multi";
    const PRIORITY: i32 = 769;
    const EXTENSION: bool = true;
    type Config = Config;

    fn ignored_fields(config: &Json) -> Vec<FieldWarning> {
        Config::ignored_fields(config)
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self(Arc::new(Pool::new(config, build)?)))
    }
}

impl Hooks for AiProxyMulti {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE | Phases::RESPONSE_BODY | Phases::LOG
    }

    /// The provider gets none of the client's trailers.
    fn owns_request_header(&self, _: &[u8]) -> bool {
        true
    }

    fn wants_body(&self) -> WantsBody {
        WantsBody::Yes
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::ChoosesUpstream
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let flow = Attempts::begin(&self.0, exchange);
        flow.unwrap_or_else(|error| error.refuse(exchange, Self::NAME))
    }

    fn response(&self, exchange: &mut Exchange) {
        InFlight::answered(exchange);
    }

    fn response_body(&self, exchange: &mut Exchange, body: Vec<u8>) -> Vec<u8> {
        InFlight::convert(exchange, body)
    }

    fn log(&self, exchange: &mut Exchange) {
        Attempts::log(&self.0, exchange);
        InFlight::log(exchange);
    }
}

//! Sends requests to a large language model: clients speak OpenAI's API, whichever provider answers.
//!
//! ```yaml
//! services:
//!   - name: models
//!     url: http://localhost:32000
//!     routes:
//!       - name: chat
//!         paths: [/chat]
//! plugins:
//!   - name: ai-proxy
//!     route: chat
//!     config:
//!       route_type: llm/v1/chat
//!       auth: {header_name: x-api-key, header_value: "{vault://env/anthropic-key}"}
//!       model:
//!         provider: anthropic
//!         name: claude-3-5-sonnet-20241022
//!         options: {max_tokens: 1024, anthropic_version: "2023-06-01"}
//! ```
//!
//! `curl localhost:8000/chat --json '{"messages": [{"role": "user", "content": "Hello"}]}'`
//!
//! For OpenAI, it is `provider: openai` and `auth: {header_name: Authorization, header_value: "{vault://env/openai-auth}"}`, where the secret is
//! `Bearer ` and the key: a reference stands for a whole value.
//!
//! The request goes to the provider in the place of the service: host, port, path and TLS are the provider's; timeouts, retries and
//! whether certificates are verified are the service's. Options of the model replace what the request says. `upstream_url`
//! leads elsewhere, for instance to a server of one's own.
//!
//! | provider | format | default URL |
//! |---|---|---|
//! | openai | OpenAI | `https://api.openai.com/v1/chat/completions`, `/v1/completions` |
//! | azure | OpenAI | `https://INSTANCE.openai.azure.com/openai/deployments/DEPLOYMENT/chat/completions?api-version=VERSION` |
//! | anthropic | Messages, and completions | `https://api.anthropic.com/v1/messages`, `/v1/complete` |
//! | cohere | Chat and Generate, version 1 | `https://api.cohere.com/v1/chat`, `/v1/generate` |
//! | mistral | OpenAI, or Ollama by `mistral_format` | `https://api.mistral.ai/v1/chat/completions` |
//! | llama2 | OpenAI, Ollama or Llama 2's prompts (`raw`, without streams), by `llama2_format` | none |
//! | gemini | Gemini's, chats alone | `https://generativelanguage.googleapis.com/v1beta/models/MODEL:generateContent`, or Vertex AI's |
//! | huggingface | OpenAI, and text generation | `https://api-inference.huggingface.co/models/MODEL/v1/chat/completions` |
//! | bedrock | Converse, chats alone | `https://bedrock-runtime.REGION.amazonaws.com/model/MODEL/converse` |
//!
//! Tools and images are converted for anthropic and gemini, tools for Ollama's format too; mistral, azure and huggingface get them as they are.
//!
//! ## Keys
//!
//! The key is a header or a parameter, in the place of the client's. The upstream alone gets a header and a parameter of the query: no log
//! has it, no other plugin, and `upstream_uri` does not show it. One in the body is seen by plugins that run later and read the body.
//! The client's `Authorization` and `Cookie` are not passed on. With `allow_override` they are, and a client may send a key of its own.
//!
//! Set the service's `tls_verify`, unless the node's `proxy_ssl_verify` is on: otherwise the key goes to any server that answers.
//!
//! ## A provider's own API
//!
//! With `route_type: preserve` any JSON passes as it is, and so does the response: the clients of a provider's own library get a key of the
//! gateway's, limits and logs, for embeddings and others as well. `upstream_url` is the server alone then, because the path is the request's. Bodies are longer than
//! those of chats: set `max_request_body_size`. Clients can call whatever the key allows, such as files and batches too: give the
//! route the `paths` and `methods` that they may use.
//!
//! ```yaml
//! plugins:
//!   - name: ai-proxy
//!     route: gemini             # with the path /v1beta
//!     config:
//!       route_type: preserve
//!       auth: {header_name: x-goog-api-key, header_value: "{vault://env/gemini-key}"}
//!       model: {provider: gemini, name: gemini-2.5-flash, options: {upstream_url: "https://generativelanguage.googleapis.com"}}
//! ```
//!
//! `genai.Client(api_key="none", http_options={"base_url": "http://localhost:8000", "api_version": "v1beta"})` is a client of it.
//!
//! ## References to the request
//!
//! `model.name` and the texts of `model.options` may be `$(headers.NAME)`, `$(uri_captures.NAME)` or `$(query_params.NAME)`. With a
//! reference in `upstream_url` the client names the whole URL, where the key goes too: only for clients that you trust.
//!
//! ## Streams
//!
//! A request with `"stream": true` gets server-sent events in OpenAI's form as the provider sends its own, one for one, and `data: [DONE]`
//! at the end. A last event has the tokens if `stream_options.include_usage` asks for it and the provider counts them.
//!
//! The head is sent with the first event. A response that is no stream, such as a page of HTML, is answered 502, and so is a stream
//! without an event that can be read, with an error as its first, or whose events say nothing. A stream that becomes corrupt later, or has an error, ends with an event such as
//! `data: {"error": {"message": "the response of the AI provider cannot be read"}}`, and without `data: [DONE]`. Behind such an end the provider's connection is closed, so
//! that a model does not go on unseen, and the log says why. Single events
//! that cannot be read are left out. A stream may be `text/event-stream`; JSON objects, on lines or in an array, of cohere, gemini and Ollama's format;
//! and from bedrock AWS's event stream alone. `preserve` and `llm_format` pass streams as they are.
//!
//! ## Responses
//!
//! Responses with status 200 are brought into OpenAI's form; `finish_reason` is one of OpenAI's too, where Kong passes on the
//! provider's. Others pass as they are. `X-Kong-LLM-Model` names provider and model. A response that is not a stream is buffered, and
//! may have up to 8 MiB, also of a provider whose form is OpenAI's; with `preserve` and `llm_format` a longer one passes as it is.
//!
//! | status | `error.message` | when |
//! |---|---|---|
//! | 400 | `content-type header does not match request body, or bad JSON formatting` | the body is no JSON, or longer than `max_request_body_size` (or 1 MiB, or `client_body_buffer_size`), which the message names then |
//! | 400 | `request body doesn't contain valid prompts` | it has neither `messages` nor `prompt`, and the route type is not `preserve` |
//! | 400 | `cannot use own model - must be: …` | it names another model |
//! | 400 | `model parameter not found in request, nor in gateway configuration` | there is no model |
//! | 400 | `[…] message format is not compatible with […] route type` | a chat was sent to a route of completions, or the other way |
//! | 400 | `response streaming is not enabled for this LLM` | `response_streaming` is `deny` |
//! | 405 | `a response to HEAD has no body: send POST` | the method is `HEAD`, and the route type is not `preserve`: other methods become `POST` |
//! | 500 | `transformation failed from type …` | the provider's response cannot be read |
//! | 502 | `the response of the AI provider is longer than 8 MiB` | it is too long to be brought into OpenAI's form |
//! | 502 | `the response of the AI provider is no stream of events` | a stream was asked for, and the content type is that of none |
//! | 502 | `the AI provider sent no event that can be read`, `the response of the AI provider cannot be read` | nothing of a stream could be read |
//! | 502 | `the AI provider sent no answer` | the events of a stream say nothing, for instance because the prompt is blocked |
//! | 502 | the provider's message | its stream begins with an error |
//!
//! ## Logs
//!
//! With `log_statistics`, records of log plugins have `ai.proxy.meta` (`provider_name`, `request_model`, `response_model`, `llm_latency`,
//! `plugin_id`; of a stream `time_to_first_token` too) and `ai.proxy.usage` (`prompt_tokens`, `completion_tokens`, `total_tokens`, `time_per_token`, `cost`), and Prometheus counts
//! them with `ai_metrics`. Times are in milliseconds. What a provider does not count is estimated: a token for each word of prompts (1.8 if the response is a
//! stream), and one for four bytes of the response. The streams of `llm_format` are read for that; those of `preserve` are not, and have the tokens of their prompts alone. With `log_payloads` there is `ai.proxy.payload` too, of a
//! stream its text.
//!
//! [ai-rate-limiting](ai-rate-limiting.md) limits the tokens, and [ai-proxy-multi](ai-proxy-multi.md) has several providers that stand in for each other.

mod proxy;
#[cfg(test)]
mod tests;

use crate::llm::{InFlight, Llm};
use proxy::Proxy;
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldError, Flow, Hooks, Phases, Plugin, Record, WantsBody,
};

/// The model, and what clients may ask of it.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The model.
    #[field(flatten)]
    pub llm: Llm,
    /// Whether clients may ask for streams: `allow`, `deny`, or `always` for nothing else.
    #[field(nullable, default = "allow", one_of = ["allow", "deny", "always"])]
    pub response_streaming: String,
    /// The longest body of a request, in bytes; 0 for no limit.
    #[field(nullable, default = 8192, gt = -1)]
    pub max_request_body_size: i64,
    /// Adds `X-Kong-LLM-Model` to responses.
    #[field(nullable, default = true)]
    pub model_name_header: bool,
    /// The form of requests and responses: OpenAI's, or that of the provider, which passes as it is.
    #[field(nullable, default = "openai", one_of = ["openai", "bedrock", "gemini"])]
    pub llm_format: String,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let format = &*config.llm_format;
    if format == "openai" {
        return Vec::new();
    }
    let mut found = Vec::new();
    if config.llm.route_type != "llm/v1/chat" {
        let message =
            "native provider options in llm_format can only be used with the 'llm/v1/chat' route_type";
        found.push(FieldError::new("route_type", message));
    }
    if config.llm.model.provider != format {
        let message =
            format!("native llm_format '{format}' can only be used with the '{format}' model.provider");
        found.push(FieldError::new("model.provider", message));
    }
    found
}

/// One configured instance.
pub(super) struct AiProxy(Proxy);

impl Plugin for AiProxy {
    const NAME: &'static str = "ai-proxy";
    const PRIORITY: i32 = 770;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self(Proxy::new(config, build)))
    }
}

impl Hooks for AiProxy {
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
        self.0.ask(exchange).unwrap_or_else(|error| error.refuse(exchange, Self::NAME))
    }

    fn response(&self, exchange: &mut Exchange) {
        InFlight::answered(exchange);
    }

    fn response_body(&self, exchange: &mut Exchange, body: Vec<u8>) -> Vec<u8> {
        InFlight::convert(exchange, body)
    }

    fn log(&self, exchange: &mut Exchange) {
        InFlight::log(exchange);
    }
}

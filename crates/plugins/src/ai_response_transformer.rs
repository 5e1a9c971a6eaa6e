//! Has a large language model rewrite the body of the upstream's responses.
//!
//! ```yaml
//! plugins:
//!   - name: ai-response-transformer
//!     route: orders
//!     config:
//!       prompt: Return the same JSON, without names and addresses of people. Return nothing but JSON.
//!       transformation_extract_pattern: '\{[\s\S]*\}'
//!       llm:
//!         route_type: llm/v1/chat
//!         auth: {header_name: Authorization, header_value: "{vault://env/openai-key}"}
//!         model: {provider: openai, name: gpt-4o-mini}
//! ```
//!
//! The model gets `prompt` as the system's message, and the body of the response as the user's. What it answers takes the body's place,
//! or the part of it that `transformation_extract_pattern` finds. With `parse_llm_response_json_instructions` the answer is
//! JSON such as `{"status": 404, "headers": {"content-type": "text/plain"}, "body": "none"}`, and the client gets that.
//! `llm` is as in [ai-proxy](ai-proxy.md), which says what is logged as well: under `ai.ai-response-transformer`.
//! The secret `openai-key` begins with `Bearer `.
//!
//! Unlike Kong's, the plugin takes the response of the upstream as it is asked for anyway, so that balancing, retries and other plugins
//! work as usual. Responses of the gateway itself, responses without a body, and server-sent events are not rewritten. A body
//! in another encoding than gzip, or longer than 8 MiB, is not passed on.
//!
//! ## Responses
//!
//! | status | `error.message` | when |
//! |---|---|---|
//! | 400 | as those of [ai-request-transformer](ai-request-transformer.md) | the model does not answer as expected |
//! | 500 | `failed to parse JSON response instructions from AI backend: …` | its answer is no such JSON |
//! | 500 | `the response is too long to be transformed`, `the response cannot be decoded` | its body cannot be sent to the model |

use crate::llm::{Answer, LlmError, Rewriter, Rewriting};
use crate::shared::Uncacheable;
use flate2::read::GzDecoder;
use std::io::Read;
use std::sync::Arc;
use weir_plugin::{
    BuildContext, Exchange, Flow, Hooks, Json, Known, Phases, Plugin, Record, ResumeBody, Source,
};

/// The most that a body is decoded to.
const MAX_DECODED_LEN: u64 = 8 * 1024 * 1024;

/// The model, and its instructions.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The model.
    #[field(flatten)]
    pub rewriting: Rewriting,
    /// Takes status, headers and body from the model's answer, which is JSON.
    #[field(default = false)]
    pub parse_llm_response_json_instructions: bool,
}

/// One configured instance.
pub(super) struct AiResponseTransformer {
    rewriter: Arc<Rewriter>,
    has_instructions: bool,
}

impl Plugin for AiResponseTransformer {
    const NAME: &'static str = "ai-response-transformer";
    const PRIORITY: i32 = 768;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let rewriter = Arc::new(Rewriter::new(Self::NAME, config.rewriting, build)?);
        Ok(Self { rewriter, has_instructions: config.parse_llm_response_json_instructions })
    }
}

impl Hooks for AiResponseTransformer {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        exchange.request.headers.set("Accept-Encoding", b"identity");
        exchange.extensions.insert(Uncacheable);
        Flow::Continue
    }

    fn response(&self, exchange: &mut Exchange) {
        let content_type = exchange.response.headers.get_known(Known::ContentType).unwrap_or_default();
        if exchange.source != Source::Service || content_type.starts_with(b"text/event-stream") {
            return;
        }
        let (rewriter, has_instructions) = (self.rewriter.clone(), self.has_instructions);
        exchange.replace_response_body_later(move |exchange, body| {
            let encoding = exchange.response.headers.get_known(Known::ContentEncoding);
            let question = decoded(body, encoding).and_then(|body| rewriter.question(exchange, &body));
            Box::pin(async move {
                let answer = match question {
                    Ok(question) => Ok(rewriter.ask(question).await),
                    Err(error) => Err(error),
                };
                let resume: ResumeBody =
                    Box::new(move |exchange| rewritten(exchange, &rewriter, answer, has_instructions));
                resume
            })
        });
    }
}

/// The body as it is before it was encoded.
fn decoded(body: Option<Vec<u8>>, encoding: Option<&[u8]>) -> Result<Vec<u8>, LlmError> {
    let failed = |what: &str| LlmError::Provider(what.to_owned());
    let body = body.ok_or_else(|| failed("the response is too long to be transformed"))?;
    match encoding {
        None => Ok(body),
        Some(encoding) if encoding.eq_ignore_ascii_case(b"identity") => Ok(body),
        Some(encoding) if encoding.eq_ignore_ascii_case(b"gzip") => {
            let mut decoded = Vec::new();
            let read = GzDecoder::new(&*body).take(MAX_DECODED_LEN + 1).read_to_end(&mut decoded);
            let is_read = read.is_ok() && decoded.len() as u64 <= MAX_DECODED_LEN;
            if is_read { Ok(decoded) } else { Err(failed("the response cannot be decoded")) }
        }
        Some(_) => Err(failed("the response cannot be decoded")),
    }
}

/// The body that the client gets; changes the head where that is due.
fn rewritten(
    exchange: &mut Exchange,
    rewriter: &Rewriter,
    answer: Result<Answer, LlmError>,
    has_instructions: bool,
) -> Vec<u8> {
    exchange.response.headers.remove("Content-Encoding");
    exchange.response.headers.remove("ETag");
    let body = answer.and_then(|answer| {
        let text = rewriter.record(exchange, answer)?;
        if has_instructions { instructed(exchange, &text) } else { Ok(text.into_bytes()) }
    });
    body.unwrap_or_else(|error| {
        tracing::warn!(request_id = exchange.id(), "ai-response-transformer: {error}");
        exchange.response.status = error.status();
        exchange.response.headers.set("Content-Type", b"application/json; charset=utf-8");
        error.body().into_bytes()
    })
}

/// Does as the model's answer says: its status, headers and body.
fn instructed(exchange: &mut Exchange, text: &str) -> Result<Vec<u8>, LlmError> {
    let failed = |why: &str| {
        LlmError::Provider(format!("failed to parse JSON response instructions from AI backend: {why}"))
    };
    let instructions: Json = serde_json::from_str(text).map_err(|error| failed(&error.to_string()))?;
    let members = instructions.as_object().ok_or_else(|| failed("input not table or string"))?;
    let status = members.get("status").and_then(Json::as_u64).unwrap_or(200);
    let status = u16::try_from(status).ok().filter(|status| (200..600).contains(status));
    exchange.response.status =
        status.ok_or_else(|| failed("the status is not one of HTTP: use 200 to 599"))?;
    for (name, value) in members.get("headers").and_then(Json::as_object).into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let is_framing = matches!(Known::of(name.as_bytes()), Known::ContentLength | Known::TransferEncoding);
        if !is_framing {
            let set = exchange.set_header(weir_plugin::HeadersOf::Response, name, value.as_bytes());
            set.map_err(|error| failed(&error.to_string()))?;
        }
    }
    if matches!(exchange.response.status, 204 | 304) {
        return Ok(Vec::new());
    }
    Ok(match members.get("body") {
        Some(Json::String(text)) => text.clone().into_bytes(),
        Some(body) => body.to_string().into_bytes(),
        None => text.as_bytes().to_vec(),
    })
}

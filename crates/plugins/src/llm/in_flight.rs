//! A request that a model answers: what its response becomes, what it has used, and what is logged of it.

use super::{
    Call, Dialect, LlmCall, LlmError, Prompts, Provider, Route, Stream, TokenLimits, Usage, log_payload,
};
use crate::shared::Uncacheable;
use tokio::time::Instant;
use weir_plugin::{BodyFilter, Exchange, Json, Known, Source, Uuid};

/// The status of requests whose client has left.
const CLIENT_GONE: u16 = 499;

/// What is reported of requests and their responses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reporting {
    pub(crate) plugin: Uuid,
    /// What the plugin's members of records are named by.
    pub(crate) name: &'static str,
    pub(crate) statistics: bool,
    pub(crate) payloads: bool,
    /// Adds `X-Kong-LLM-Model` to responses.
    pub(crate) model_header: bool,
}

/// A request that a model answers.
pub(crate) struct InFlight {
    call: Call,
    dialect: &'static dyn Dialect,
    reporting: Reporting,
    /// The response passes in the form that it has.
    keeps_form: bool,
    asked: Instant,
    /// When the first text of a stream has come.
    first_token: Option<Instant>,
    /// The tokens of the prompts, if the provider does not count them.
    estimated_prompt: u64,
    /// The client's body, if it is logged.
    request: Option<Vec<u8>>,
    /// The body that it gets, if that is logged.
    response: Option<Vec<u8>>,
    usage: Usage,
    /// The model that has answered.
    model: Option<String>,
    stream: Option<Stream>,
    /// The body is buffered to be converted.
    converts: bool,
    /// The model has answered, so that tokens were used.
    has_answered: bool,
    /// The tokens are counted by those who limit them.
    is_counted: bool,
}

impl InFlight {
    /// Sends the request to the provider, and has its response seen. One that was sent to another before is forgotten.
    pub(crate) fn send(
        exchange: &mut Exchange,
        provider: &Provider,
        (prompts, call): (Prompts, Call),
        reporting: Reporting,
        request: Option<Vec<u8>>,
    ) -> Result<(), LlmError> {
        let estimated_prompt = prompts.estimated_tokens(if call.streams { 1.8 } else { 1.0 });
        let keeps_form = provider.keeps_form(&call);
        provider.send(exchange, prompts, &call)?;
        exchange.extensions.insert(Uncacheable);
        exchange.extensions.insert(Self {
            call,
            dialect: provider.backend.dialect,
            reporting,
            keeps_form,
            asked: Instant::now(),
            first_token: None,
            estimated_prompt,
            request,
            response: None,
            usage: Usage::default(),
            model: None,
            stream: None,
            converts: false,
            has_answered: false,
            is_counted: false,
        });
        Ok(())
    }

    /// The head of the response has come.
    pub(crate) fn answered(exchange: &mut Exchange) {
        let is_answer = exchange.source == Source::Service && exchange.service_status() == Some(200);
        let content_type =
            exchange.response.headers.get_known(Known::ContentType).unwrap_or_default().to_vec();
        let is_limited = exchange.extensions.get::<TokenLimits>().is_some();
        let Some(asked) = exchange.extensions.get_mut::<Self>().filter(|_| is_answer) else { return };
        asked.has_answered = true;
        let (call, reporting) = (&asked.call, asked.reporting);
        let name = format!("{}/{}", call.provider, call.model);
        let clears_cookies = matches!(&*call.provider, "openai" | "azure" | "mistral" | "gemini" | "bedrock");
        let (streams, keeps_form) = (call.streams, asked.keeps_form);
        // A stream in the provider's own form is read for its tokens alone.
        let reads = !keeps_form || is_limited && call.route != Route::Preserve;
        if streams && reads {
            asked.stream = Some(Stream::new(call.clone(), asked.dialect, &content_type, reporting.payloads));
        }
        asked.converts =
            !streams && (!keeps_form || reporting.statistics || reporting.payloads || is_limited);
        if asked.converts {
            exchange.buffer_response_body();
        } else if reads {
            exchange.filter_response_body(Convert);
        }
        if streams && !keeps_form {
            exchange.response.headers.set("Content-Type", b"text/event-stream");
        }
        let headers = &mut exchange.response.headers;
        if clears_cookies {
            headers.remove("Set-Cookie");
        }
        if reporting.model_header {
            headers.set("X-Kong-LLM-Model", name.as_bytes());
        }
    }

    /// Brings a whole body into OpenAI's form.
    pub(crate) fn convert(exchange: &mut Exchange, body: Vec<u8>) -> Vec<u8> {
        let Some(mut asked) = exchange.extensions.remove::<Self>() else { return body };
        if !std::mem::take(&mut asked.converts) {
            exchange.extensions.insert(asked);
            return body;
        }
        let body = match asked.converted(body) {
            Ok(body) => body,
            Err(error) => {
                let Call { provider, model, .. } = &asked.call;
                tracing::error!(
                    request_id = exchange.id(),
                    provider,
                    model,
                    "ai-{}: {error}",
                    asked.reporting.name
                );
                exchange.response.status = 500;
                exchange.response.headers.remove("Content-Encoding");
                exchange.response.headers.set("Content-Type", b"application/json; charset=utf-8");
                error.body().into_bytes()
            }
        };
        asked.response = asked.reporting.payloads.then(|| body.clone());
        asked.count_tokens(exchange);
        if let Some(limits) = exchange.extensions.get::<TokenLimits>() {
            limits.write_headers(&mut exchange.response.headers);
        }
        exchange.extensions.insert(asked);
        body
    }

    /// The body in OpenAI's form; unchanged, if it is in the form that the client wants.
    fn converted(&mut self, body: Vec<u8>) -> Result<Vec<u8>, LlmError> {
        let (call, keeps_form) = (&self.call, self.keeps_form);
        let undecodable = || LlmError::Provider(format!("failed to decode {} response", call.route.name()));
        let Ok(parsed) = serde_json::from_slice::<Json>(&body) else {
            return if keeps_form { Ok(body) } else { Err(undecodable()) };
        };
        let reply = match call.route {
            Route::Preserve => None,
            _ => match self.dialect.response(&parsed, call) {
                Err(_) if keeps_form => None,
                reply => reply.map_err(LlmError::Provider)?,
            },
        };
        let model = parsed.get("model").and_then(Json::as_str).map(str::to_owned);
        let Some(reply) = reply else {
            (self.usage, self.model) = (Usage::of_openai(&parsed), model);
            return Ok(body);
        };
        (self.usage, self.model) = (reply.usage, reply.model.clone());
        Ok(if keeps_form { body } else { reply.into_json(call).to_string().into_bytes() })
    }

    /// The tokens so far: what the provider has counted, and an estimate of what it has not.
    fn usage(&self) -> Usage {
        match &self.stream {
            Some(stream) => stream.usage(self.estimated_prompt),
            None => Usage { prompt: self.usage.prompt.or(Some(self.estimated_prompt)), ..self.usage },
        }
    }

    /// Has the tokens counted by what limits them, once.
    fn count_tokens(&mut self, exchange: &mut Exchange) {
        if !self.has_answered && !has_client_left(exchange) || std::mem::replace(&mut self.is_counted, true) {
            return;
        }
        if let Some(limits) = exchange.extensions.get_mut::<TokenLimits>() {
            limits.count(&self.usage());
        }
    }

    /// Counts what was used, and adds to the records of log plugins.
    pub(crate) fn log(exchange: &mut Exchange) {
        let Some(mut asked) = exchange.extensions.remove::<Self>() else { return };
        if asked.converts {
            // The response was too long to be read.
            asked.usage.completion.get_or_insert(exchange.bytes_out / 4);
        }
        asked.count_tokens(exchange);
        let Reporting { plugin, name, statistics, payloads, .. } = asked.reporting;
        if payloads {
            let response = asked.stream.as_ref().and_then(|stream| stream.text().map(str::as_bytes));
            let payloads =
                [("request", asked.request.as_deref()), ("response", asked.response.as_deref().or(response))];
            for (part, body) in payloads.into_iter().filter_map(|(part, body)| Some((part, body?))) {
                log_payload(exchange, name, part, body);
            }
        }
        if statistics {
            let model = asked.stream.as_ref().and_then(Stream::model).or(asked.model.as_deref());
            let ended = exchange.timing.end.unwrap_or_else(Instant::now);
            let latency = ended.saturating_duration_since(asked.asked);
            let first_token = asked.first_token.map(|first| first.saturating_duration_since(asked.asked));
            let call = LlmCall::new(&asked.call, model, asked.usage(), latency).with_first_token(first_token);
            call.record(exchange, name, plugin);
        }
    }
}

/// Whether the client has left before the response, while the model was at work: it has got the prompts all the same.
fn has_client_left(exchange: &Exchange) -> bool {
    exchange.response.status == CLIENT_GONE
        && exchange.service_status() != Some(CLIENT_GONE)
        && exchange.upstream_address().is_some()
}

/// Reads a stream as it passes, and converts one that is not in the form that the client wants.
struct Convert;

impl BodyFilter for Convert {
    fn chunk(&mut self, exchange: &mut Exchange, chunk: Vec<u8>) -> Vec<u8> {
        let Some(asked) = exchange.extensions.get_mut::<InFlight>() else { return Vec::new() };
        let Some(stream) = &mut asked.stream else { return Vec::new() };
        let converted = stream.push(&chunk);
        if asked.first_token.is_none() && stream.has_text() {
            asked.first_token = Some(Instant::now());
        }
        if asked.keeps_form { chunk } else { converted }
    }

    fn end(self: Box<Self>, exchange: &mut Exchange) -> Vec<u8> {
        let Some(asked) = exchange.extensions.get_mut::<InFlight>() else { return Vec::new() };
        let rest = asked.stream.as_mut().map(Stream::end).unwrap_or_default();
        if asked.keeps_form { Vec::new() } else { rest }
    }
}

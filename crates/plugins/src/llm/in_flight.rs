//! A request that a model answers: what its response becomes, what it has used, and what is logged of it.

use super::reply::estimated_of_openai;
use super::{
    Call, Dialect, LlmCall, LlmError, Prompts, Provider, Route, Stream, StreamFormat, TokenLimits, Usage,
    log_payload,
};
use crate::shared::Uncacheable;
use std::sync::Arc;
use tokio::time::Instant;
use weir_plugin::{BodyBegin, BodyFilter, Exchange, Framing, Json, Known, Method, ModelCalls, Source, Uuid};

/// The status of requests whose client has left.
const CLIENT_GONE: u16 = 499;

/// What clients get in the place of a stream whose content type is that of none.
const NO_STREAM: &str = "the response of the AI provider is no stream of events";

/// What they get in the place of a response that is too long to be converted.
const TOO_LONG: &str = "the response of the AI provider is longer than 8 MiB";

/// What is reported of requests and their responses.
#[derive(Clone)]
pub(crate) struct Reporting {
    pub(crate) plugin: Uuid,
    /// The plugin's name.
    pub(crate) plugin_name: &'static str,
    /// What the plugin's members of records are named by.
    pub(crate) name: &'static str,
    pub(crate) statistics: bool,
    pub(crate) payloads: bool,
    /// Adds `X-Kong-LLM-Model` to responses.
    pub(crate) model_header: bool,
    /// Where the analytics take calls from.
    pub(crate) calls: Arc<ModelCalls>,
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
    /// The tokens of a whole response, if the provider does not count them.
    estimated: Option<u64>,
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
        reporting: &Reporting,
        request: Option<Vec<u8>>,
    ) -> Result<(), LlmError> {
        let estimated_prompt = prompts.estimated_tokens(if call.streams { 1.8 } else { 1.0 });
        let keeps_form = provider.keeps_form(&call);
        provider.send(exchange, prompts, &call)?;
        exchange.set_upstream_model(&call.name());
        exchange.extensions.insert(Uncacheable);
        exchange.extensions.insert(Self {
            call,
            dialect: provider.backend.dialect,
            reporting: reporting.clone(),
            keeps_form,
            asked: Instant::now(),
            first_token: None,
            estimated_prompt,
            request,
            response: None,
            usage: Usage::default(),
            estimated: None,
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
        // As logs have it, because clients may have chosen it.
        let name = exchange.service_override().and_then(|service| service.model.clone());
        let Some(asked) = exchange.extensions.get_mut::<Self>().filter(|_| is_answer) else { return };
        asked.has_answered = true;
        let call = &asked.call;
        let shown_name = name.filter(|_| asked.reporting.model_header);
        let clears_cookies = matches!(&*call.provider, "openai" | "azure" | "mistral" | "gemini" | "bedrock");
        if call.streams {
            Self::stream(exchange)
        } else {
            Self::buffer(exchange)
        }
        let headers = &mut exchange.response.headers;
        if clears_cookies {
            headers.remove("Set-Cookie");
        }
        if let Some(name) = shown_name {
            headers.set("X-Kong-LLM-Model", name.as_bytes());
        }
    }

    /// Has a stream read as it passes: one in the provider's own form for its tokens alone.
    fn stream(exchange: &mut Exchange) {
        let is_limited = exchange.extensions.get::<TokenLimits>().is_some();
        let content_type = content_type(exchange).to_vec();
        let Some(asked) = exchange.extensions.get_mut::<Self>() else { return };
        let keeps_form = asked.keeps_form;
        let Reporting { statistics, payloads, .. } = asked.reporting;
        let is_read = is_limited || statistics || payloads;
        if keeps_form && (!is_read || asked.call.route == Route::Preserve) {
            return;
        }
        let Some(format) = asked.stream_format(&content_type) else {
            // What is no stream has cost no tokens that are known.
            asked.has_answered = false;
            let body = Self::refuse(exchange, NO_STREAM);
            return exchange.set_response_body(body);
        };
        asked.stream = Some(asked.reader(format, payloads));
        exchange.filter_response_body(Convert { holds_head: !keeps_form, is_done: false });
        if !keeps_form {
            exchange.response.headers.set("Content-Type", b"text/event-stream");
        }
    }

    /// Has a body buffered that is to be converted, or read for its tokens.
    fn buffer(exchange: &mut Exchange) {
        let is_limited = exchange.extensions.get::<TokenLimits>().is_some();
        let Some(asked) = exchange.extensions.get_mut::<Self>() else { return };
        let Reporting { statistics, payloads, .. } = asked.reporting;
        asked.converts = !asked.keeps_form || statistics || payloads || is_limited;
        match (asked.keeps_form, asked.converts) {
            (false, _) => exchange.buffer_response_body_or(Self::refuse_too_long),
            (true, true) => exchange.buffer_response_body(),
            (true, false) => {}
        }
    }

    /// The body is too long to be converted. Returns what the client gets.
    fn refuse_too_long(exchange: &mut Exchange) -> Vec<u8> {
        if let Some(asked) = exchange.extensions.get_mut::<Self>() {
            asked.converts = false;
        }
        Self::refuse(exchange, TOO_LONG)
    }

    /// Makes the response an error, because the provider's is of no use, and returns its body.
    fn refuse(exchange: &mut Exchange, why: &str) -> Vec<u8> {
        if let Some(asked) = exchange.extensions.get::<Self>() {
            asked.log_error(exchange.id(), why);
        }
        LlmError::Response(why.to_owned()).replace(exchange)
    }

    /// How a stream of this content type is cut; none if it is no stream of the provider.
    fn stream_format(&self, content_type: &[u8]) -> Option<StreamFormat> {
        let format = StreamFormat::of(content_type);
        match self.keeps_form {
            true => Some(format.unwrap_or(StreamFormat::Objects)),
            false => format.filter(|format| self.dialect.stream_formats().contains(format)),
        }
    }

    fn reader(&self, format: StreamFormat, keeps_text: bool) -> Stream {
        let logs = (self.reporting.plugin_name, keeps_text);
        Stream::new(self.call.clone(), (self.dialect, format), logs)
    }

    /// Whether the upstream has answered a request for a stream with something else, as its head shows, or the begin of its body.
    pub(crate) fn is_no_stream(exchange: &Exchange, begin: BodyBegin<'_>) -> bool {
        let asked = exchange.extensions.get::<Self>();
        let Some(asked) = asked.filter(|asked| asked.call.streams && !asked.keeps_form) else { return false };
        let is_all = matches!(exchange.response.framing, Framing::Length(n) if n == begin.bytes.len() as u64);
        let is_whole = begin.is_whole || is_all;
        match asked.stream_format(content_type(exchange)) {
            Some(format) => asked.reader(format, false).fails_at_once(begin.bytes, is_whole),
            None => true,
        }
    }

    fn log_error(&self, request_id: &str, error: &str) {
        let Call { provider, model, .. } = &self.call;
        tracing::error!(request_id, provider, model, "{}: {error}", self.reporting.plugin_name);
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
                asked.log_error(exchange.id(), &error.to_string());
                error.replace(exchange)
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
            (self.usage, self.model) = (Usage::of_openai(parsed.get("usage")), model);
            self.estimated = Some(estimated_of_openai(&parsed));
            return Ok(body);
        };
        (self.usage, self.model) = (reply.usage, reply.model.clone());
        self.estimated = Some(reply.estimated_tokens());
        Ok(if keeps_form { body } else { reply.into_json(call).to_string().into_bytes() })
    }

    /// The tokens so far: what the provider has counted, and an estimate of what it has not.
    fn usage(&self) -> Usage {
        match &self.stream {
            Some(stream) => stream.usage(self.estimated_prompt),
            None => Usage {
                prompt: self.usage.prompt.or(Some(self.estimated_prompt)),
                completion: self.usage.completion.or(self.estimated),
                ..self.usage
            },
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
        let is_passed = exchange.source == Source::Service && exchange.request.method != Method::Head;
        if asked.converts && is_passed {
            // The response was too long to be read, and passes as it is.
            asked.estimated = Some(exchange.bytes_out / 4);
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
            let outcome = (exchange.response.status, latency);
            let call = LlmCall::new(&asked.call, model, asked.usage(), outcome).with_first_token(first_token);
            call.report(&asked.reporting.calls);
            call.record(exchange, name, plugin);
        }
    }
}

fn content_type(exchange: &Exchange) -> &[u8] {
    exchange.response.headers.get_known(Known::ContentType).unwrap_or_default()
}

/// Whether the client has left before the response, while the model was at work: it has got the prompts all the same.
fn has_client_left(exchange: &Exchange) -> bool {
    exchange.response.status == CLIENT_GONE
        && exchange.service_status() != Some(CLIENT_GONE)
        && exchange.upstream_address().is_some()
}

/// Reads a stream as it passes, and converts one that is not in the form that the client wants.
struct Convert {
    /// Nothing was sent, so that the response may still be another.
    holds_head: bool,
    /// It has ended with an error: what the provider may still send is left with it.
    is_done: bool,
}

impl Convert {
    /// What the client gets of a stream that has become this: an error in the place of all, if there is nothing else.
    fn sent(&mut self, exchange: &mut Exchange, converted: Vec<u8>) -> Vec<u8> {
        if converted.is_empty() || !std::mem::take(&mut self.holds_head) {
            return converted;
        }
        let stream = exchange.extensions.get::<InFlight>().and_then(|asked| asked.stream.as_ref());
        // The head has been sent all the same, if another plugin has buffered the body.
        match stream.and_then(Stream::failure).filter(|_| exchange.bytes_out == 0) {
            Some(error) => error.replace(exchange),
            None => converted,
        }
    }
}

impl BodyFilter for Convert {
    fn chunk(&mut self, exchange: &mut Exchange, chunk: Vec<u8>) -> Vec<u8> {
        let Some(asked) = exchange.extensions.get_mut::<InFlight>() else { return Vec::new() };
        let Some(stream) = &mut asked.stream else { return Vec::new() };
        let converted = stream.push(&chunk);
        if asked.first_token.is_none() && stream.has_text() {
            asked.first_token = Some(Instant::now());
        }
        if asked.keeps_form {
            return chunk;
        }
        self.is_done = stream.has_failed();
        self.sent(exchange, converted)
    }

    fn holds_head(&self) -> bool {
        self.holds_head
    }

    fn is_done(&self) -> bool {
        self.is_done
    }

    fn end(mut self: Box<Self>, exchange: &mut Exchange) -> Vec<u8> {
        let Some(asked) = exchange.extensions.get_mut::<InFlight>() else { return Vec::new() };
        let rest = asked.stream.as_mut().map(Stream::end).unwrap_or_default();
        if asked.keeps_form { Vec::new() } else { self.sent(exchange, rest) }
    }
}

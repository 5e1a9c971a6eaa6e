//! Changes a request on its way to the model, and the response on its way back.

use super::Config;
use crate::llm::{Backend, Call, LlmCall, LlmError, Prompts, Route, Stream, Target, Usage, aws, log_payload};
use crate::shared::Uncacheable;
use crate::shared::aws::Credentials;
use tokio::time::Instant;
use weir_plugin::{BodyFilter, Exchange, Json, Known, Source, Uuid};

/// One configured instance.
pub(super) struct Proxy {
    config: Config,
    backend: Backend,
    /// Of AWS, if that is asked.
    credentials: Option<Credentials>,
    plugin: Uuid,
}

/// A request that a model answers.
struct InFlight {
    call: Call,
    asked: Instant,
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
}

impl Proxy {
    pub(super) fn new(config: Config, plugin: Uuid) -> Self {
        let is_signed = config.llm.model.provider == "bedrock";
        let credentials = if is_signed { aws::credentials(config.llm.auth.as_ref()) } else { None };
        Self { backend: Backend::new(config.llm.clone()), credentials, config, plugin }
    }

    pub(super) fn logs(&self) -> bool {
        let logging = &self.config.llm.logging;
        logging.log_statistics || logging.log_payloads
    }

    /// Whether requests and responses are in the provider's own form.
    fn is_native(&self) -> bool {
        self.config.llm_format != "openai"
    }

    fn max_len(&self) -> usize {
        usize::try_from(self.config.max_request_body_size).unwrap_or(0)
    }

    /// Has the request sent to the model.
    pub(super) fn ask(&self, exchange: &mut Exchange) -> Result<(), LlmError> {
        let prompts = if self.is_native() {
            Prompts(Prompts::of(exchange, self.max_len()).ok_or_else(LlmError::malformed)?)
        } else {
            Prompts::read(exchange, self.max_len())?
        };
        let mut call = self.backend.call(exchange, &prompts)?;
        if !self.is_native() {
            prompts.fit(call.route)?;
        }
        call.streams = self.streams(exchange, &prompts)?;
        let estimated_prompt = prompts.estimated_tokens(if call.streams { 1.8 } else { 1.0 });
        let logged = self.config.llm.logging.log_payloads;
        let request = exchange.body().filter(|_| logged).map(<[u8]>::to_vec);
        self.send(exchange, prompts, &call)?;
        exchange.extensions.insert(Uncacheable);
        exchange.extensions.insert(InFlight {
            call,
            asked: Instant::now(),
            estimated_prompt,
            request,
            response: None,
            usage: Usage::default(),
            model: None,
            stream: None,
            converts: false,
        });
        Ok(())
    }

    /// Whether the response is to be a stream.
    fn streams(&self, exchange: &Exchange, prompts: &Prompts) -> Result<bool, LlmError> {
        let path = exchange.path();
        let asks = match self.is_native() {
            true => path.ends_with("streamGenerateContent") || path.ends_with("converse-stream"),
            false => prompts.0.get("stream") == Some(&Json::Bool(true)),
        };
        match &*self.config.response_streaming {
            "deny" if asks => {
                Err(LlmError::Request("response streaming is not enabled for this LLM".to_owned()))
            }
            "always" => Ok(true),
            _ => Ok(asks),
        }
    }

    /// Replaces body, target and headers by what the provider expects.
    fn send(&self, exchange: &mut Exchange, mut prompts: Prompts, call: &Call) -> Result<(), LlmError> {
        let mut target = self.backend.target(call, exchange.path())?;
        let auth = self.backend.auth();
        let key = auth.and_then(|auth| auth.param_name.as_ref().zip(auth.param_value.as_ref()));
        let allows_own = auth.is_some_and(|auth| auth.allow_override);
        let key_in_body =
            key.filter(|_| auth.is_some_and(|auth| auth.param_location.as_deref() == Some("body")));
        let key_in_body = key_in_body.filter(|(name, _)| !(allows_own && prompts.0.contains_key(*name)));
        let is_unchanged = call.route == Route::Preserve || self.is_native();
        if self.is_native() {
            target.query = None;
        }
        if !is_unchanged || key_in_body.is_some() {
            let mut body = match is_unchanged {
                true => Json::Object(std::mem::take(&mut prompts.0)),
                false => self.backend.body(prompts, call)?,
            };
            if let Some((name, value)) = key_in_body {
                body[name] = value.expose().into();
            }
            exchange.set_body(body.to_string().into_bytes());
            exchange.request.headers.set("Content-Type", b"application/json");
        }
        self.lead(exchange, &target, call).map_err(LlmError::Provider)?;
        self.sign(exchange, &target, call)
    }

    /// Signs the request, if the provider is AWS.
    fn sign(&self, exchange: &mut Exchange, target: &Target, call: &Call) -> Result<(), LlmError> {
        let Some(region) = self.backend.dialect.region(call) else { return Ok(()) };
        let body = exchange.body().unwrap_or_default();
        // The client may have a query of its own.
        let target = Target { query: exchange.query().map(str::to_owned), ..target.clone() };
        for (name, value) in aws::signature(self.credentials.as_ref(), &region, (&target, body))? {
            let set = exchange.set_secret_header(&name, value.expose().as_bytes());
            set.map_err(|error| LlmError::Provider(error.to_string()))?;
        }
        Ok(())
    }

    /// Leads the request to its target, with the headers and the key that it needs there.
    fn lead(&self, exchange: &mut Exchange, target: &Target, call: &Call) -> Result<(), String> {
        target.apply(exchange)?;
        if call.route != Route::Preserve {
            exchange.set_method("POST");
        }
        exchange.request.headers.set("Accept-Encoding", b"identity");
        for (name, value) in self.backend.dialect.headers(call) {
            exchange.request.headers.set(name, value.as_bytes());
        }
        let Some(auth) = self.backend.auth() else { return Ok(()) };
        if !auth.allow_override {
            // They are of the gateway, not of the provider.
            exchange.request.headers.remove("Authorization");
            exchange.request.headers.remove("Cookie");
        }
        if let Some((name, value)) = auth.header_name.as_ref().zip(auth.header_value.as_ref())
            && !(auth.allow_override && exchange.request.headers.get(name).is_some())
        {
            exchange.set_secret_header(name, value.expose().as_bytes()).map_err(|error| error.to_string())?;
        }
        if let Some((name, value)) = auth.param_name.as_ref().zip(auth.param_value.as_ref())
            && auth.param_location.as_deref() == Some("query")
            && !(auth.allow_override && exchange.query_arg(name).is_some())
        {
            exchange.set_secret_query_arg(name, value.expose());
        }
        Ok(())
    }

    /// The head of the response has come.
    pub(super) fn answered(&self, exchange: &mut Exchange) {
        let is_answer = exchange.source == Source::Service && exchange.service_status() == Some(200);
        let content_type =
            exchange.response.headers.get_known(Known::ContentType).unwrap_or_default().to_vec();
        let Some(asked) = exchange.extensions.get_mut::<InFlight>().filter(|_| is_answer) else { return };
        let call = &asked.call;
        let name = format!("{}/{}", call.provider, call.model);
        let clears_cookies = matches!(&*call.provider, "openai" | "azure" | "mistral" | "gemini" | "bedrock");
        let is_unchanged = call.route == Route::Preserve || self.is_native();
        let streams = call.streams;
        if streams && !is_unchanged {
            let keeps_text = self.config.llm.logging.log_payloads;
            asked.stream = Some(Stream::new(call.clone(), self.backend.dialect, &content_type, keeps_text));
        }
        asked.converts = !streams && (!is_unchanged || self.logs());
        if asked.converts {
            exchange.buffer_response_body();
        } else if !is_unchanged {
            exchange.filter_response_body(Convert);
            exchange.response.headers.set("Content-Type", b"text/event-stream");
        }
        let headers = &mut exchange.response.headers;
        if clears_cookies {
            headers.remove("Set-Cookie");
        }
        if self.config.model_name_header {
            headers.set("X-Kong-LLM-Model", name.as_bytes());
        }
    }

    /// Brings a whole body into OpenAI's form.
    pub(super) fn convert(&self, exchange: &mut Exchange, body: Vec<u8>) -> Vec<u8> {
        let Some(mut asked) = exchange.extensions.remove::<InFlight>() else { return body };
        if !std::mem::take(&mut asked.converts) {
            exchange.extensions.insert(asked);
            return body;
        }
        let body = match self.converted(&mut asked, body) {
            Ok(body) => body,
            Err(error) => {
                tracing::error!(request_id = exchange.id(), "ai-proxy: {error}");
                exchange.response.status = 500;
                exchange.response.headers.remove("Content-Encoding");
                exchange.response.headers.set("Content-Type", b"application/json; charset=utf-8");
                error.body().into_bytes()
            }
        };
        asked.response = self.config.llm.logging.log_payloads.then(|| body.clone());
        exchange.extensions.insert(asked);
        body
    }

    /// The body in OpenAI's form; unchanged, if it is in the form that the client wants.
    fn converted(&self, asked: &mut InFlight, body: Vec<u8>) -> Result<Vec<u8>, LlmError> {
        let call = &asked.call;
        let is_unchanged = call.route == Route::Preserve || self.is_native();
        let undecodable = || LlmError::Provider(format!("failed to decode {} response", call.route.name()));
        let Ok(parsed) = serde_json::from_slice::<Json>(&body) else {
            return if is_unchanged { Ok(body) } else { Err(undecodable()) };
        };
        let reply = match call.route {
            Route::Preserve => None,
            _ => match self.backend.dialect.response(&parsed, call) {
                Err(_) if is_unchanged => None,
                reply => reply.map_err(LlmError::Provider)?,
            },
        };
        let model = parsed.get("model").and_then(Json::as_str).map(str::to_owned);
        let Some(reply) = reply else {
            (asked.usage, asked.model) = (Usage::of_openai(&parsed), model);
            return Ok(body);
        };
        (asked.usage, asked.model) = (reply.usage, reply.model.clone());
        Ok(if is_unchanged { body } else { reply.into_json(call).to_string().into_bytes() })
    }

    /// Adds to the records of log plugins.
    pub(super) fn log(&self, exchange: &mut Exchange) {
        let Some(asked) = exchange.extensions.remove::<InFlight>() else { return };
        let logging = &self.config.llm.logging;
        if logging.log_payloads {
            let response = asked.stream.as_ref().and_then(|stream| stream.text().map(str::as_bytes));
            let payloads =
                [("request", asked.request.as_deref()), ("response", asked.response.as_deref().or(response))];
            for (part, body) in payloads.into_iter().filter_map(|(part, body)| Some((part, body?))) {
                log_payload(exchange, "proxy", part, body);
            }
        }
        if logging.log_statistics {
            let usage = match &asked.stream {
                Some(stream) => stream.usage(asked.estimated_prompt),
                None => Usage { prompt: asked.usage.prompt.or(Some(asked.estimated_prompt)), ..asked.usage },
            };
            let model = asked.stream.as_ref().and_then(Stream::model).or(asked.model.as_deref());
            let ended = exchange.timing.end.unwrap_or_else(Instant::now);
            let latency = ended.saturating_duration_since(asked.asked);
            LlmCall::new(&asked.call, model, usage, latency).record(exchange, "proxy", self.plugin);
        }
    }
}

/// Converts a stream as it passes.
struct Convert;

impl BodyFilter for Convert {
    fn chunk(&mut self, exchange: &mut Exchange, chunk: Vec<u8>) -> Vec<u8> {
        let stream = exchange.extensions.get_mut::<InFlight>().and_then(|asked| asked.stream.as_mut());
        stream.map(|stream| stream.push(&chunk)).unwrap_or_default()
    }

    fn end(self: Box<Self>, exchange: &mut Exchange) -> Vec<u8> {
        let stream = exchange.extensions.get_mut::<InFlight>().and_then(|asked| asked.stream.as_mut());
        stream.map(Stream::end).unwrap_or_default()
    }
}

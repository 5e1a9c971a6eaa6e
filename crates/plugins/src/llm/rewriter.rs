//! A model that rewrites texts: it gets a prompt as the system's message and a text as the user's, and answers with another text.

use super::reply::estimated_tokens;
use super::{Backend, Call, Llm, LlmCall, LlmError, Object, Prompts, Reply, Target, Usage, aws, log_payload};
use crate::shared::aws::Credentials;
use fancy_regex::Regex;
use http::Request;
use http::header::CONTENT_TYPE;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_plugin::{
    BuildContext, Bytes, Exchange, FieldError, HttpClient, HttpProxies, HttpProxy, Json, ModelCalls, Record,
    Secret, Uuid, form,
};

/// How long connections to the provider are kept idle.
const IDLE: Duration = Duration::from_secs(60);

/// What is reported as the status of a model that has not answered, or not what can be read.
const FAILED: u16 = 502;

/// The longest response of a model.
const MAX_RESPONSE_LEN: usize = 8 * 1024 * 1024;

/// The model, and its instructions.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(crate) struct Rewriting {
    /// The instructions to the model.
    pub prompt: String,
    /// A regex: what it finds in the model's answer is taken, and an answer without it is an error. Case does not count.
    #[field(check = pattern)]
    pub transformation_extract_pattern: Option<String>,
    /// For how many milliseconds the model's answer is waited for.
    #[field(default = 60000, between = [1, 2147483646])]
    pub http_timeout: u32,
    /// Whether to verify the provider's certificate.
    #[field(default = true)]
    pub https_verify: bool,
    /// The longest body of a request, in bytes; 0 for no limit.
    #[field(nullable, default = 8192, gt = -1)]
    pub max_request_body_size: i64,
    /// The host of a proxy to providers without TLS.
    #[field(matches = host)]
    pub http_proxy_host: Option<String>,
    /// The port of it.
    pub http_proxy_port: Option<u16>,
    /// The host of a proxy to providers over TLS.
    #[field(matches = host)]
    pub https_proxy_host: Option<String>,
    /// The port of it.
    pub https_proxy_port: Option<u16>,
    /// The model.
    pub llm: Llm,
}

fn pattern(text: &str) -> Result<(), String> {
    regex(text).map(drop).map_err(|error| format!("{text:?} is no regex: {error}"))
}

/// A regex of Kong's flags: any case, and lines.
fn regex(text: &str) -> Result<Regex, Box<fancy_regex::Error>> {
    Ok(Regex::new(&format!("(?im){text}"))?)
}

fn violations(config: &Rewriting) -> Vec<FieldError> {
    let mut found = Vec::new();
    if config.llm.route_type != "llm/v1/chat" {
        let message = "'llm.route_type' must be 'llm/v1/chat' for AI transformer plugins";
        found.push(FieldError::new("llm.route_type", message));
    }
    for (name, other, is_wrong) in [
        (
            "http_proxy_port",
            "http_proxy_host",
            config.http_proxy_host.is_some() != config.http_proxy_port.is_some(),
        ),
        (
            "https_proxy_port",
            "https_proxy_host",
            config.https_proxy_host.is_some() != config.https_proxy_port.is_some(),
        ),
    ] {
        if is_wrong {
            let message = format!("all or none of these fields must be set: '{other}', '{name}'");
            found.push(FieldError::new(name, message));
        }
    }
    found
}

/// A configured model that rewrites texts.
pub(crate) struct Rewriter {
    /// The plugin's name, in logs.
    name: &'static str,
    plugin: Uuid,
    calls: Arc<ModelCalls>,
    config: Rewriting,
    backend: Backend,
    credentials: Option<Credentials>,
    extract: Option<Regex>,
    client: HttpClient,
}

/// What the model is asked.
pub(crate) struct Question {
    call: Call,
    request: Request<Bytes>,
    /// The tokens of the prompts, if the provider does not count them.
    estimated_prompt: u64,
}

/// What has come of asking the model.
pub(crate) struct Answer {
    text: Result<String, LlmError>,
    call: LlmCall,
    /// Empty if the model has not answered.
    body: Bytes,
}

/// What a model has answered.
struct Completion {
    text: String,
    usage: Usage,
    /// The model, where it is named.
    model: Option<String>,
}

impl Rewriter {
    pub(crate) fn new(
        name: &'static str,
        config: Rewriting,
        build: &BuildContext<'_>,
    ) -> Result<Self, String> {
        let dialer = build.tls_dialer(config.https_verify, "config.https_verify: false")?;
        let proxy = |host: &Option<String>, port| Some(HttpProxy { host: host.clone()?, port: port? });
        let proxies = HttpProxies {
            http: proxy(&config.http_proxy_host, config.http_proxy_port),
            https: proxy(&config.https_proxy_host, config.https_proxy_port),
        };
        let client = HttpClient::through(proxies, dialer, IDLE).with_max_body_len(MAX_RESPONSE_LEN);
        let extract = config.transformation_extract_pattern.as_deref().map(regex);
        let is_signed = config.llm.model.provider == "bedrock";
        Ok(Self {
            name,
            plugin: build.entity.id,
            calls: build.retained.get(),
            backend: Backend::new(config.llm.clone()),
            credentials: if is_signed { aws::credentials(config.llm.auth.as_ref()) } else { None },
            extract: extract.transpose().map_err(|error| error.to_string())?,
            client,
            config,
        })
    }

    /// The longest text, in bytes; none for no limit.
    pub(crate) fn max_len(&self) -> Option<usize> {
        usize::try_from(self.config.max_request_body_size).ok().filter(|max| *max > 0)
    }

    /// What the model is asked for this text, of a request or of its response.
    pub(crate) fn question(&self, exchange: &Exchange, text: &[u8]) -> Result<Question, LlmError> {
        let text = String::from_utf8_lossy(text);
        let messages = json!([
            { "role": "system", "content": self.config.prompt },
            { "role": "user", "content": text },
        ]);
        let prompts = Prompts(Object::from_iter([("messages".to_owned(), messages)]));
        if self.config.llm.logging.log_payloads {
            log_payload(exchange, self.name, "request", text.as_bytes());
        }
        let call = self.backend.call(exchange, &prompts)?;
        let estimated_prompt = prompts.estimated_tokens(1.0);
        let mut body = self.backend.body(prompts, &call)?;
        let target = self.backend.target(&call, "/")?;
        let url = self.keyed(&target, &mut body);
        let body = body.to_string().into_bytes();
        let mut request = Request::post(url).header(CONTENT_TYPE, "application/json");
        for (name, value) in self.headers(&call, (&target, &body))? {
            request = request.header(name, value.expose());
        }
        let failed = |_| LlmError::Provider("the URL or the key of the AI service cannot be sent".to_owned());
        Ok(Question { call, request: request.body(Bytes::from(body)).map_err(failed)?, estimated_prompt })
    }

    /// The URL, with the key where that is in the query; puts it into the body where it is there.
    fn keyed(&self, target: &Target, body: &mut Json) -> String {
        let url = target.url();
        let Some(auth) = self.backend.auth() else { return url };
        let Some((name, value)) = auth.param_name.as_ref().zip(auth.param_value.as_ref()) else { return url };
        if auth.param_location.as_deref() == Some("body") {
            body[name] = value.expose().into();
            return url;
        }
        let pair = form::Pair::new(name, Some(value.expose().as_bytes().into())).raw;
        format!("{url}{}{pair}", if url.contains('?') { '&' } else { '?' })
    }

    /// The headers that the provider needs, its key among them.
    fn headers(&self, call: &Call, sent: (&Target, &[u8])) -> Result<Vec<(String, Secret)>, LlmError> {
        let of_dialect = self.backend.dialect.headers(call).into_iter();
        let mut headers: Vec<_> = of_dialect.map(|(name, value)| (name.to_owned(), value.into())).collect();
        let auth = self.backend.auth();
        let key = auth.and_then(|auth| auth.header_name.clone().zip(auth.header_value.clone()));
        headers.extend(key);
        if let Some(region) = self.backend.dialect.region(call) {
            headers.extend(aws::signature(self.credentials.as_ref(), &region, sent)?);
        }
        Ok(headers)
    }

    /// Waits for the model's answer.
    pub(crate) async fn ask(&self, Question { call, request, estimated_prompt }: Question) -> Answer {
        let asked = Instant::now();
        let (status, body, said) = self.said(request, &call).await;
        let (text, mut usage, model) = match said {
            Ok(Completion { text, usage, model }) => (Ok(text), usage, model),
            Err(error) => (Err(error), Usage::default(), None),
        };
        if let Ok(text) = &text {
            usage.prompt.get_or_insert(estimated_prompt);
            usage.completion.get_or_insert(estimated_tokens(text));
        }
        let call = LlmCall::new(&call, model.as_deref(), usage, (status, asked.elapsed()));
        // An answer without what is looked for has cost its tokens all the same.
        Answer { text: text.and_then(|text| self.extracted(text)), call, body }
    }

    /// Asks the model: with which status it has answered, its body, and what it says.
    async fn said(&self, request: Request<Bytes>, call: &Call) -> (u16, Bytes, Result<Completion, LlmError>) {
        let failed =
            |why: String| LlmError::Request(format!("failed to introspect request with AI service: {why}"));
        let timeout = Duration::from_millis(self.config.http_timeout.into());
        let response = match self.client.send(request, timeout).await {
            Ok(response) => response,
            Err(error) => {
                let error = failed(format!("request to ai service failed: {error}"));
                return (FAILED, Bytes::new(), Err(error));
            }
        };
        let status = response.status().as_u16();
        let body = response.into_body();
        if status > 299 {
            return (status, body, Err(failed(format!("status code {status}"))));
        }
        let said = self.read(&body, call);
        (if said.is_ok() { status } else { FAILED }, body, said)
    }

    /// What the answer says.
    fn read(&self, body: &[u8], call: &Call) -> Result<Completion, LlmError> {
        let failed =
            |why: String| LlmError::Request(format!("failed to convert AI response to Kong format: {why}"));
        let parsed: Json = serde_json::from_slice(body)
            .map_err(|_| failed(format!("failed to decode {} response", call.route.name())))?;
        let missing = || LlmError::Request("no 'choices' in upstream AI service response".to_owned());
        Ok(match self.backend.dialect.response(&parsed, call).map_err(failed)? {
            Some(Reply { texts, usage, model, .. }) => {
                Completion { text: texts.into_iter().next().ok_or_else(missing)?, usage, model }
            }
            None => {
                let text = parsed.pointer("/choices/0/message/content").and_then(Json::as_str);
                let model = parsed.get("model").and_then(Json::as_str).map(str::to_owned);
                let text = text.ok_or_else(missing)?.to_owned();
                Completion { text, usage: Usage::of_openai(parsed.get("usage")), model }
            }
        })
    }

    /// The part of the answer that the pattern finds.
    fn extracted(&self, text: String) -> Result<String, LlmError> {
        let Some(extract) = &self.extract else { return Ok(text) };
        let found = extract.find(&text);
        let found = found
            .map_err(|error| LlmError::Request(format!("failed regex matching ai response: {error}")))?;
        let none = "AI response did not match specified regular expression";
        found.map(|found| found.as_str().to_owned()).ok_or_else(|| LlmError::Request(none.to_owned()))
    }

    /// Logs what was asked and answered, as far as that is configured, and returns the text.
    pub(crate) fn record(&self, exchange: &mut Exchange, answer: Answer) -> Result<String, LlmError> {
        let logging = &self.config.llm.logging;
        if logging.log_payloads && !answer.body.is_empty() {
            log_payload(exchange, self.name, "response", &answer.body);
        }
        if logging.log_statistics {
            answer.call.report(&self.calls);
            answer.call.record(exchange, self.name, self.plugin);
        }
        answer.text
    }
}

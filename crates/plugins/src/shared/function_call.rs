//! A function of a cloud, which is called in the place of an upstream.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response};
use serde_json::Value as Json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use weir_plugin::{
    BuildContext, Bytes, Exchange, Flow, Headers, HttpClient, HttpError, Known, LocalResponse, Record,
    Resume, Secret, is_reference, rule,
};

/// The longest response.
const MAX_RESPONSE_LEN: usize = 8 * 1024 * 1024;

/// How a function is reached.
pub(crate) struct Connection {
    /// How long it may take to respond.
    pub(crate) timeout: Duration,
    /// How long an idle connection is kept.
    pub(crate) keepalive: Duration,
    /// Whether its certificate is verified.
    pub(crate) ssl_verify: bool,
    /// What turns that off, for messages.
    pub(crate) verify_off: &'static str,
}

/// How plugins of APISIX reach a function, but for the timeout.
#[derive(Debug, Clone, Record)]
pub(crate) struct ApisixConnection {
    /// Whether to verify the server's certificate.
    #[field(default = true)]
    pub ssl_verify: bool,
    /// Whether connections are kept.
    #[field(default = true)]
    pub keepalive: bool,
    /// Milliseconds that an idle connection is kept.
    #[field(default = 60000, between = [1000, 2147483646])]
    pub keepalive_timeout: u32,
    /// Without effect: all idle connections are kept.
    #[field(default = 5, between = [1, 2147483646])]
    pub keepalive_pool: u32,
}

impl ApisixConnection {
    /// The connection with a timeout in milliseconds.
    pub(crate) fn with_timeout(&self, timeout: u32) -> Connection {
        let keepalive = if self.keepalive { self.keepalive_timeout } else { 0 };
        Connection {
            timeout: Duration::from_millis(timeout.into()),
            keepalive: Duration::from_millis(keepalive.into()),
            ssl_verify: self.ssl_verify,
            verify_off: "config.ssl_verify: false",
        }
    }
}

/// The status and the message where a function has no response.
pub(crate) type Failure = (u16, &'static str);

/// Those of APISIX's plugins.
pub(crate) const NO_ANSWER: Failure = (503, "The function did not answer");

/// A rule for fields: the URL of a function, without arguments.
pub(crate) fn function_url(url: &str) -> Result<(), String> {
    rule::url(url)?;
    match url.contains(['?', '#']) {
        true => Err("leave the arguments out: they are those of the request".to_owned()),
        false => Ok(()),
    }
}

/// What the client gets of a function's response, or why it can get nothing of it.
type Respond = fn(Response<Bytes>) -> Result<LocalResponse, String>;

/// Calls a function, and responds with what it responds.
#[derive(Clone)]
pub(crate) struct FunctionCaller(Arc<Caller>);

struct Caller {
    plugin: &'static str,
    client: HttpClient,
    timeout: Duration,
    failure: Failure,
    respond: Respond,
}

impl FunctionCaller {
    /// A caller whose clients get the status, the headers and the body of the function.
    pub(crate) fn new(
        plugin: &'static str,
        connection: Connection,
        failure: Failure,
        build: &BuildContext<'_>,
    ) -> Result<Self, String> {
        Self::responding(plugin, connection, failure, |response| Ok(relay(response)), build)
    }

    /// A caller whose clients get what a function makes of the response.
    pub(crate) fn responding(
        plugin: &'static str,
        connection: Connection,
        failure: Failure,
        respond: Respond,
        build: &BuildContext<'_>,
    ) -> Result<Self, String> {
        let dialer = build.tls_dialer(connection.ssl_verify, connection.verify_off)?;
        let client = HttpClient::keeping(dialer, connection.keepalive).with_max_body_len(MAX_RESPONSE_LEN);
        Ok(Self(Arc::new(Caller { plugin, client, timeout: connection.timeout, failure, respond })))
    }

    /// Calls the function with what is made of the client's request, and responds. A body that is too long to be buffered is refused.
    pub(crate) fn answer(
        &self,
        exchange: &Exchange,
        request: impl FnOnce(&Exchange) -> Result<Request<Bytes>, http::Error>,
    ) -> Flow {
        if exchange.body().is_none() && exchange.has_body() {
            return Flow::Respond(LocalResponse::error(413, "Payload too large"));
        }
        let (request, caller, asked) = (request(exchange), self.0.clone(), Instant::now());
        Flow::Wait(Box::pin(async move {
            let answered = match request {
                Ok(request) => caller.client.send(request, caller.timeout).await,
                Err(error) => Err(HttpError::Failed(error.to_string())),
            };
            let resume: Resume = Box::new(move |exchange| {
                Flow::Respond(caller.respond(exchange, answered).relayed(exchange, asked))
            });
            resume
        }))
    }
}

impl Caller {
    fn respond(&self, exchange: &Exchange, answered: Result<Response<Bytes>, HttpError>) -> LocalResponse {
        let error = match answered.map(self.respond) {
            Ok(Ok(response)) => return response,
            Ok(Err(why)) => why,
            Err(error) => format!("the function did not answer: {error}"),
        };
        tracing::error!(request_id = exchange.id(), "{}: {error}", self.plugin);
        let (status, message) = self.failure;
        LocalResponse::error(status, message)
    }
}

/// The client's request to another URL: its method, its headers but for those of the connection and the host, and its body.
pub(crate) fn forwarded(exchange: &Exchange, url: &str) -> Result<Request<Bytes>, http::Error> {
    let body = Bytes::copy_from_slice(exchange.body().unwrap_or_default());
    let method = Method::from_bytes(exchange.request.method_str().as_bytes())?;
    let mut request = Request::builder().method(method).uri(url).body(body)?;
    *request.headers_mut() = passed(&exchange.request.headers);
    Ok(request)
}

fn passed(headers: &Headers) -> HeaderMap {
    let is_own = |known: Known| {
        known.is_hop_by_hop() || matches!(known, Known::Host | Known::ContentLength | Known::Expect)
    };
    let passed = headers.iter().filter(|field| !is_own(field.known));
    let header =
        |name: &[u8], value| Some((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?));
    let mut map = HeaderMap::new();
    for (name, value) in passed.filter_map(|field| header(field.name, field.value)) {
        map.append(name, value);
    }
    map
}

/// A response with its status, its body, and its headers but for those of the connection.
fn relay(response: Response<Bytes>) -> LocalResponse {
    let (head, body) = response.into_parts();
    let answer = LocalResponse::raw(head.status.as_u16(), None, body);
    head.headers
        .iter()
        .filter(|(name, _)| is_passed_back(name.as_str()))
        .fold(answer, |answer, (name, value)| answer.header(name.as_str().to_owned(), value))
}

/// Whether a header of a response is for the client.
pub(crate) fn is_passed_back(name: &str) -> bool {
    let known = Known::of(name.as_bytes());
    !known.is_hop_by_hop() && known != Known::ContentLength
}

/// The values of a header that JSON describes: one, or a list of them.
pub(crate) fn header_values(values: Json) -> Vec<String> {
    match values {
        Json::String(text) => vec![text],
        Json::Number(number) => vec![number.to_string()],
        Json::Bool(flag) => vec![flag.to_string()],
        Json::Array(values) => values.into_iter().flat_map(header_values).collect(),
        Json::Null | Json::Object(_) => Vec::new(),
    }
}

/// A value of a header that is in no log.
pub(crate) fn secret_value(value: &str) -> Result<HeaderValue, http::Error> {
    let mut value = HeaderValue::from_str(value)?;
    value.set_sensitive(true);
    Ok(value)
}

/// A token of a name and a password, as far as it is one here rather than in a vault.
pub(crate) fn is_name_and_password(token: &str) -> bool {
    token.contains(':') || is_reference(token)
}

/// `Authorization` for a name and a password with a colon between.
pub(crate) fn basic(token: &Secret) -> Result<HeaderValue, http::Error> {
    secret_value(&format!("Basic {}", STANDARD.encode(token.expose())))
}

/// The URL of a function, followed by what the route leaves of the request's path; `/` alone adds nothing.
pub(crate) fn url_below(function: &str, exchange: &Exchange) -> String {
    let rest = exchange.upstream_target_path();
    match rest.as_str() {
        "/" => function.to_owned(),
        rest => format!("{}{rest}", function.trim_end_matches('/')),
    }
}

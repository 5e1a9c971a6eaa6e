//! Invokes an action of Apache OpenWhisk in the place of an upstream, APISIX's openwhisk.
//!
//! ```yaml
//! plugins:
//!   - name: openwhisk
//!     route: hello
//!     config:
//!       api_host: https://openwhisk.internal:3233
//!       service_token: "{vault://env/openwhisk-token}"
//!       namespace: guest
//!       action: hello
//! ```
//!
//! The route needs no service. `POST API_HOST/api/v1/namespaces/NAMESPACE/actions/PACKAGE/ACTION` gets the request's body, as JSON, with
//! `blocking=true`, `result` and `timeout` as arguments, and `service_token`, a name and a password with a colon between, as
//! `Authorization: Basic …`. Method, path, arguments and headers of the request are not sent.
//!
//! The result describes the response: `statusCode`, `headers`, and `body`, which is a text or sent as JSON. What it does not describe
//! is the status of OpenWhisk's response, and the whole result as JSON. So it is with `result: false`, where OpenWhisk also says
//! when and how the action ran.
//!
//! | status | message | when |
//! |---|---|---|
//! | 413 | `Payload too large` | the body is longer than 1 MiB, or a larger `client_body_buffer_size` |
//! | 503 | `The function did not answer` | there is no response within `timeout`, none at all, one that is not JSON, or one of more than 8 MiB. The log says which |

use crate::shared::function_call::{
    ApisixConnection, FunctionCaller, NO_ANSWER, basic, function_url, header_values, is_name_and_password,
    is_passed_back,
};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, Uri};
use weir_plugin::schema::quoted;
use weir_plugin::{
    AccessEffect, BuildContext, Bytes, Exchange, FieldWarning, Flow, Hooks, Json, LocalResponse, Phases,
    Plugin, Record, Secret, WantsBody, form,
};

const JSON: &str = "application/json";

/// The action, and how it is invoked.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The URL of OpenWhisk's API, up to the port.
    #[field(check = function_url)]
    pub api_host: String,
    /// A name and a password, `xx:xx`.
    #[field(secret)]
    pub service_token: Secret,
    /// The namespace of the action.
    #[field(len_max = 256, check = entity_name)]
    pub namespace: String,
    /// The package of the action.
    #[field(len_max = 256, check = entity_name)]
    pub package: Option<String>,
    /// The action.
    #[field(len_max = 256, check = entity_name)]
    pub action: String,
    /// Whether OpenWhisk responds with the result alone.
    #[field(default = true)]
    pub result: bool,
    /// The timeout of the action and of the response, in milliseconds.
    #[field(default = 60000, between = [1, 60000])]
    pub timeout: u32,
    #[field(flatten)]
    pub connection: ApisixConnection,
}

/// The path of OpenWhisk's API, which the plugin adds to `api_host`.
const API_PATH: &str = "/api/v1";

/// What follows host and port in a URL.
fn path(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').map_or("", |at| rest[at..].trim_end_matches('/'))
}

/// What is probably wrong with a path in `api_host`.
fn doubt_about(path: &str) -> Option<String> {
    let shown = quoted(path);
    let is_of_api = path.ends_with(API_PATH) || path.contains("/api/v1/namespaces/");
    match path {
        "" => None,
        _ if is_of_api => Some(format!(
            "leave the path out, because the plugin adds {API_PATH} and the rest, so that `{shown}` comes before that: write \
             the URL up to the port"
        )),
        _ => Some(format!(
            "the path `{shown}` comes before {API_PATH} in requests; write the URL up to the port, unless OpenWhisk is below it"
        )),
    }
}

/// A name as OpenWhisk allows it.
fn entity_name(name: &str) -> Result<(), String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let fits = |c: char| is_word(c) || "@ .-".contains(c);
    match name.starts_with(is_word) && name.chars().all(fits) && !name.ends_with(' ') {
        true => Ok(()),
        false => {
            Err("expected letters, digits, and _ @ . - or spaces within, with a letter, a digit or _ first"
                .to_owned())
        }
    }
}

impl Config {
    /// The URL of the action.
    fn url(&self) -> Result<Uri, String> {
        let mut url = format!("{}/api/v1/namespaces/", self.api_host.trim_end_matches('/'));
        form::encode(self.namespace.as_bytes(), &mut url);
        url.push_str("/actions/");
        if let Some(package) = &self.package {
            form::encode(package.as_bytes(), &mut url);
            url.push('/');
        }
        form::encode(self.action.as_bytes(), &mut url);
        let arguments = format!("?blocking=true&result={}&timeout={}", self.result, self.timeout);
        url.push_str(&arguments);
        url.parse().map_err(|error| format!("config.api_host: {error}"))
    }
}

/// One configured instance.
pub(super) struct OpenWhisk {
    url: Uri,
    authorization: HeaderValue,
    caller: FunctionCaller,
}

impl Plugin for OpenWhisk {
    const NAME: &'static str = "openwhisk";
    const PRIORITY: i32 = 747;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn warnings(config: &Json) -> Vec<FieldWarning> {
        let of_path = config["api_host"].as_str().and_then(|url| doubt_about(path(url)));
        let is_wrong = config["service_token"].as_str().is_some_and(|token| !is_name_and_password(token));
        let of_token = is_wrong.then(|| {
            "has no colon, so that OpenWhisk refuses it: write `NAME:PASSWORD`, as `wsk property get --auth` shows it"
                .to_owned()
        });
        let found = [("api_host", of_path), ("service_token", of_token)];
        found.into_iter().filter_map(|(field, message)| Some(FieldWarning::new(field, message?))).collect()
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let connection = config.connection.with_timeout(config.timeout);
        let caller = FunctionCaller::responding(Self::NAME, connection, NO_ANSWER, respond, build)?;
        let authorization = basic(&config.service_token);
        let authorization = authorization.map_err(|error| format!("config.service_token: {error}"))?;
        Ok(Self { url: config.url()?, authorization, caller })
    }
}

impl Hooks for OpenWhisk {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn wants_body(&self) -> WantsBody {
        WantsBody::Yes
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Answers
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        self.caller.answer(exchange, |exchange| {
            let body = Bytes::copy_from_slice(exchange.body().unwrap_or_default());
            let request = Request::post(self.url.clone()).header(CONTENT_TYPE, JSON);
            request.header(AUTHORIZATION, self.authorization.clone()).body(body)
        })
    }
}

/// The response that a result describes.
fn respond(response: Response<Bytes>) -> Result<LocalResponse, String> {
    let (head, body) = response.into_parts();
    let status = head.status.as_u16();
    if body.is_empty() {
        return Ok(LocalResponse::raw(status, None, body));
    }
    let mut result: Json = serde_json::from_slice(&body)
        .map_err(|error| format!("the response with the status {status} is not JSON: {error}"))?;
    let status = match &result["statusCode"] {
        Json::Null => status,
        written => described(written).ok_or_else(|| format!("statusCode is no status: {written}"))?,
    };
    let headers = result.get_mut("headers").map(Json::take).unwrap_or_default();
    let (content_type, body) = match result.get_mut("body").map(Json::take) {
        None | Some(Json::Null) => (Some(JSON), body),
        Some(Json::String(text)) => (None, text.into()),
        Some(other) => (Some(JSON), other.to_string().into()),
    };
    Ok(with_headers(status, content_type, body, headers))
}

fn described(status: &Json) -> Option<u16> {
    let number = status.as_u64().and_then(|number| u16::try_from(number).ok());
    number.filter(|number| (200..600).contains(number))
}

/// A response with the headers of a result.
fn with_headers(status: u16, content_type: Option<&str>, body: Bytes, headers: Json) -> LocalResponse {
    let Json::Object(headers) = headers else { return LocalResponse::raw(status, content_type, body) };
    let has_type = headers.keys().any(|name| name.eq_ignore_ascii_case("content-type"));
    let answer = LocalResponse::raw(status, content_type.filter(|_| !has_type), body);
    let passed = headers.into_iter().filter(|(name, _)| is_passed_back(name));
    passed.fold(answer, |answer, (name, values)| {
        let values = header_values(values).into_iter();
        values.fold(answer, |answer, value| answer.header(name.clone(), value))
    })
}

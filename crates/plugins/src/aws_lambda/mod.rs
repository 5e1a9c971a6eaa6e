//! Invokes a function of AWS Lambda in the place of an upstream, and responds with its result.
//!
//! ```yaml
//! plugins:
//!   - name: aws-lambda
//!     route: orders
//!     config:
//!       aws_region: eu-central-1
//!       function_name: orders
//!       awsgateway_compatible: true
//!       is_proxy_integration: true
//! ```
//!
//! The route needs no service.
//!
//! ## Credentials
//!
//! The first of these that is there:
//!
//! 1. `aws_key` and `aws_secret`, which may be [references to secrets](../vaults.md).
//! 2. `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN` in the node's environment; also with `AMAZON_` for `AWS_`.
//! 3. The profile `AWS_PROFILE` (`default`) in `~/.aws/credentials`, or in the file that `AWS_SHARED_CREDENTIALS_FILE` names.
//! 4. The container's, on ECS and with EKS Pod Identity: `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI`, or
//!    `AWS_CONTAINER_CREDENTIALS_FULL_URI` with `AWS_CONTAINER_AUTHORIZATION_TOKEN` or `AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE`.
//! 5. A web identity, as EKS gives to service accounts (IRSA): `AWS_WEB_IDENTITY_TOKEN_FILE` and `AWS_ROLE_ARN`. STS exchanges the
//!    token for credentials.
//! 6. The role of the EC2 instance. Set `aws_imds_protocol_version: v2` unless the instance still allows version 1.
//!    `AWS_EC2_METADATA_DISABLED=true` turns this off.
//!
//! With `aws_assume_role_arn` they are exchanged for credentials of that role, by STS.
//!
//! Temporary credentials are kept until five minutes before they expire, or for three quarters of a life below 20 minutes. One request
//! gets new ones, and the others go on with the old ones. Plugins with the same settings share them. If there are none, the log
//! says why, and no source is asked again for two seconds.
//!
//! ## What the function gets
//!
//! | set | payload |
//! |---|---|
//! | `awsgateway_compatible` | the event of version 1.0 that Amazon's API Gateway sends, with `resource` as the route's path |
//! | one of `forward_request_…` | an object of `request_method`, `request_headers`, `request_uri` and `request_uri_args`, `request_body` and `request_body_args`. A body whose type has no arguments and is no text is base64, and `request_body_base64` is true |
//! | none of them | the arguments of query and body together |
//!
//! A body has arguments if it is JSON, `application/x-www-form-urlencoded` or `multipart/form-data`. One of more than 1 MiB, or a larger
//! `client_body_buffer_size`, is left out with `skip_large_bodies`, and answered 413 without.
//!
//! ## What the client gets
//!
//! The function's result, with Lambda's status and headers. With `log_type: Tail`, the default, `X-Amz-Log-Result` has the last 4
//! KiB of the function's log: set `None` where clients must not see them.
//!
//! With `is_proxy_integration` the result describes the response: `statusCode`, and if needed `headers`, `multiValueHeaders`, `body` and
//! `isBase64Encoded`.
//!
//! | status | message | when |
//! |---|---|---|
//! | 413 | `Payload too large` | the body is too long to be buffered, and `skip_large_bodies` is off |
//! | 500 | `An unexpected error occurred` | there are no region, no credentials, or no answer within `timeout`, or Lambda refuses the invocation. The log says which |
//! | 502 | `Bad Gateway` | with `is_proxy_integration`: the result describes no response; `error` says why |
//!
//! Results of more than 8 MiB are an error; Lambda's own limit is 6 MB.
//!
//! Unlike Kong's, the plugin verifies the certificates of Lambda and STS. `ssl_verify: false` turns that off, for a `host` with a
//! certificate of its own.

mod answer;
mod error;
mod payload;
#[cfg(test)]
mod tests;

use crate::shared::aws::{
    self, AssumedRole, Credentials, CredentialsConfig, CredentialsProvider, ImdsVersion, sigv4,
};
use error::InvokeError;
use http::{Request, Response, Uri};
use serde_json::Value as Json;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use weir_plugin::{
    AccessEffect, BuildContext, Bytes, Exchange, FieldError, Flow, Hooks, HttpClient, HttpError, HttpProxy,
    LocalResponse, Phases, Plugin, Record, Resume, Secret, WantsBody, form,
};

/// The longest result.
const MAX_RESULT_LEN: usize = 8 * 1024 * 1024;

const VERIFY_OFF: &str = "config.ssl_verify: false";

/// The response for a function's result, for fuzzing.
#[cfg(any(test, fuzzing))]
pub(crate) fn answer_of(config: &Config, result: Response<Bytes>) -> LocalResponse {
    answer::answer(config, result, "")
}

/// The function, and how it is invoked.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The timeout in milliseconds.
    #[field(default = 60_000)]
    pub timeout: f64,
    /// Milliseconds that an idle connection is kept.
    #[field(default = 60_000)]
    pub keepalive: f64,
    /// The id of an access key.
    #[field(secret)]
    pub aws_key: Option<Secret>,
    /// Its secret.
    #[field(secret)]
    pub aws_secret: Option<Secret>,
    /// The ARN of a role to assume.
    #[field(encrypted, referenceable)]
    pub aws_assume_role_arn: Option<String>,
    /// The name of the session of that role.
    #[field(nullable, default = "kong")]
    pub aws_role_session_name: String,
    /// The URL of STS, in the place of the region's.
    #[field(matches = url)]
    pub aws_sts_endpoint_url: Option<String>,
    /// The region; if unset, that of `AWS_REGION` or `AWS_DEFAULT_REGION` in the environment.
    #[field(matches = host)]
    pub aws_region: Option<String>,
    /// The function: its name or ARN.
    pub function_name: Option<String>,
    /// The version or alias of the function.
    pub qualifier: Option<String>,
    /// Whether the function's result is waited for (`RequestResponse`), not waited for (`Event`), or the invocation only checked.
    #[field(default = "RequestResponse", one_of = ["RequestResponse", "Event", "DryRun"])]
    pub invocation_type: String,
    /// Whether the response has the end of the function's log.
    #[field(default = "Tail", one_of = ["Tail", "None"])]
    pub log_type: String,
    /// The host of the Lambda API, in the place of the region's.
    #[field(matches = host)]
    pub host: Option<String>,
    /// Its port.
    #[field(nullable, default = 443)]
    pub port: u16,
    /// Invokes over HTTP.
    #[field(nullable, default = false)]
    pub disable_https: bool,
    /// The status of the response where the function failed with an error that it does not handle.
    #[field(between = [100, 999])]
    pub unhandled_status: Option<u16>,
    /// Sends the request's method to the function.
    #[field(nullable, default = false)]
    pub forward_request_method: bool,
    /// Sends its path and query.
    #[field(nullable, default = false)]
    pub forward_request_uri: bool,
    /// Sends its headers.
    #[field(nullable, default = false)]
    pub forward_request_headers: bool,
    /// Sends its body.
    #[field(nullable, default = false)]
    pub forward_request_body: bool,
    /// Has the function's result describe the response.
    #[field(nullable, default = false)]
    pub is_proxy_integration: bool,
    /// Sends the event of Amazon's API Gateway.
    #[field(nullable, default = false)]
    pub awsgateway_compatible: bool,
    /// A proxy that Lambda and STS are asked through.
    #[field(check = proxy)]
    pub proxy_url: Option<String>,
    /// Leaves bodies out that are too long to be buffered.
    #[field(nullable, default = true)]
    pub skip_large_bodies: bool,
    /// Sends bodies as base64.
    #[field(nullable, default = true)]
    pub base64_encode_body: bool,
    /// The version of the EC2 metadata service.
    #[field(default = "v1", one_of = ["v1", "v2"])]
    pub aws_imds_protocol_version: String,
    /// Whether empty lists in JSON results become empty objects (`legacy`) or stay (`correct`).
    #[field(default = "legacy", one_of = ["legacy", "correct"])]
    pub empty_arrays_mode: String,
    /// Whether to verify the certificates of Lambda and STS.
    #[field(extension, default = true)]
    pub ssl_verify: bool,
}

fn proxy(url: &str) -> Result<(), String> {
    if url.starts_with("https://") {
        return Err("proxy_url scheme must be http".to_owned());
    }
    url.parse::<HttpProxy>().map(drop)
}

fn violations(config: &Config) -> Vec<FieldError> {
    let mut found = Vec::new();
    if config.aws_key.is_some() != config.aws_secret.is_some() {
        let missing = if config.aws_key.is_some() { "aws_secret" } else { "aws_key" };
        found.push(FieldError::new(
            missing,
            "`aws_key` and `aws_secret` belong together; set both, or neither",
        ));
    }
    if config.function_name.as_deref().is_none_or(str::is_empty) {
        found.push(FieldError::new("function_name", "required: write the name or the ARN of the function"));
    }
    found
}

impl Config {
    fn sends_body(&self) -> bool {
        let forwards_other =
            self.forward_request_method || self.forward_request_uri || self.forward_request_headers;
        self.awsgateway_compatible || self.forward_request_body || !forwards_other
    }

    /// The credentials that it names.
    fn given(&self) -> Result<Option<Credentials>, String> {
        let (Some(key), Some(secret)) = (&self.aws_key, &self.aws_secret) else { return Ok(None) };
        if key.expose().is_empty() || secret.expose().is_empty() {
            return Err("config.aws_key or config.aws_secret is empty; check what it refers to".to_owned());
        }
        let (access_key_id, secret_access_key) = (key.expose().to_owned(), secret.clone());
        Ok(Some(Credentials { access_key_id, secret_access_key, session_token: None }))
    }

    /// The URL of the function.
    fn url(&self, region: &str) -> Result<Uri, String> {
        let scheme = if self.disable_https { "http" } else { "https" };
        let host = match &self.host {
            Some(host) if host.contains(':') && !host.starts_with('[') => format!("[{host}]"),
            Some(host) => host.clone(),
            None => format!("lambda.{region}.{}", aws::domain(region)),
        };
        let mut url = format!("{scheme}://{host}:{}/2015-03-31/functions/", self.port);
        form::encode(self.function_name.as_deref().unwrap_or_default().as_bytes(), &mut url);
        url.push_str("/invocations");
        if let Some(qualifier) = &self.qualifier {
            url.push_str("?Qualifier=");
            form::encode(qualifier.as_bytes(), &mut url);
        }
        url.parse().map_err(|error| format!("the URL of the function is not valid: {error}"))
    }
}

/// One configured instance.
pub(super) struct AwsLambda(Arc<Instance>);

struct Instance {
    config: Config,
    /// None if no region is known.
    function: Option<Function>,
}

/// What is invoked, and how.
struct Function {
    url: Uri,
    region: String,
    client: HttpClient,
    credentials: Arc<CredentialsProvider>,
}

impl Plugin for AwsLambda {
    const NAME: &'static str = "aws-lambda";
    const PRIORITY: i32 = 750;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let region = config.aws_region.clone().or_else(aws::region_of_environment);
        let function = region.map(|region| Function::new(&config, region, build)).transpose()?;
        Ok(Self(Arc::new(Instance { config, function })))
    }
}

impl Hooks for AwsLambda {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn wants_body(&self) -> WantsBody {
        if self.0.config.sends_body() { WantsBody::Yes } else { WantsBody::No }
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Answers
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let config = &self.0.config;
        if config.sends_body() && exchange.body().is_none() && exchange.has_body() {
            if !config.skip_large_bodies {
                return Flow::Respond(LocalResponse::error(413, "Payload too large"));
            }
            tracing::warn!(
                request_id = exchange.id(),
                "aws-lambda: the body is too long to be buffered and left out; raise client_body_buffer_size"
            );
        }
        let (payload, instance) = (payload::payload(config, exchange), self.0.clone());
        let asked = Instant::now();
        Flow::Wait(Box::pin(async move {
            let result = instance.invoke(&payload).await;
            let resume: Resume =
                Box::new(move |exchange| Flow::Respond(instance.respond(exchange, asked, result)));
            resume
        }))
    }
}

impl Instance {
    async fn invoke(&self, payload: &Json) -> Result<Response<Bytes>, InvokeError> {
        let function = self.function.as_ref().ok_or(InvokeError::NoRegion)?;
        let timeout = milliseconds(self.config.timeout);
        let invoked = tokio::time::timeout(timeout, function.invoke(&self.config, payload, timeout));
        let result = invoked.await.unwrap_or(Err(InvokeError::Http(HttpError::Timeout)))?;
        match result.status().as_u16() {
            ..400 => Ok(result),
            status => Err(InvokeError::Refused(status, message(result.body()))),
        }
    }

    fn respond(
        &self,
        exchange: &mut Exchange,
        asked: Instant,
        result: Result<Response<Bytes>, InvokeError>,
    ) -> LocalResponse {
        let answer = match result {
            Ok(result) => answer::answer(&self.config, result, exchange.id()),
            Err(error) => {
                tracing::error!(request_id = exchange.id(), "aws-lambda: {error}");
                LocalResponse::error(500, "An unexpected error occurred")
            }
        };
        answer.relayed(exchange, asked)
    }
}

impl Function {
    fn new(config: &Config, region: String, build: &BuildContext<'_>) -> Result<Self, String> {
        let proxy = config.proxy_url.as_ref().map(|url| url.parse::<HttpProxy>()).transpose()?;
        let arn = config.aws_assume_role_arn.clone().filter(|arn| !arn.is_empty());
        let credentials = CredentialsConfig {
            given: config.given()?,
            role: arn.map(|arn| AssumedRole { arn, session_name: config.aws_role_session_name.clone() }),
            region: region.clone(),
            sts_endpoint: config.aws_sts_endpoint_url.clone(),
            imds: if config.aws_imds_protocol_version == "v2" { ImdsVersion::V2 } else { ImdsVersion::V1 },
            proxy: proxy.clone(),
            ssl_verify: config.ssl_verify,
        };
        let dialer = build.tls_dialer(config.ssl_verify, VERIFY_OFF)?;
        let client = HttpClient::through(proxy, dialer, milliseconds(config.keepalive));
        Ok(Self {
            url: config.url(&region)?,
            region,
            client: client.with_max_body_len(MAX_RESULT_LEN),
            credentials: CredentialsProvider::of(&credentials, build, VERIFY_OFF)?,
        })
    }

    async fn invoke(
        &self,
        config: &Config,
        payload: &Json,
        timeout: Duration,
    ) -> Result<Response<Bytes>, InvokeError> {
        let credentials = self.credentials.get().await.map_err(InvokeError::Credentials)?;
        let request = Request::post(self.url.clone())
            .header("Content-Type", "application/json")
            .header("X-Amz-Invocation-Type", &config.invocation_type)
            .header("X-Amz-Log-Type", &config.log_type)
            .body(payload.to_string().into());
        let mut request = request.map_err(InvokeError::Unsendable)?;
        let scope = sigv4::Scope { region: &self.region, service: "lambda" };
        let signed = sigv4::sign(&mut request, &credentials, scope, SystemTime::now());
        signed.map_err(|error| InvokeError::Unsendable(error.into()))?;
        self.client.send(request, timeout).await.map_err(InvokeError::Http)
    }
}

/// What Lambda says of an error.
fn message(body: &[u8]) -> String {
    let body: Json = serde_json::from_slice(body).unwrap_or_default();
    let message = ["Message", "message", "Type"].iter().find_map(|name| body.get(name)?.as_str());
    message.unwrap_or("no message").chars().take(300).collect()
}

fn milliseconds(milliseconds: f64) -> Duration {
    Duration::from_secs_f64((milliseconds / 1000.0).clamp(0.0, 86_400.0))
}

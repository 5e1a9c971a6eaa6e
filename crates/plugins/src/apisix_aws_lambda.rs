//! Invokes a function of AWS Lambda by the URL of Amazon's API Gateway or of the function, APISIX's aws-lambda.
//!
//! ```yaml
//! plugins:
//!   - name: apisix-aws-lambda
//!     route: orders
//!     config:
//!       function_uri: https://x9w6z07gb9.execute-api.eu-central-1.amazonaws.com/default/orders
//!       authorization:
//!         iam:
//!           accesskey: "{vault://env/aws-key}"
//!           secretkey: "{vault://env/aws-secret}"
//!           aws_region: eu-central-1
//! ```
//!
//! The route needs no service. [aws-lambda](aws-lambda.md), Kong's plugin, invokes functions by the API of Lambda.
//!
//! The request goes to `function_uri`, followed by what the route leaves of the request's path: for a request of `/orders/7` and a route
//! with the path `/orders` that is `/7`. For a route of APISIX, it is what `*` stands for. Method, arguments, headers and body are those of the request.
//!
//! `authorization.apikey` is sent as `x-api-key`. Otherwise, `authorization.iam` signs the request by Signature Version 4, for the
//! `service` `execute-api`, which is API Gateway, or `lambda`, which is the URL of a function. As in APISIX, a client's own
//! `x-api-key` stays, and a request with an `Authorization` of the client's is not signed. Where `function_uri` is of AWS, another
//! `service` or `aws_region` than that of the host is refused when it is configured, because AWS would refuse each request.
//!
//! The client gets the function's status, headers and body.
//!
//! | status | message | when |
//! |---|---|---|
//! | 413 | `Payload too large` | the body is longer than 1 MiB, or a larger `client_body_buffer_size` |
//! | 503 | `The function did not answer` | there is no response within `timeout`, none at all, or one of more than 8 MiB. The log says which |
//!
//! Unlike APISIX's, a signature is valid for arguments with any characters, and `Connection`, `User-Agent` and the like are not signed.

use crate::shared::aws::{Credentials, sigv4};
use crate::shared::function_call::{
    ApisixConnection, FunctionCaller, NO_ANSWER, forwarded, function_url, secret_value, url_below,
};
use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderValue, Request};
use std::time::SystemTime;
use weir_plugin::{
    BuildContext, Bytes, Exchange, FieldError, FieldWarning, Flow, Hooks, Json, Phases, Plugin, Record,
    Secret, WantsBody, form,
};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The function, and how it is asked.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The URL, without arguments.
    #[field(check = function_url)]
    pub function_uri: String,
    /// What the function knows the caller by.
    pub authorization: Option<Authorization>,
    /// The timeout in milliseconds.
    #[field(default = 3000, between = [100, 2147483646])]
    pub timeout: u32,
    #[field(flatten)]
    pub connection: ApisixConnection,
}

/// A key or an account.
#[derive(Debug, Clone, Record)]
pub(super) struct Authorization {
    /// A key of API Gateway.
    #[field(secret)]
    pub apikey: Option<Secret>,
    /// An access key that requests are signed with.
    pub iam: Option<Iam>,
}

/// An access key, and what it signs for.
#[derive(Debug, Clone, Record)]
pub(super) struct Iam {
    /// The id of the access key.
    #[field(secret)]
    pub accesskey: Secret,
    /// Its secret.
    #[field(secret)]
    pub secretkey: Secret,
    /// The region of the function.
    #[field(default = "us-east-1")]
    pub aws_region: String,
    /// `execute-api` for API Gateway, `lambda` for the URL of a function.
    #[field(default = "execute-api")]
    pub service: String,
}

/// The services of AWS that functions are asked by.
const SERVICES: [&str; 2] = ["execute-api", "lambda"];

/// The service and the region that a host of AWS says.
fn of_host(url: &str) -> Option<(&'static str, &str)> {
    let rest = url.split_once("://")?.1;
    let host = rest.split(['/', ':']).next().unwrap_or_default();
    let labels: Vec<_> = host.split('.').collect();
    match labels[..] {
        [_, "execute-api", region, "amazonaws", "com", ..] => Some(("execute-api", region)),
        [_, "lambda-url", region, "on", "aws"] => Some(("lambda", region)),
        ["lambda", region, "amazonaws", "com", ..] => Some(("lambda", region)),
        _ => None,
    }
}

/// What AWS refuses, because the signature is for another service or region.
fn violations(config: &Config) -> Vec<FieldError> {
    let iam = config.authorization.as_ref().filter(|it| it.apikey.is_none()).and_then(|it| it.iam.as_ref());
    let (Some(iam), Some((service, region))) = (iam, of_host(&config.function_uri)) else {
        return Vec::new();
    };
    let (given, wanted) = ([("service", &iam.service), ("aws_region", &iam.aws_region)], [service, region]);
    let differs = given.into_iter().zip(wanted).filter(|((_, given), wanted)| given != wanted);
    differs
        .map(|((field, _), wanted)| {
            let message =
                format!("AWS refuses signatures for another one than that of the host; write `{wanted}`");
            FieldError::new(format!("authorization.iam.{field}"), message)
        })
        .collect()
}

/// One configured instance.
pub(super) struct ApisixAwsLambda {
    url: String,
    authorization: Option<Means>,
    caller: FunctionCaller,
}

/// How the caller is authorized.
enum Means {
    Key(HeaderValue),
    Signature { credentials: Credentials, region: String, service: String },
}

impl Plugin for ApisixAwsLambda {
    const NAME: &'static str = "apisix-aws-lambda";
    const PRIORITY: i32 = 748;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn warnings(config: &Json) -> Vec<FieldWarning> {
        let service = config["authorization"]["iam"]["service"].as_str();
        let message = "functions of AWS are asked by the service `execute-api` (API Gateway) or `lambda` (the URL of a \
                       function), and refuse signatures for another; write one of these";
        let is_other = service.is_some_and(|service| !SERVICES.contains(&service));
        is_other.then(|| FieldWarning::new("authorization.iam.service", message)).into_iter().collect()
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let connection = config.connection.with_timeout(config.timeout);
        let caller = FunctionCaller::new(Self::NAME, connection, NO_ANSWER, build)?;
        let authorization = config.authorization.map(means).transpose()?.flatten();
        Ok(Self { url: config.function_uri, authorization, caller })
    }
}

fn means(authorization: Authorization) -> Result<Option<Means>, String> {
    if let Some(key) = authorization.apikey {
        let value = secret_value(key.expose());
        let value = value.map_err(|_| "config.authorization.apikey: not what a header can have")?;
        return Ok(Some(Means::Key(value)));
    }
    Ok(authorization.iam.map(|Iam { accesskey, secretkey, aws_region, service }| {
        let access_key_id = accesskey.expose().to_owned();
        let credentials = Credentials { access_key_id, secret_access_key: secretkey, session_token: None };
        Means::Signature { credentials, region: aws_region, service }
    }))
}

impl Hooks for ApisixAwsLambda {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn wants_body(&self) -> WantsBody {
        WantsBody::Yes
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        self.caller.answer(exchange, |exchange| {
            let mut request = forwarded(exchange, &self.url(exchange))?;
            self.authorize(&mut request)?;
            Ok(request)
        })
    }
}

impl ApisixAwsLambda {
    /// With the arguments as AWS escapes them where it verifies signatures.
    fn url(&self, exchange: &Exchange) -> String {
        let mut url = url_below(&self.url, exchange);
        let mut separator = '?';
        for pair in exchange.query_args(usize::MAX) {
            url.push(separator);
            form::encode(&pair.name, &mut url);
            url.push('=');
            form::encode(pair.value.as_deref().unwrap_or_default(), &mut url);
            separator = '&';
        }
        url
    }

    /// What the client sent itself stays.
    fn authorize(&self, request: &mut Request<Bytes>) -> Result<(), http::Error> {
        match &self.authorization {
            Some(Means::Key(key)) => {
                let header = request.headers_mut().entry(API_KEY);
                header.or_insert_with(|| key.clone());
            }
            Some(Means::Signature { credentials, region, service })
                if !request.headers().contains_key(AUTHORIZATION) =>
            {
                sigv4::sign(request, credentials, sigv4::Scope { region, service }, SystemTime::now())?;
            }
            _ => {}
        }
        Ok(())
    }
}

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
//! `service` or `aws_region` than that of the host gets a warning, because AWS refuses such signatures.
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
use weir_plugin::schema::quoted;
use weir_plugin::{
    AccessEffect, BuildContext, Bytes, Exchange, FieldWarning, Flow, Hooks, Json, Phases, Plugin, Record,
    Secret, WantsBody, form, is_reference,
};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The function, and how it is asked.
#[derive(Debug, Clone, Record)]
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

/// What AWS refuses, because the signature is for another service or region: not more than a warning, because `execute-api` is
/// the default of APISIX for the URLs of functions too, and objects have to load whose host another server stands for.
fn refused_signatures(config: &Json) -> Vec<FieldWarning> {
    let authorization = &config["authorization"];
    let iam = &authorization["iam"];
    if !authorization["apikey"].is_null() || iam.is_null() {
        return Vec::new();
    }
    let given = |field: &str| iam[field].as_str().filter(|text| !is_reference(text));
    let warning =
        |field: &str, message: String| FieldWarning::new(format!("authorization.iam.{field}"), message);
    let Some((service, region)) = config["function_uri"].as_str().and_then(of_host) else {
        let is_other = given("service").is_some_and(|service| !SERVICES.contains(&service));
        let message = "functions of AWS are asked by the service `execute-api` (API Gateway) or `lambda` (the URL of a \
                       function), and refuse signatures for another; write one of these";
        return is_other.then(|| warning("service", message.to_owned())).into_iter().collect();
    };
    let wanted = [("service", service), ("aws_region", region)];
    let differs = wanted.into_iter().filter(|(field, wanted)| given(field).is_some_and(|it| it != *wanted));
    let message = |wanted: &str| {
        format!("AWS refuses signatures for another one than that of the host; write `{}`", quoted(wanted))
    };
    differs.map(|(field, wanted)| warning(field, message(wanted))).collect()
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
        refused_signatures(config)
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

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Answers
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

#[cfg(test)]
mod tests {
    use super::refused_signatures;
    use serde_json::{Value, json};

    /// The fields of `iam` that are warned about.
    fn warned(host: &str, iam: Value) -> Vec<String> {
        let url = format!("https://{host}/x");
        let found = refused_signatures(
            &json!({ "function_uri": url, "authorization": { "apikey": null, "iam": iam } }),
        );
        found.into_iter().map(|warning| warning.path.replace("authorization.iam.", "")).collect()
    }

    #[test]
    fn signatures_are_for_the_service_and_the_region_of_the_host() {
        let iam = |service: &str, region: &str| json!({ "service": service, "aws_region": region });
        for (host, iam, expected) in [
            ("a.execute-api.eu-west-1.amazonaws.com", iam("execute-api", "eu-west-1"), vec![]),
            (
                "a.execute-api.eu-west-1.amazonaws.com:443",
                iam("execute-api", "us-east-1"),
                vec!["aws_region"],
            ),
            ("a.lambda-url.eu-west-1.on.aws", iam("execute-api", "us-east-1"), vec!["service", "aws_region"]),
            ("a.lambda-url.eu-west-1.on.aws", iam("ec2", "eu-west-1"), vec!["service"]),
            ("a.lambda-url.eu-west-1.on.aws", iam("lambda", "{vault://env/region}"), vec![]),
            ("a.lambda-url.eu-west-1.on.aws", iam("{vault://env/service}", "eu-west-1"), vec![]),
            ("a.lambda-url.eu-west-1.on.aws", json!(null), vec![]),
            ("a.test", iam("execute-api", "eu-west-1"), vec![]),
            ("a.test", iam("{vault://env/service}", "eu-west-1"), vec![]),
            ("a.test", iam("ec2", "eu-west-1"), vec!["service"]),
        ] {
            assert_eq!(warned(host, iam.clone()), expected, "{host} {iam}");
        }
    }
}

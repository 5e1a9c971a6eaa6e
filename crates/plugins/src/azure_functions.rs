//! Invokes a function of Azure Functions in the place of an upstream, and responds with its response.
//!
//! ```yaml
//! plugins:
//!   - name: azure-functions
//!     route: orders
//!     config:
//!       appname: shop
//!       functionname: orders
//!       apikey: "{vault://env/azure-key}"
//! ```
//!
//! The route needs no service. The request goes to `https://APPNAME.HOSTDOMAIN/ROUTEPREFIX/FUNCTIONNAME`, followed by the path
//! that an upstream would be asked for: for a request of `/orders/7` and a route with the path `/orders` that is `/7`. Method, query,
//! headers and body are those of the request, with `x-functions-key` and `x-functions-clientid` as configured.
//!
//! The client gets the function's status, headers and body.
//!
//! | status | message | when |
//! |---|---|---|
//! | 413 | `Payload too large` | the body is longer than 1 MiB, or a larger `client_body_buffer_size` |
//! | 500 | `An unexpected error occurred` | there is no response within `timeout`, none at all, or one of more than 8 MiB. The log says which |
//!
//! As in Kong, the function's certificate is not verified unless `https_verify` is set. Set it: the key goes to any server that answers.

use crate::shared::function_call::{Connection, FunctionCaller, forwarded, secret_value};
use http::Uri;
use http::header::{HeaderMap, HeaderName};
use std::time::Duration;
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldError, Flow, Hooks, Phases, Plugin, Record, Secret, WantsBody,
};

/// The function, and how it is asked.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The timeout in milliseconds.
    #[field(nullable, default = 600_000)]
    pub timeout: f64,
    /// Milliseconds that an idle connection is kept.
    #[field(nullable, default = 60_000)]
    pub keepalive: f64,
    /// Asks over HTTPS.
    #[field(nullable, default = true)]
    pub https: bool,
    /// Whether to verify the function's certificate.
    #[field(nullable, default = false)]
    pub https_verify: bool,
    /// The key of the function or of the app.
    #[field(secret)]
    pub apikey: Option<Secret>,
    /// The name of the key.
    #[field(secret)]
    pub clientid: Option<Secret>,
    /// The name of the app.
    pub appname: String,
    /// The domain below which the app is.
    #[field(default = "azurewebsites.net")]
    pub hostdomain: String,
    /// The prefix of the app's paths.
    #[field(nullable, default = "api")]
    pub routeprefix: String,
    /// The name of the function.
    pub functionname: String,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let host = config.host();
    match weir_plugin::rule::host(&host) {
        Ok(()) => Vec::new(),
        Err(why) => vec![FieldError::new("appname", format!("it makes no host with `hostdomain`: {why}"))],
    }
}

impl Config {
    fn host(&self) -> String {
        format!("{}.{}", self.appname, self.hostdomain)
    }

    /// The URL of the function, without a slash at the end.
    fn url(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        let prefix = self.routeprefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        format!("{scheme}://{}{prefix}/{}", self.host(), self.functionname.trim_matches('/'))
    }
}

/// One configured instance.
pub(super) struct AzureFunctions {
    url: String,
    /// Those that the plugin sets.
    headers: HeaderMap,
    caller: FunctionCaller,
}

impl Plugin for AzureFunctions {
    const NAME: &'static str = "azure-functions";
    const PRIORITY: i32 = 749;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let url = config.url();
        url.parse::<Uri>().map_err(|error| format!("config.functionname makes no URL: {error}"))?;
        let connection = Connection {
            timeout: milliseconds(config.timeout),
            keepalive: milliseconds(config.keepalive),
            ssl_verify: config.https_verify,
            verify_off: "config.https_verify: false",
        };
        let failure = (500, "An unexpected error occurred");
        let caller = FunctionCaller::new(Self::NAME, connection, failure, build)?;
        Ok(Self { url, headers: own_headers(&config)?, caller })
    }
}

fn own_headers(config: &Config) -> Result<HeaderMap, String> {
    let named = [("x-functions-key", &config.apikey), ("x-functions-clientid", &config.clientid)];
    let given = named.into_iter().filter_map(|(name, secret)| Some((name, secret.as_ref()?)));
    let header = |(name, secret): (&'static str, &Secret)| {
        let value = secret_value(secret.expose())
            .map_err(|_| format!("config: the value of {name} is not one that a header can have"))?;
        Ok((HeaderName::from_static(name), value))
    };
    given.map(header).collect()
}

impl Hooks for AzureFunctions {
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
            let query = exchange.query().map(|query| format!("?{query}")).unwrap_or_default();
            let url = format!("{}{}{query}", self.url, exchange.upstream_target_path());
            let mut request = forwarded(exchange, &url)?;
            request.headers_mut().extend(self.headers.clone());
            Ok(request)
        })
    }
}

fn milliseconds(milliseconds: f64) -> Duration {
    Duration::from_secs_f64((milliseconds / 1000.0).clamp(0.0, 86_400.0))
}

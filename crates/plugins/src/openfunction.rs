//! Invokes a function of OpenFunction in the place of an upstream, APISIX's openfunction.
//!
//! ```yaml
//! plugins:
//!   - name: openfunction
//!     route: hello
//!     config:
//!       function_uri: http://openfunction.internal/default/function-sample
//!       authorization:
//!         service_token: "{vault://env/openfunction-token}"
//! ```
//!
//! The route needs no service. The request goes to `function_uri`, followed by what the route leaves of the request's path: for a
//! request of `/hello/7` and a route with the path `/hello` that is `/7`. For a route of APISIX, it is what `*` stands for. Method, arguments, headers and
//! body are those of the request. `authorization.service_token`, a name and a password with a colon between, is sent as
//! `Authorization: Basic …` in the place of the client's.
//!
//! The client gets the function's status, headers and body.
//!
//! | status | message | when |
//! |---|---|---|
//! | 413 | `Payload too large` | the body is longer than 1 MiB, or a larger `client_body_buffer_size` |
//! | 503 | `The function did not answer` | there is no response within `timeout`, none at all, or one of more than 8 MiB. The log says which |

use crate::shared::function_call::{
    Connection, FunctionCaller, NO_ANSWER, basic, forwarded, function_url, url_below,
};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use weir_plugin::{BuildContext, Exchange, Flow, Hooks, Phases, Plugin, Record, Secret, WantsBody};

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
    /// Whether to verify the function's certificate.
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

/// A token.
#[derive(Debug, Clone, Record)]
pub(super) struct Authorization {
    /// A name and a password, `xx:xx`.
    #[field(secret)]
    pub service_token: Option<Secret>,
}

/// One configured instance.
pub(super) struct OpenFunction {
    url: String,
    authorization: Option<HeaderValue>,
    caller: FunctionCaller,
}

impl Plugin for OpenFunction {
    const NAME: &'static str = "openfunction";
    const PRIORITY: i32 = 746;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let keepalive = config.keepalive.then_some(config.keepalive_timeout);
        let connection = Connection::of_apisix(config.timeout, keepalive, config.ssl_verify);
        let caller = FunctionCaller::new(Self::NAME, connection, NO_ANSWER, build)?;
        let token = config.authorization.and_then(|authorization| authorization.service_token);
        let authorization = token.map(|token| basic(&token)).transpose();
        let authorization = authorization.map_err(|error| format!("config.authorization: {error}"))?;
        Ok(Self { url: config.function_uri, authorization, caller })
    }
}

impl Hooks for OpenFunction {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn wants_body(&self) -> WantsBody {
        WantsBody::Yes
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        self.caller.answer(exchange, |exchange| {
            let query = exchange.query().map(|query| format!("?{query}")).unwrap_or_default();
            let mut request = forwarded(exchange, &format!("{}{query}", url_below(&self.url, exchange)))?;
            if let Some(authorization) = &self.authorization {
                request.headers_mut().insert(AUTHORIZATION, authorization.clone());
            }
            Ok(request)
        })
    }
}

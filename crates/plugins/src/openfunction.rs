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
    ApisixConnection, FunctionCaller, NO_ANSWER, basic, forwarded, function_url, is_name_and_password,
    url_below,
};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldWarning, Flow, Hooks, Json, Phases, Plugin, Record, Secret,
    WantsBody,
};

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

    fn warnings(config: &Json) -> Vec<FieldWarning> {
        let token = config["authorization"]["service_token"].as_str();
        let message =
            "has no colon, so that it is no name and password of basic authentication: write `NAME:PASSWORD`";
        let is_wrong = token.is_some_and(|token| !is_name_and_password(token));
        is_wrong.then(|| FieldWarning::new("authorization.service_token", message)).into_iter().collect()
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let connection = config.connection.with_timeout(config.timeout);
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

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Answers
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

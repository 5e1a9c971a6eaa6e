//! Delays requests, or answers them with a fault, so that clients can be tested. Like APISIX's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: fault-injection
//!     route: shop
//!     config:
//!       delay: {duration: 0.5, percentage: 10}
//!       abort: {http_status: 503, body: '{"error":"injected"}', vars: [[[arg_fault, "==", "1"]]]}
//! ```
//!
//! `percentage` says how many of the requests are concerned; all if it is unset. `vars` lists
//! [conditions](../coming-from-apisix.md#conditions), one of which must be met. A request is delayed first. `body` and the
//! values of `headers` may contain variables.

use crate::shared::expression::Expression;
use crate::shared::header_operations::HeaderOperations;
use crate::shared::variables::Template;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldError, Flow, Hooks, Json, LocalResponse, Phases, Plugin,
    Record, Resume,
};

/// What is injected.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// Responses in the place of the upstream's.
    pub abort: Option<Abort>,
    /// Delays.
    pub delay: Option<Delay>,
}

/// A response in the place of the upstream's.
#[derive(Debug, Clone, Record)]
pub(super) struct Abort {
    /// The status.
    #[field(between = [200, 599])]
    pub http_status: u16,
    /// The body.
    #[field(len_min = 0)]
    pub body: Option<String>,
    /// The headers.
    #[field(key_check = header_name)]
    pub headers: Option<BTreeMap<String, Json>>,
    /// How many of a hundred requests are answered so.
    #[field(between = [0, 100])]
    pub percentage: Option<u8>,
    /// Conditions, one of which must be met.
    pub vars: Option<Vec<Json>>,
}

/// A delay.
#[derive(Debug, Clone, Record)]
pub(super) struct Delay {
    /// Its seconds.
    #[field(between = [0, 86400])]
    pub duration: f64,
    /// How many of a hundred requests are delayed.
    #[field(between = [0, 100])]
    pub percentage: Option<u8>,
    /// Conditions, one of which must be met.
    pub vars: Option<Vec<Json>>,
}

fn header_name(name: &str) -> Result<(), String> {
    weir_plugin::rule::header_name(name)
}

fn violations(config: &Config) -> Vec<FieldError> {
    let mut found = Vec::new();
    let vars = [
        ("abort.vars", config.abort.as_ref().and_then(|abort| abort.vars.as_ref())),
        ("delay.vars", config.delay.as_ref().and_then(|delay| delay.vars.as_ref())),
    ];
    for (path, vars) in vars {
        if let Err(message) = Which::new(None, vars) {
            found.push(FieldError::new(path, message));
        }
    }
    if config.abort.is_none() && config.delay.is_none() {
        found.push(FieldError::new("", "set `abort` or `delay`"));
    }
    found
}

/// Which requests are concerned.
struct Which {
    percentage: Option<u8>,
    /// None for all.
    conditions: Option<Vec<Expression>>,
}

impl Which {
    fn new(percentage: Option<u8>, vars: Option<&Vec<Json>>) -> Result<Self, String> {
        let parse = |vars: &Vec<Json>| vars.iter().map(Expression::parse).collect::<Result<Vec<_>, _>>();
        Ok(Self { percentage, conditions: vars.map(parse).transpose()? })
    }

    fn concerns(&self, exchange: &Exchange) -> bool {
        self.percentage.is_none_or(|percentage| fastrand::u8(1..=100) <= percentage)
            && self.conditions.as_ref().is_none_or(|any| any.iter().any(|one| one.is_met(exchange)))
    }
}

/// One configured instance; requests that are delayed keep it alive.
pub(super) struct FaultInjection {
    abort: Option<Arc<Fault>>,
    delay: Option<(Which, Duration)>,
}

struct Fault {
    which: Which,
    status: u16,
    body: Template,
    headers: HeaderOperations,
}

/// Marks a response that the plugin has made.
struct Injected;

impl Plugin for FaultInjection {
    const NAME: &'static str = "fault-injection";
    const PRIORITY: i32 = 11_000;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let fault = |abort: Abort| {
            let headers = abort.headers.map(|headers| Json::Object(headers.into_iter().collect()));
            Ok::<_, String>(Arc::new(Fault {
                which: Which::new(abort.percentage, abort.vars.as_ref())?,
                status: abort.http_status,
                body: Template::parse(abort.body.as_deref().unwrap_or_default()),
                headers: HeaderOperations::read(headers.as_ref())?,
            }))
        };
        let delay = |delay: Delay| {
            let which = Which::new(delay.percentage, delay.vars.as_ref())?;
            Ok::<_, String>((which, Duration::from_secs_f64(delay.duration)))
        };
        Ok(Self { abort: config.abort.map(fault).transpose()?, delay: config.delay.map(delay).transpose()? })
    }
}

impl Hooks for FaultInjection {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE.only_if(self.abort.is_some())
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        if self.abort.is_some() { AccessEffect::Unknown } else { AccessEffect::Passes }
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let delay = self.delay.as_ref().filter(|(which, _)| which.concerns(exchange));
        let Some((_, duration)) = delay else { return abort(self.abort.as_deref(), exchange) };
        let (fault, duration) = (self.abort.clone(), *duration);
        Flow::Wait(Box::pin(async move {
            tokio::time::sleep(duration).await;
            Box::new(move |exchange: &mut Exchange| abort(fault.as_deref(), exchange)) as Resume
        }))
    }

    fn response(&self, exchange: &mut Exchange) {
        if let (Some(fault), Some(Injected)) = (&self.abort, exchange.extensions.remove()) {
            fault.headers.apply(exchange, weir_plugin::HeadersOf::Response, &[]);
        }
    }
}

fn abort(fault: Option<&Fault>, exchange: &mut Exchange) -> Flow {
    let Some(fault) = fault.filter(|fault| fault.which.concerns(exchange)) else { return Flow::Continue };
    let body = fault.body.render(exchange).into_owned();
    exchange.extensions.insert(Injected);
    Flow::Respond(LocalResponse::raw(fault.status, None, body))
}

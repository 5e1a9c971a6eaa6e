//! Limits the tokens that requests to large language models use, per window. Like APISIX's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: ai-rate-limiting
//!     route: chat
//!     config:
//!       limit_strategy: total_tokens
//!       rejected_code: 429
//!       rules:
//!         - {key: $consumer_name, count: 100000, time_window: 3600, header_prefix: Hourly}
//!         - {key: $remote_addr, count: 5000, time_window: 60}
//! ```
//!
//! It limits what [ai-proxy](ai-proxy.md) and [ai-proxy-multi](ai-proxy-multi.md) send to models. A window begins with the
//! first tokens that are used and lasts `time_window` seconds. How many tokens a request uses is known behind its response: it
//! passes if any are left, and what it has used is counted then, of a stream at its end. So requests at the same time may
//! use more than the limit.
//!
//! Tokens are counted as the provider counts them. Where it does not, those of prompts are estimated by their words, and those of
//! streams by their text. OpenAI and others that speak its API are asked to count the tokens of streams; the client gets no
//! event about it that it has not asked for. A stream that breaks off is counted as far as it has come, and of a request whose client
//! leaves before the response has begun, its prompts. With `route_type: preserve`, streams are not counted.
//!
//! ## What tokens are counted by
//!
//! | fields | |
//! |---|---|
//! | `limit`, `time_window` | for all instances of models together that have no limit of their own |
//! | `instances` | for an instance of ai-proxy-multi, by its name. That of ai-proxy has the name `ai-proxy-PROVIDER`, such as `ai-proxy-openai`. `weir check` warns of a name that no instance has whose requests the limit could meet |
//! | `rules` | for requests with the same value of `key`, a text with [variables](../coming-from-apisix.md#variables) such as `$consumer_name`, `$http_x_team`, `$service_id` and `$request_llm_model`, the model that the request's body names. A request without a value is not counted. All rules count. A client chooses headers and `$request_llm_model`, and with them its window: put a rule by `$consumer_name` or `$remote_addr` beside these |
//!
//! Counts belong to the scope of the plugin, survive reloads, and start again when a limit or its window changes.
//!
//! ai-proxy-multi with the fallback strategy `rate_limiting` sends a request to another instance while the limit of one is used up.
//!
//! ## Responses
//!
//! | header | value |
//! |---|---|
//! | `X-AI-RateLimit-Limit-INSTANCE` | the limit |
//! | `X-AI-RateLimit-Remaining-INSTANCE` | the tokens that are left: behind a whole response, before a stream |
//! | `X-AI-RateLimit-Reset-INSTANCE` | seconds until the window is over |
//!
//! Rules have `X-AI-PREFIX-RateLimit-Limit`, `-Remaining` and `-Reset` instead, with `header_prefix` or else the number of the rule.
//! `show_limit_quota_header: false` leaves them out. Where a rule is used up, the request is refused before its body is read, unless a key has
//! `$request_llm_model`. A refused request is answered with `rejected_code` (503) and, if there is
//! a `rejected_msg`, the body `{"error_msg":"…"}`.
//!
//! ## Policies
//!
//! With `policy: redis` and `redis-cluster` nodes count together, as those of [limit-count](limit-count.md#policies) do. A request waits
//! for one reply of the server before it is sent to the model, and for none behind it. Keys begin with `ai-rate-limiting:`. While Redis is unavailable,
//! requests are answered 500 and `{"error_msg":"failed to limit count"}`; with `allow_degradation` this node counts by itself.

mod warnings;

use crate::limits::{Counts, scope};
use crate::llm::{
    Concerns, Prompts, SharedTokens, Standing, TokenKind, TokenLimit, TokenLimiter, TokenLimits,
};
use crate::shared::counters::Table;
use crate::shared::limits_of_apisix::{self, rejection};
use crate::shared::quota_window::{Limit, Window};
use crate::shared::request_key::Key;
use crate::shared::variables::RequestModel;
use std::sync::Arc;
use weir_plugin::{
    BuildContext, Document, EntityWarning, Exchange, FieldError, FieldWarning, Fingerprinter, Flow, Hooks,
    Json, LocalResponse, Phases, Plugin, Record, Resume, WantsBody, entity,
};

/// The limits, and what clients see of them.
#[derive(Debug, Clone, Record)]
#[record(check = violations, hint("cost_expr", "leave it out: tokens count as `limit_strategy` says, and no expression does"))]
pub(super) struct Config {
    /// Tokens per window, for all instances without a limit of their own.
    #[field(between = [1, 9007199254740991])]
    pub limit: Option<i64>,
    /// Seconds that a window of `limit` lasts.
    #[field(between = [1, 9007199254740])]
    pub time_window: Option<i64>,
    /// Sends clients the headers with the limits.
    #[field(default = true)]
    pub show_limit_quota_header: bool,
    /// Which tokens count.
    #[field(default = "total_tokens", one_of = ["total_tokens", "prompt_tokens", "completion_tokens"])]
    pub limit_strategy: String,
    /// Limits of instances.
    #[field(len_min = 1)]
    pub instances: Option<Vec<InstanceLimit>>,
    /// Limits by what requests have.
    #[field(len_min = 1)]
    pub rules: Option<Vec<Rule>>,
    /// The status of refused requests.
    #[field(default = 503, between = [200, 599])]
    pub rejected_code: u16,
    /// The message of refused requests.
    pub rejected_msg: Option<String>,
    /// Where counts are kept.
    #[field(flatten)]
    pub counts: Counts,
}

/// The limit of an instance.
#[derive(Debug, Clone, Record)]
pub(super) struct InstanceLimit {
    /// The name of the instance.
    pub name: String,
    /// Tokens per window.
    #[field(between = [1, 9007199254740991])]
    pub limit: i64,
    /// Seconds that a window lasts.
    #[field(between = [1, 9007199254740])]
    pub time_window: i64,
}

/// A limit by what requests have.
#[derive(Debug, Clone, Record)]
pub(super) struct Rule {
    /// Tokens per window.
    #[field(between = [1, 9007199254740991])]
    pub count: i64,
    /// Seconds that a window lasts.
    #[field(between = [1, 9007199254740])]
    pub time_window: i64,
    /// The text with variables that requests are counted by.
    #[field(check = key)]
    pub key: String,
    /// What the headers of the rule are named by; otherwise its number, from 1.
    #[field(matches = header_name)]
    pub header_prefix: Option<String>,
}

fn key(text: &str) -> Result<(), String> {
    Key::read("var_combination", text).map(drop)
}

fn violations(config: &Config) -> Vec<FieldError> {
    let mut found = Vec::new();
    if config.limit.is_some() != config.time_window.is_some() {
        let (missing, of) =
            if config.limit.is_some() { ("time_window", "limit") } else { ("limit", "time_window") };
        found.push(FieldError::new(missing, format!("required with `{of}`")));
    }
    let is_by_instance = config.limit.is_some() || config.time_window.is_some() || config.instances.is_some();
    if is_by_instance == config.rules.is_some() {
        found.push(FieldError::new(
            "",
            "set either `rules`, or `limit` and `time_window`, `instances`, or all three",
        ));
    }
    found
}

impl Config {
    /// What each limit concerns, how many tokens it allows, and for how many seconds.
    fn limits(&self) -> Result<Vec<(Concerns, i64, i64)>, String> {
        let own = self.instances.iter().flatten();
        let own = own.map(|of| (Concerns::Instance(of.name.clone()), of.limit, of.time_window));
        let others =
            self.limit.zip(self.time_window).map(|(limit, window)| (Concerns::Others, limit, window));
        let mut limits: Vec<_> = own.chain(others).collect();
        for (index, rule) in self.rules.iter().flatten().enumerate() {
            let header_prefix = rule.header_prefix.clone().unwrap_or_else(|| (index + 1).to_string());
            let concerns =
                Concerns::Requests { key: Key::read("var_combination", &rule.key)?, header_prefix };
            limits.push((concerns, rule.count, rule.time_window));
        }
        Ok(limits)
    }
}

/// One configured instance.
pub(super) struct AiRateLimiting {
    limiter: Arc<TokenLimiter>,
    /// A key has the model that the request's body names.
    needs_model: bool,
}

impl Plugin for AiRateLimiting {
    const NAME: &'static str = "ai-rate-limiting";
    // Before the plugins that send requests to models, which ask it.
    const PRIORITY: i32 = 775;
    const EXTENSION: bool = true;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn ignored_fields(config: &Json) -> Vec<FieldWarning> {
        Counts::ignored_fields(config)
    }

    fn document_warnings(document: &Document) -> Vec<EntityWarning> {
        warnings::unknown_instances(document)
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let table = build.retained.get::<Table<Window>>();
        let scopes = (&table.key, build.entity);
        let limits = config.limits()?;
        let limits = limits.into_iter().enumerate().map(|(index, of)| limit(scopes, index, of)).collect();
        let is_shared = config.counts.are_shared();
        let kind = match &*config.limit_strategy {
            "prompt_tokens" => TokenKind::Prompt,
            "completion_tokens" => TokenKind::Completion,
            _ => TokenKind::Total,
        };
        Ok(Self {
            needs_model: config.rules.iter().flatten().any(|rule| rule.key.contains("request_llm_model")),
            limiter: Arc::new(TokenLimiter {
                limits,
                kind,
                table,
                shared: if is_shared { Some(SharedTokens::new(&config.counts, build)?) } else { None },
                rejected: rejection(config.rejected_code, config.rejected_msg.as_deref()),
                shows_headers: config.show_limit_quota_header,
            }),
        })
    }
}

/// The limit of this number. Its counters are those of no other, and start again when it changes.
fn limit(
    (key, entity): (&Fingerprinter, &entity::Plugin),
    index: usize,
    (concerns, count, seconds): (Concerns, i64, i64),
) -> TokenLimit {
    let (count, seconds) = (count.unsigned_abs(), seconds.unsigned_abs());
    let kind = match &concerns {
        Concerns::Instance(_) => "instance".to_owned(),
        Concerns::Others => "others".to_owned(),
        Concerns::Requests { .. } => format!("rule-{index}"),
    };
    let local = limits_of_apisix::scope(&key.clone().with(b"ai-rate-limiting"), entity).with(kind.as_bytes());
    TokenLimit {
        concerns,
        limit: Limit { count, milliseconds: seconds.saturating_mul(1_000) },
        scope: local.with(&count.to_be_bytes()).with(&seconds.to_be_bytes()),
        shared_scope: format!("ai-rate-limiting:{}:{kind}:{count}:{seconds}", scope(entity)),
    }
}

impl Hooks for AiRateLimiting {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE.only_if(self.limiter.shows_headers)
    }

    fn wants_body(&self) -> WantsBody {
        if self.needs_model { WantsBody::Form } else { WantsBody::No }
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if self.needs_model
            && let Ok(body) = Prompts::of(exchange, 0)
            && let Some(model) = Prompts(body).model()
        {
            let model = RequestModel(model.to_owned());
            exchange.extensions.insert(model);
        }
        let standings = self.limiter.standings(exchange);
        match &self.limiter.shared {
            None => limited(exchange, &self.limiter, standings, true),
            Some(shared) => self.ask(shared, exchange, standings),
        }
    }

    fn response(&self, exchange: &mut Exchange) {
        if let Some(limits) = exchange.extensions.get::<TokenLimits>() {
            limits.write_headers(&mut exchange.response.headers);
        }
    }
}

impl AiRateLimiting {
    /// Goes on when the store has replied, or else as the configuration says.
    fn ask(&self, shared: &SharedTokens, exchange: &mut Exchange, standings: Vec<Standing>) -> Flow {
        let Ok(asked) = shared.ask(&self.limiter, standings) else { return alone(exchange, &self.limiter) };
        let limiter = self.limiter.clone();
        Flow::Wait(Box::pin(async move {
            let replied = asked.replied(&limiter).await;
            let resume: Resume = Box::new(move |exchange| match replied {
                Some(standings) => limited(exchange, &limiter, standings, false),
                None => alone(exchange, &limiter),
            });
            resume
        }))
    }
}

/// Leaves the limits for the plugins that send the request to a model.
fn limited(
    exchange: &mut Exchange,
    limiter: &Arc<TokenLimiter>,
    standings: Vec<Standing>,
    counts_here: bool,
) -> Flow {
    let limits = TokenLimits::new(limiter.clone(), standings, counts_here);
    // Before the body is read, which the plugins that send it to a model want.
    let refusal = limits.refuse_all();
    exchange.extensions.insert(limits);
    refusal.map_or(Flow::Continue, Flow::Respond)
}

/// What happens to a request while the store is unavailable.
fn alone(exchange: &mut Exchange, limiter: &Arc<TokenLimiter>) -> Flow {
    if limiter.shared.as_ref().is_some_and(|shared| shared.allow_degradation) {
        let standings = limiter.standings(exchange);
        return limited(exchange, limiter, standings, true);
    }
    let body = "{\"error_msg\":\"failed to limit count\"}";
    Flow::Respond(LocalResponse::raw(500, Some("application/json"), body))
}

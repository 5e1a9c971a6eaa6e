//! Answers in the place of an upstream that fails, until it may have recovered. Like APISIX's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: api-breaker
//!     service: orders
//!     config:
//!       break_response_code: 502
//!       unhealthy: {http_statuses: [500, 503], failures: 3}
//!       healthy: {http_statuses: [200], successes: 1}
//! ```
//!
//! Responses are counted by host and path. After `unhealthy.failures` failures, requests are answered
//! `break_response_code` for 2 seconds; if as many more fail, for 4 seconds, then 8, and so on up to `max_breaker_sec`.
//! After `healthy.successes` successes in between, the failures are forgotten. If the upstream cannot be reached, that
//! counts as status 502, and 504 if it took too long.
//!
//! ## Responses
//!
//! `break_response_code`, with `break_response_body` and `break_response_headers`, whose values may contain variables.

use crate::shared::counters::{Counter, Recent, Table};
use crate::shared::limits_of_apisix::wall_clock;
use crate::shared::variables::Template;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::LocalKey;
use weir_plugin::{
    BuildContext, Exchange, Fingerprint, Flow, Handover, Hooks, LocalResponse, Phases, Plugin, Record,
};

/// When the upstream fails, and what clients get then.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The status that clients get.
    #[field(between = [200, 599])]
    pub break_response_code: u16,
    /// The body that clients get.
    #[field(len_min = 0)]
    pub break_response_body: Option<String>,
    /// The headers that clients get.
    pub break_response_headers: Option<Vec<Header>>,
    /// For how many seconds the upstream is left alone at most.
    #[field(default = 300, between = [3, 86400])]
    pub max_breaker_sec: u32,
    /// What counts as a failure.
    #[field(default = {})]
    pub unhealthy: Unhealthy,
    /// What counts as a success.
    #[field(default = {})]
    pub healthy: Healthy,
}

/// A header.
#[derive(Debug, Clone, Record)]
pub(super) struct Header {
    /// Its name.
    #[field(matches = header_name)]
    pub key: String,
    /// Its value, which may contain variables.
    #[field(len_min = 0)]
    pub value: String,
}

/// What counts as a failure.
#[derive(Debug, Clone, Record)]
pub(super) struct Unhealthy {
    /// The statuses.
    #[field(default = [500], between = [500, 599], len_min = 1)]
    pub http_statuses: Vec<u16>,
    /// How many make the upstream be left alone.
    #[field(default = 3, between = [1, 1_000_000])]
    pub failures: u32,
}

/// What counts as a success.
#[derive(Debug, Clone, Record)]
pub(super) struct Healthy {
    /// The statuses.
    #[field(default = [200], between = [200, 499], len_min = 1)]
    pub http_statuses: Vec<u16>,
    /// After how many the failures are forgotten.
    #[field(default = 3, between = [1, 1_000_000])]
    pub successes: u32,
}

/// One configured instance.
pub(super) struct ApiBreaker {
    config: Config,
    body: Template,
    headers: Vec<(String, Template)>,
    table: Arc<Table<Breaker>>,
}

impl Plugin for ApiBreaker {
    const NAME: &'static str = "api-breaker";
    const PRIORITY: i32 = 1005;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    const HANDOVERS: &'static [Handover] = &[Table::<Breaker>::handover("api-breaker")];
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let headers = config.break_response_headers.iter().flatten();
        Ok(Self {
            body: Template::parse(config.break_response_body.as_deref().unwrap_or_default()),
            headers: headers.map(|header| (header.key.clone(), Template::parse(&header.value))).collect(),
            table: build.retained.get(),
            config,
        })
    }
}

impl Hooks for ApiBreaker {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::LOG
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if !self.change(exchange, |state, now| state.is_open(&self.config, now)) {
            return Flow::Continue;
        }
        let body = self.body.render(exchange).into_owned();
        let content_type = (!body.is_empty()).then_some("text/plain; charset=utf-8");
        let own_type = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let answer =
            LocalResponse::raw(self.config.break_response_code, content_type.filter(|_| !own_type), body);
        Flow::Respond(
            self.headers
                .iter()
                .fold(answer, |answer, (name, value)| answer.header(name.clone(), value.render(exchange))),
        )
    }

    fn log(&self, exchange: &mut Exchange) {
        let failed = || exchange.failed_tries().last().map(|failed| failed.code);
        let Some(status) = exchange.service_status().or_else(failed) else { return };
        self.change(exchange, |state, now| state.record(&self.config, status, now));
    }
}

impl ApiBreaker {
    /// Reads or changes the state of the request's host and path, at this second.
    fn change<T>(&self, exchange: &Exchange, change: impl FnOnce(&mut State, u64) -> T) -> T {
        let key = self.table.key.clone().with(exchange.host().as_bytes());
        let whose: Fingerprint = key.of(exchange.path().as_bytes());
        let now = wall_clock() / 1_000;
        self.table.with(
            whose,
            || now,
            |breaker| {
                let mut state = breaker.0.lock().unwrap_or_else(PoisonError::into_inner);
                state.used = now;
                (now, change(&mut state, now))
            },
        )
    }
}

/// The state of one host and path. Its numbers change together, so they are behind a lock, which is held only briefly.
#[derive(Debug, Default)]
struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    successes: u32,
    /// When the upstream was last found to fail, in seconds since 1970.
    opened: Option<u64>,
    /// When the state was last used.
    used: u64,
}

/// For how many seconds a state is kept that is not used.
const IDLE: u64 = 3600;

impl State {
    fn is_open(&self, config: &Config, now: u64) -> bool {
        let Some(opened) = self.opened else { return false };
        let rounds = self.failures.div_ceil(config.unhealthy.failures).clamp(1, 62);
        let seconds = (1u64 << rounds).min(config.max_breaker_sec.into());
        opened.saturating_add(seconds) >= now
    }

    fn record(&mut self, config: &Config, status: u16, now: u64) {
        if config.unhealthy.http_statuses.contains(&status) {
            self.failures += 1;
            self.successes = 0;
            if self.failures.is_multiple_of(config.unhealthy.failures) {
                self.opened = Some(now);
            }
        } else if config.healthy.http_statuses.contains(&status) && self.failures > 0 {
            self.successes += 1;
            if self.successes >= config.healthy.successes {
                *self = Self { used: self.used, ..Self::default() };
            }
        }
    }
}

thread_local! {
    static OWN: RefCell<Recent<Breaker>> = const { RefCell::new(Recent::new()) };
}

impl Counter for Breaker {
    type Time = u64;

    fn time(seconds: u64) -> u64 {
        seconds
    }

    fn is_over(&self, now: &u64) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.failures == 0 || state.used.saturating_add(IDLE) < *now
    }

    const NUMBERS: usize = 4;

    fn numbers(&self) -> Vec<u64> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Never at 0: that is when it was not opened.
        vec![state.failures.into(), state.successes.into(), state.opened.unwrap_or_default(), state.used]
    }

    fn restore(&self, numbers: &[u64]) {
        if let [failures, successes, opened, used] = *numbers {
            let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
            let opened = (opened > 0).then_some(opened);
            let state = State { failures: count(failures), successes: count(successes), opened, used };
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
        }
    }

    fn recent() -> &'static LocalKey<RefCell<Recent<Self>>> {
        &OWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_round_of_failures_lasts_twice_as_long() {
        let config =
            json!({ "break_response_code": 502, "max_breaker_sec": 5, "unhealthy": { "failures": 2 } });
        let config = Config::from_value(&config).unwrap();
        let mut state = State::default();
        state.record(&config, 500, 100);
        assert!(!state.is_open(&config, 100));
        state.record(&config, 500, 100);
        assert_eq!([100, 102, 103].map(|now| state.is_open(&config, now)), [true, true, false]);
        (0..2).for_each(|_| state.record(&config, 500, 200));
        assert_eq!([204, 205].map(|now| state.is_open(&config, now)), [true, false]);
        (0..2).for_each(|_| state.record(&config, 500, 300));
        assert_eq!([305, 306].map(|now| state.is_open(&config, now)), [true, false]);
        (0..3).for_each(|_| state.record(&config, 200, 400));
        assert!(!state.is_open(&config, 300) && state.failures == 0);
        state.record(&config, 404, 500);
        assert_eq!(state.failures, 0);
    }
}

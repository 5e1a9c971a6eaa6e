//! The instances that a request is sent to, one behind the other, until one answers.

use super::instance::Instance;
use super::pool::{Choice, Pool};
use crate::llm::{InFlight, LlmError, Prompts, Provider, TokenLimits};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use weir_plugin::{BodyBegin, Exchange, Flow, UpstreamOutcome};

/// The name of the instance that was asked last.
struct Asked(String);

/// The attempts of a request.
pub(super) struct Attempts {
    pool: Arc<Pool>,
    choice: Choice,
    tried: Vec<usize>,
    /// Those that have failed, and for how long each asks to be left out.
    failed: Vec<(usize, Option<Duration>)>,
    /// When the last attempt began.
    since: Instant,
    original: Original,
}

/// How an attempt has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptEnd {
    /// With this status.
    Answered(u16),
    /// With a success that is not the stream that was asked for.
    NoStream,
    /// Without a response.
    NoAnswer,
}

impl AttemptEnd {
    fn of(exchange: &Exchange, outcome: UpstreamOutcome, begin: BodyBegin<'_>) -> Self {
        match (outcome, exchange.response.status) {
            (UpstreamOutcome::Failed, _) => Self::NoAnswer,
            (_, 200) if InFlight::is_no_stream(exchange, begin) => Self::NoStream,
            (_, status) => Self::Answered(status),
        }
    }

    /// The status, if it is that of a response that the client can have.
    fn status(self) -> Option<u16> {
        match self {
            Self::Answered(status) => Some(status),
            Self::NoStream | Self::NoAnswer => None,
        }
    }
}

/// The request as it was before the first attempt, as far as attempts change it.
struct Original {
    headers: Vec<(&'static str, Vec<u8>)>,
    /// Which of them the last attempt began with: one that is missing behind it was removed by a later plugin.
    sent: Vec<&'static str>,
    query: String,
    body: Vec<u8>,
}

impl Original {
    fn of(exchange: &Exchange) -> Self {
        let headers = &exchange.request.headers;
        let values = |name: &'static str| headers.get_all(name).map(move |value| (name, value.to_vec()));
        Self {
            headers: Provider::CHANGED_HEADERS.into_iter().flat_map(values).collect(),
            sent: Vec::new(),
            query: exchange.query().unwrap_or_default().to_owned(),
            body: exchange.body().unwrap_or_default().to_vec(),
        }
    }

    /// An attempt has begun.
    fn begun(&mut self, exchange: &Exchange) {
        let is_there = |name: &&str| exchange.request.headers.get(name).is_some();
        self.sent = Provider::CHANGED_HEADERS.into_iter().filter(is_there).collect();
    }

    /// Restores the request, but for headers that later plugins have removed. Its body is the next instance's.
    fn restore(&mut self, exchange: &mut Exchange) {
        let headers = &mut exchange.request.headers;
        let sent = &self.sent;
        self.headers.retain(|(name, _)| !sent.contains(name) || headers.get(name).is_some());
        for name in Provider::CHANGED_HEADERS {
            headers.remove(name);
        }
        self.headers.iter().for_each(|(name, value)| headers.append(name, value));
        exchange.set_query(self.query.clone());
    }

    fn prompts(&self) -> Option<Prompts> {
        serde_json::from_slice(&self.body).ok().map(Prompts)
    }
}

impl Attempts {
    /// Sends a request to its first instance.
    pub(super) fn begin(pool: &Arc<Pool>, exchange: &mut Exchange) -> Result<Flow, LlmError> {
        let prompts = Prompts::read(exchange, 0)?;
        let choice = pool.choice(exchange);
        // If no instance has tokens left, that of the first refuses the request.
        let first = pool.pick(exchange, &[], choice).or_else(|| pool.first(choice));
        let index = first.ok_or_else(|| LlmError::Provider("no instance has a weight".to_owned()))?;
        let instance = &pool.instances[index];
        if let Some(limits) = exchange.extensions.get_mut::<TokenLimits>()
            && let Some(rejected) = limits.choose(&instance.name)
        {
            return Ok(Flow::Respond(rejected));
        }
        exchange.set_retries(0);
        exchange.set_timeouts(pool.timeout, pool.timeout, pool.timeout);
        let original = pool.may_fall_back().then(|| Original::of(exchange));
        let request = exchange.body().filter(|_| pool.reporting.payloads).map(<[u8]>::to_vec);
        send(pool, instance, exchange, prompts, request)?;
        if let Some(mut original) = original {
            original.begun(exchange);
            let (pool, tried, failed, since) = (pool.clone(), vec![index], Vec::new(), Instant::now());
            let mut attempts = Self { pool, choice, tried, failed, since, original };
            exchange.fall_back(move |exchange, outcome, begin| {
                let end = AttemptEnd::of(exchange, outcome, begin);
                attempts.go_on(exchange, end)
            });
        }
        Ok(Flow::Continue)
    }

    /// Notes how the last attempt has ended, and sends the request to another instance if it has failed.
    fn go_on(&mut self, exchange: &mut Exchange, end: AttemptEnd) -> bool {
        let status = end.status();
        let now = Instant::now();
        let Some(index) = self.tried.last().copied() else { return false };
        let (health, caller) = (&self.pool.instances[index].health, self.choice.caller);
        if !self.pool.strategy.falls_back(status) {
            self.answered(status, index, now);
            return false;
        }
        log_failure(exchange, &self.pool.instances[index], end);
        let retry_after = retry_after(exchange).filter(|_| status.is_some());
        health.failed_for(caller, now, retry_after);
        self.failed.push((index, retry_after));
        let is_late = self.pool.within.is_some_and(|within| now.duration_since(self.since) > within);
        if is_late || self.tried.len() > self.pool.max_retries {
            return false;
        }
        let Some(next) = self.pool.pick(exchange, &self.tried, self.choice) else { return false };
        self.tried.push(next);
        self.since = now;
        self.lead(exchange, next)
    }

    /// Logs that the last instance has failed, unless it was logged when the request went on to another.
    pub(super) fn log(pool: &Pool, exchange: &Exchange) {
        let status = exchange.service_status();
        let is_failure = match status {
            Some(status) => matches!(status, 401 | 403 | 429 | 500..=599),
            None => exchange.timing.upstream_start.is_some() && exchange.response.status >= 500,
        };
        let is_logged = pool.may_fall_back() && pool.strategy.falls_back(status);
        let Some(Asked(name)) = exchange.extensions.get().filter(|_| is_failure && !is_logged) else {
            return;
        };
        if let Some(instance) = pool.instances.iter().find(|instance| instance.name == *name) {
            let end = status.map_or(AttemptEnd::NoAnswer, AttemptEnd::Answered);
            log_failure(exchange, instance, end);
        }
    }

    /// An instance has answered: those before it have failed for a request that can be answered.
    fn answered(&mut self, status: Option<u16>, index: usize, now: Instant) {
        let Some(status) = status else { return };
        self.pool.instances[index].health.succeeded(self.choice.caller);
        if (200..300).contains(&status) {
            for (failed, retry_after) in self.failed.drain(..) {
                self.pool.instances[failed].health.failed(now, retry_after);
            }
        }
    }

    /// Leads the request to this instance; whether it could.
    fn lead(&mut self, exchange: &mut Exchange, next: usize) -> bool {
        let pool = self.pool.clone();
        let instance = &pool.instances[next];
        let Some(prompts) = self.original.prompts() else { return false };
        let is_refused = exchange
            .extensions
            .get_mut::<TokenLimits>()
            .is_some_and(|limits| limits.choose(&instance.name).is_some());
        if is_refused {
            return false;
        }
        self.original.restore(exchange);
        let request = pool.reporting.payloads.then(|| self.original.body.clone());
        match send(&pool, instance, exchange, prompts, request) {
            Ok(()) => {
                self.original.begun(exchange);
                true
            }
            Err(error) => {
                tracing::warn!(
                    request_id = exchange.id(),
                    instance = instance.name,
                    "ai-proxy-multi: {error}"
                );
                false
            }
        }
    }
}

fn send(
    pool: &Pool,
    instance: &Instance,
    exchange: &mut Exchange,
    mut prompts: Prompts,
    request: Option<Vec<u8>>,
) -> Result<(), LlmError> {
    let call = instance.call(exchange, &mut prompts)?;
    exchange.extensions.insert(Asked(instance.name.clone()));
    InFlight::send(exchange, &instance.provider, (prompts, call), &pool.reporting, request)
}

/// Logs which instance has failed, and how; nothing that it was sent, because keys are among that.
fn log_failure(exchange: &Exchange, instance: &Instance, end: AttemptEnd) {
    let how = match end {
        AttemptEnd::Answered(status) => format!("it answered with status {status}"),
        AttemptEnd::NoStream => {
            "it answered with what is no stream of events, or begins with an error".to_owned()
        }
        AttemptEnd::NoAnswer => "it gave no answer, or none in time".to_owned(),
    };
    tracing::warn!(
        request_id = exchange.id(),
        instance = instance.name,
        provider = instance.provider_name,
        "ai-proxy-multi: an instance failed: {how}"
    );
}

/// For how long the instance asks to be left out, if it names the seconds.
fn retry_after(exchange: &Exchange) -> Option<Duration> {
    let seconds = exchange.response.headers.get("Retry-After")?;
    std::str::from_utf8(seconds).ok()?.trim().parse().ok().map(Duration::from_secs)
}

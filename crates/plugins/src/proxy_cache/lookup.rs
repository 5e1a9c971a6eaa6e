//! The way of a request: a stored response answers it, or it goes to the upstream, which may confirm the stored one.

use super::capture::{Capture, Invalidation};
use super::conditions::{self, ClientConditions};
use super::config::Config;
use super::directives::Directives;
use super::freshness::Reuse;
use super::in_flight::{Joined, Lead, WAIT_TIMEOUT};
use super::key::{self, Scope};
use super::media_type::MediaType;
use super::ranges;
use super::redis::{self, Purge, RedisCache};
use super::ruled::Rules;
use super::shared_lookup::AfterLookup;
use super::storable::{self, Arrived};
use super::store::Cache;
use super::stored::{Stored, Subject};
use super::subject;
use super::vary;
use crate::shared::Uncacheable;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use weir_plugin::{
    AccessEffect, Bytes, Exchange, Fingerprint, Flow, Known, LocalResponse, Resume, UpstreamOutcome,
    WantsBody,
};

/// What all workers share of one configured instance.
pub(super) struct Instance {
    pub(super) config: Config,
    /// The types of responses that are stored; all, if none are named.
    pub(super) types: Option<Vec<MediaType>>,
    pub(super) cache: Arc<Cache>,
    /// Where responses are stored instead, if nodes share them.
    pub(super) redis: Option<Arc<RedisCache>>,
    /// What decides instead of the key of this plugin.
    pub(super) rules: Option<Rules>,
}

/// The outcome of the lookup, for the response headers.
pub(super) struct Outcome {
    pub(super) status: Cell<&'static str>,
    pub(super) key: RefCell<Option<Arc<str>>>,
    pub(super) age: Option<u64>,
}

impl Outcome {
    pub(super) fn new(status: &'static str, key: Option<Arc<str>>, age: Option<u64>) -> Self {
        Self { status: Cell::new(status), key: RefCell::new(key), age }
    }
}

/// A request that the cache may answer.
pub(super) struct Lookup {
    pub(super) fingerprint: Fingerprint,
    /// The parts of the key.
    pub(super) parts: Vec<u8>,
    /// The same of a response that may answer it although it is not for the same method or credentials.
    pub(super) shared: Option<Vec<u8>>,
    directives: Directives,
    /// The status of the lookup if the request goes to the upstream.
    status: &'static str,
}

/// A response that is stored for a request.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) stored: Arc<Stored>,
    pub(super) fingerprint: Fingerprint,
    /// It is the response to a GET, and the request is a HEAD.
    pub(super) is_of_get: bool,
}

impl Found {
    /// One that is stored for requests with other methods or credentials, if it may answer this one.
    pub(super) fn shared(stored: Arc<Stored>, fingerprint: Fingerprint, exchange: &Exchange) -> Option<Self> {
        let has_credentials = exchange.request.headers.contains_known(Known::Authorization);
        let is_of_get = exchange.request.method_str() == "HEAD";
        (stored.is_for_all || !has_credentials).then_some(Self { stored, fingerprint, is_of_get })
    }
}

impl Instance {
    pub(super) fn access(self: &Arc<Self>, exchange: &mut Exchange) -> Flow {
        let Some(lookup) = self.lookup(exchange) else {
            exchange.extensions.insert(Outcome::new("Bypass", None, None));
            let method = exchange.request.method_str();
            if self.config.cache_control
                && self.rules.is_none()
                && subject::is_unsafe(method)
                && !self.has_method(method)
            {
                exchange.observe_upstream(Invalidation(self.clone()));
            }
            return Flow::Continue;
        };
        if let Some(redis) = &self.redis {
            return self.find_in_redis(redis, exchange, lookup, AfterLookup::Decide);
        }
        let now = exchange.timing.start.into_std();
        let found = self.find(exchange, &lookup, now);
        self.decide(exchange, lookup, found, now)
    }

    /// A stored response may answer the request.
    pub(super) fn access_effect(&self, exchange: &Exchange) -> AccessEffect {
        if self.lookup(exchange).is_some() { AccessEffect::Unknown } else { AccessEffect::Passes }
    }

    /// The lookup for this request; none if it is not cacheable.
    fn lookup(&self, exchange: &Exchange) -> Option<Lookup> {
        let method = exchange.request.method_str();
        let headers = &exchange.request.headers;
        let is_cacheable = self.has_method(method)
            && !headers.contains_known(Known::Upgrade)
            && !headers
                .get_known(Known::ContentType)
                .is_some_and(|kind| kind.starts_with(b"application/grpc"))
            && (!exchange.has_body() || self.reads_body(exchange))
            && exchange.extensions.get::<Uncacheable>().is_none();
        if !is_cacheable {
            return None;
        }
        let directives = match self.config.cache_control {
            true => Directives::of(headers.get_all_known(Known::CacheControl)),
            false => Directives::default(),
        };
        if directives.no_store || directives.no_cache {
            return None;
        }
        let parts = self.parts(exchange, Scope::Same);
        let shared = self.shared_parts(exchange);
        let fingerprint = self.cache.key.of(&parts);
        Some(Lookup { fingerprint, parts, shared, directives, status: "Miss" })
    }

    /// The parts of the key under which responses for other methods or credentials are stored, if they are of use.
    fn shared_parts(&self, exchange: &Exchange) -> Option<Vec<u8>> {
        let is_of_use = self.config.cache_control
            && match exchange.request.method_str() {
                "GET" => exchange.request.headers.contains_known(Known::Authorization),
                "HEAD" => self.has_method("GET"),
                _ => false,
            };
        is_of_use.then(|| self.parts(exchange, Scope::Shared))
    }

    pub(super) fn wants_body(&self) -> WantsBody {
        let mut methods = self.config.request_method.iter();
        let with_body = methods.any(|method| !matches!(method.as_str(), "GET" | "HEAD"));
        if with_body { WantsBody::Optional } else { WantsBody::No }
    }

    /// What the response in the exchange is one of.
    pub(super) fn subject(&self, exchange: &Exchange) -> Subject {
        let mut subject = subject::of(&self.config, &self.cache.key, exchange);
        if let Some(rules) = &self.rules {
            subject.resource.fingerprint = self.cache.key.of(&rules.resource(exchange));
        }
        subject
    }

    fn parts(&self, exchange: &Exchange, scope: Scope) -> Vec<u8> {
        match &self.rules {
            Some(rules) => rules.parts(exchange, scope),
            None => key::parts(&self.config, exchange, scope),
        }
    }

    pub(super) fn has_method(&self, method: &str) -> bool {
        self.config.request_method.iter().any(|cacheable| cacheable == method)
    }

    /// Whether the body was buffered; another plugin may have requested that, too.
    fn reads_body(&self, exchange: &Exchange) -> bool {
        !matches!(exchange.request.method_str(), "GET" | "HEAD") && exchange.body().is_some()
    }

    /// The response for this request, fresh or stale.
    fn find(&self, exchange: &Exchange, lookup: &Lookup, now: Instant) -> Option<Found> {
        if let Some(stored) = self.cache.find(lookup.fingerprint, exchange, now) {
            return Some(Found { stored, fingerprint: lookup.fingerprint, is_of_get: false });
        }
        let fingerprint = self.cache.key.of(lookup.shared.as_ref()?);
        let stored = self.cache.find(fingerprint, exchange, now)?;
        Found::shared(stored, fingerprint, exchange)
    }

    fn reuse(&self, stored: &Stored, asked: &Directives, now: Instant) -> Reuse {
        let elapsed = stored.elapsed(now);
        match self.config.cache_control {
            true => stored.term.reuse(elapsed, asked),
            false if elapsed < Duration::from_secs(self.config.cache_ttl.into()) => Reuse::Answer,
            false => Reuse::Validate,
        }
    }

    pub(super) fn decide(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        mut lookup: Lookup,
        found: Option<Found>,
        now: Instant,
    ) -> Flow {
        if let Some(found) = &found {
            match self.reuse(&found.stored, &lookup.directives, now) {
                Reuse::Validate => lookup.status = "Refresh",
                Reuse::Answer => return Flow::Respond(self.answer(exchange, found, now, "Hit")),
                Reuse::AnswerAndRevalidate => {
                    let answer = self.answer(exchange, found, now, "Hit");
                    self.revalidate(exchange, lookup, found.clone());
                    return Flow::Respond(answer);
                }
            }
        }
        if lookup.directives.only_if_cached {
            exchange.extensions.insert(Outcome::new("", Some(key::text(&lookup.parts)), None));
            return Flow::Respond(LocalResponse::raw(504, None, Bytes::new()));
        }
        self.ask(exchange, lookup, found, None)
    }

    /// Answers with a stored response.
    fn answer(
        &self,
        exchange: &mut Exchange,
        Found { stored, is_of_get, .. }: &Found,
        now: Instant,
        status: &'static str,
    ) -> LocalResponse {
        let age = stored.term.age_before + stored.elapsed(now).as_secs();
        exchange.extensions.insert(Outcome::new(status, Some(stored.key.clone()), Some(age)));
        if conditions::is_known_to_client(stored, &exchange.request) {
            return conditions::not_modified(stored);
        }
        if self.config.cache_control
            && let Some(part) = ranges::part(stored, &exchange.request)
        {
            return part;
        }
        let whole = LocalResponse::cached(stored.status, stored.headers.clone(), stored.body.clone());
        match is_of_get {
            true => whole.header("Content-Length", stored.body.len().to_string()),
            false => whole,
        }
    }

    /// Sends the request to the upstream, or waits for a request with the same key that is in flight. If that one
    /// fails, one of those that wait takes its place, once and within the same time limit.
    fn ask(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        lookup: Lookup,
        found: Option<Found>,
        waited: Option<Instant>,
    ) -> Flow {
        let headers = &exchange.request.headers;
        // The response to these may be of no use to other requests.
        let is_particular = headers.contains_known(Known::Range)
            || conditions::are_set(headers)
            || found.as_ref().is_some_and(|found| found.stored.term.is_never_fresh());
        let joined =
            if is_particular { Joined::Alone } else { self.cache.join(lookup.fingerprint, Instant::now()) };
        match joined {
            Joined::Alone => self.fetch(exchange, lookup, found, None),
            Joined::Leads(lead) => self.fetch(exchange, lookup, found, Some(lead)),
            Joined::Follows(mut leader) => {
                let instance = self.clone();
                let until = waited.unwrap_or_else(|| Instant::now() + WAIT_TIMEOUT);
                let again = Some(until).filter(|_| waited.is_none());
                return Flow::Wait(Box::pin(async move {
                    // No value is ever sent: the channel closes.
                    let _ = tokio::time::timeout_at(until.into(), leader.changed()).await;
                    let resume: Resume = Box::new(move |exchange| instance.waited(exchange, lookup, again));
                    resume
                }));
            }
        }
        Flow::Continue
    }

    /// The other request has ended, with or without a response in the cache.
    fn waited(self: &Arc<Self>, exchange: &mut Exchange, lookup: Lookup, again: Option<Instant>) -> Flow {
        if let Some(redis) = &self.redis {
            return self.find_in_redis(redis, exchange, lookup, AfterLookup::Waited(again));
        }
        let now = Instant::now();
        let found = self.find(exchange, &lookup, now);
        self.decide_after_waiting(exchange, lookup, found, (now, again))
    }

    pub(super) fn decide_after_waiting(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        lookup: Lookup,
        found: Option<Found>,
        (now, again): (Instant, Option<Instant>),
    ) -> Flow {
        match &found {
            Some(found) if self.reuse(&found.stored, &lookup.directives, now) != Reuse::Validate => {
                Flow::Respond(self.answer(exchange, found, now, "Hit"))
            }
            _ if again.is_some_and(|until| now < until) => self.ask(exchange, lookup, found, again),
            _ => {
                self.fetch(exchange, lookup, found, None);
                Flow::Continue
            }
        }
    }

    /// Sends the request to the upstream, and stores the response.
    fn fetch(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        lookup: Lookup,
        found: Option<Found>,
        lead: Option<Lead>,
    ) {
        let key = key::text(&lookup.parts);
        exchange.extensions.insert(Outcome::new(lookup.status, Some(key.clone()), None));
        let shared = lookup.shared.filter(|_| exchange.request.method_str() == "GET");
        exchange.observe_upstream(Capture::new(self.clone(), (lookup.fingerprint, key), shared, lead));
        if let Some(found) = found.filter(|_| self.config.cache_control) {
            self.validate(exchange, found, lookup.directives);
        }
    }

    /// Has the upstream say whether a stored response is still valid, and answers with it if so; also if the upstream
    /// fails, as far as that is allowed.
    fn validate(self: &Arc<Self>, exchange: &mut Exchange, found: Found, asked: Directives) {
        let (instance, conditions) = (self.clone(), ClientConditions::replace(exchange, &found.stored));
        exchange.replace_upstream_response(move |exchange, outcome| {
            let is_asked = conditions.is_some();
            if let Some(conditions) = conditions {
                conditions.restore(exchange);
            }
            let now = Instant::now();
            match (outcome, exchange.response.status) {
                (UpstreamOutcome::Answered, 304) if is_asked => Some(instance.confirm(exchange, found)),
                (UpstreamOutcome::Failed, _) | (UpstreamOutcome::Answered, 500 | 502..=504) => {
                    let stored = &found.stored;
                    let is_allowed = stored.term.answers_errors(stored.elapsed(now), &asked);
                    is_allowed.then(|| instance.answer(exchange, &found, now, "Hit"))
                }
                _ => None,
            }
        });
    }

    /// The upstream has confirmed a stored response: it is stored again, and answers the request.
    fn confirm(&self, exchange: &mut Exchange, mut found: Found) -> LocalResponse {
        let before = found.stored;
        let arrived = Arrived::of(exchange);
        let mut headers = conditions::updated(&before.headers, arrived.headers, arrived.now);
        let terms =
            storable::terms(&self.config, &Arrived { status: before.status, headers: &headers, ..arrived });
        // One that was for all is found by requests that the upstream may now refuse.
        let terms = terms.filter(|terms| terms.is_for_all || !before.is_for_all);
        // Without the values of what it varies by now, it would answer requests that it is not for.
        let terms = terms.filter(|_| vary::is_unchanged(&before.vary, &headers));
        let unstored = terms.as_ref().map_or(&[][..], |terms| &terms.unstored);
        let now = arrived.now;
        storable::strip(&mut headers, unstored, now);
        found.stored = Arc::new(match &terms {
            Some(terms) => before.confirmed(headers, terms.term, terms.is_for_all),
            None => before.confirmed(headers, before.term, false),
        });
        match terms {
            Some(_) => self.store(found.fingerprint, found.stored.clone(), None),
            None => self.remove(&before),
        }
        // A cookie is for this client alone.
        let cookies = exchange.response.headers.get_all_known(Known::SetCookie);
        let cookies: Vec<_> = cookies.map(<[u8]>::to_vec).collect();
        let answer = self.answer(exchange, &found, found.stored.since, "Refresh");
        cookies.iter().fold(answer, |answer, cookie| answer.header("Set-Cookie", cookie))
    }

    /// Stores a response. Requests that wait for it go on once it is there.
    pub(super) fn store(&self, fingerprint: Fingerprint, stored: Arc<Stored>, lead: Option<Lead>) {
        match &self.redis {
            Some(redis) => redis.put(&stored, lead),
            None => self.cache.insert(fingerprint, stored),
        }
    }

    /// Removes a response that must not be used again.
    fn remove(&self, stored: &Stored) {
        stored.is_gone.store(true, Relaxed);
        if let Some(redis) = &self.redis {
            redis.purge(Purge::Response(redis::stored_key(stored)));
        }
    }

    /// Removes what is stored for this request, for all callers; returns whether there was anything.
    pub(super) fn purge(&self, exchange: &Exchange) -> bool {
        self.cache.invalidate(self.subject(exchange).resource.fingerprint)
    }

    /// Removes what the response to a request that changes something makes invalid.
    pub(super) fn invalidate(&self, exchange: &Exchange) {
        for resource in subject::changed(&self.config, &self.cache.key, exchange) {
            self.cache.invalidate(resource.fingerprint);
            if let (Some(redis), Some(name)) = (&self.redis, resource.name) {
                redis.purge(Purge::Resource(name));
            }
        }
    }

    /// Has the upstream asked for a response whose stored one answers meanwhile, unless that happens already.
    fn revalidate(self: &Arc<Self>, exchange: &mut Exchange, lookup: Lookup, found: Found) {
        if exchange.has_body() {
            return;
        }
        // By the key of the response: requests with other credentials find the same one.
        let Joined::Leads(lead) = self.cache.join(found.fingerprint, Instant::now()) else { return };
        let instance = self.clone();
        exchange.ask_upstream_in_background(move |copy| {
            for of_the_client in ["Range", "If-Range", "If-None-Match", "If-Modified-Since"] {
                copy.request.headers.remove(of_the_client);
            }
            instance.fetch(copy, lookup, Some(found), Some(lead));
        });
    }
}

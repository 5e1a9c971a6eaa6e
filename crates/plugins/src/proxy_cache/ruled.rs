//! The cache with rules in the place of its own key: those of APISIX.

use super::config::{Config, Memory, ResponseHeaders};
use super::directives::Directives;
use super::key::{Parts, Scope, add_caller};
use super::lookup::{Instance, Outcome};
use crate::shared::variables::Template;
use std::sync::Arc;
use weir_plugin::{AccessEffect, BuildContext, Exchange, Flow, Known, WantsBody};

/// What decides instead of Kong's key.
pub(crate) struct Rules {
    pub(crate) zone: String,
    pub(crate) key: Vec<Template>,
    pub(crate) no_cache: Vec<Template>,
}

impl Rules {
    /// What requests for the same response have in common, from any caller.
    pub(super) fn resource(&self, exchange: &Exchange) -> Vec<u8> {
        let mut parts = Parts::default();
        parts.add(b"apisix");
        parts.add(self.zone.as_bytes());
        let route = exchange.route().map(|route| route.entity.id.into_bytes());
        parts.add(&route.unwrap_or_default());
        self.key.iter().for_each(|text| parts.add(&text.render(exchange)));
        parts.0
    }

    /// All parts of the key.
    pub(super) fn parts(&self, exchange: &Exchange, scope: Scope) -> Vec<u8> {
        let mut parts = Parts(self.resource(exchange));
        parts.add(match scope {
            Scope::Same => exchange.request.method_str().as_bytes(),
            Scope::Shared => b"GET",
        });
        add_caller(&mut parts, exchange, scope);
        parts.0
    }

    /// Whether the response must not be stored.
    pub(super) fn refuses(&self, exchange: &Exchange) -> bool {
        let said = Directives::of(exchange.response.headers.get_all_known(Known::CacheControl));
        said.private || said.no_store || said.no_cache || have_value(&self.no_cache, exchange)
    }
}

/// Whether the values of texts, one after the other, are neither empty nor `0`.
pub(crate) fn have_value(texts: &[Template], exchange: &Exchange) -> bool {
    let value: Vec<u8> = texts.iter().flat_map(|text| text.render(exchange).into_owned()).collect();
    !value.is_empty() && value != b"0"
}

/// Which responses are stored, and for how long.
pub(crate) struct Terms {
    pub(crate) statuses: Vec<u16>,
    pub(crate) methods: Vec<String>,
    pub(crate) seconds: u32,
    pub(crate) cache_control: bool,
}

/// A cache with rules.
pub(crate) struct RuledCache(Arc<Instance>);

impl RuledCache {
    pub(crate) fn new(terms: Terms, rules: Rules, build: &BuildContext<'_>) -> Self {
        let config = Config {
            response_code: terms.statuses,
            request_method: terms.methods,
            content_type: Vec::new(),
            cache_ttl: terms.seconds,
            strategy: "memory".to_owned(),
            cache_control: terms.cache_control,
            ignore_uri_case: false,
            storage_ttl: None,
            memory: Memory { dictionary_name: String::new() },
            redis: None,
            vary_query_params: None,
            vary_headers: None,
            response_headers: ResponseHeaders { age: true, x_cache_status: false, x_cache_key: false },
        };
        let cache = build.retained.get();
        Self(Arc::new(Instance { config, types: None, cache, redis: None, rules: Some(rules) }))
    }

    pub(crate) fn wants_body(&self) -> WantsBody {
        self.0.wants_body()
    }

    /// Whether responses to requests with this method are stored.
    pub(crate) fn has_method(&self, method: &str) -> bool {
        self.0.has_method(method)
    }

    pub(crate) fn access_effect(&self, exchange: &Exchange) -> AccessEffect {
        self.0.access_effect(exchange)
    }

    /// Answers the request, or has its response stored.
    pub(crate) fn access(&self, exchange: &mut Exchange) -> Flow {
        let flow = self.0.access(exchange);
        // What turns out later not to be cacheable is a miss in APISIX.
        if let Some(outcome) = exchange.extensions.get::<Outcome>().filter(|it| it.status.get() == "Bypass") {
            outcome.status.set("BYPASS");
        }
        flow
    }

    /// Lets the request pass the cache, with this status.
    pub(crate) fn pass(exchange: &mut Exchange, status: &'static str) -> Flow {
        exchange.extensions.insert(Outcome::new(status, None, None));
        Flow::Continue
    }

    /// Removes what is stored for the request, for all callers; returns whether there was anything.
    pub(crate) fn purge(&self, exchange: &Exchange) -> bool {
        self.0.purge(exchange)
    }

    /// The status in APISIX's words, and the age of a stored response.
    pub(crate) fn outcome(exchange: &Exchange) -> Option<(&'static str, Option<u64>)> {
        let outcome = exchange.extensions.get::<Outcome>()?;
        let status = match outcome.status.get() {
            "Hit" => "HIT",
            "Miss" | "Bypass" | "" => "MISS",
            "Refresh" => "EXPIRED",
            own => own,
        };
        Some((status, outcome.age))
    }
}

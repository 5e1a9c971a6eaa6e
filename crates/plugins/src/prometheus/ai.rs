//! The calls of large language models that AI plugins have made.

use super::exposition::UPSTREAM_BOUNDS;
use crate::llm::{LlmCall, LlmCalls};
use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};
use weir_plugin::{BuildContext, Exchange, Metric};

/// What is counted of the calls.
pub(super) struct AiMetrics {
    requests: Metric,
    cost: Metric,
    tokens: Metric,
    latency: Metric,
    first_token: Metric,
    tokens_per_second: Metric,
    names: Arc<ModelNames>,
}

/// The most names of models that are no configuration's, and the longest of them in bytes.
const MAX_NAMES: usize = 1_024;
const MAX_NAME_LEN: usize = 128;

/// The label of all other models.
const OTHER: &str = "other";

/// The names of models that requests have chosen, and that have answered. They stay until the process ends.
#[derive(Default)]
struct ModelNames(RwLock<HashSet<String>>);

impl ModelNames {
    /// What the model of a call is called by. Clients may ask for any, and each name is a series for ever.
    fn label<'c>(&self, call: &'c LlmCall) -> &'c str {
        let name = &*call.request_model;
        let has_answered = (200..300).contains(&call.status);
        if call.is_configured || self.knows(name) || has_answered && self.learn(name) { name } else { OTHER }
    }

    fn knows(&self, name: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    fn learn(&self, name: &str) -> bool {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if names.len() < MAX_NAMES && name.len() <= MAX_NAME_LEN {
            names.insert(name.to_owned());
        }
        names.contains(name)
    }
}

/// Tokens a second.
const RATE_BOUNDS: [f64; 12] = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 50.0, 75.0, 100.0, 200.0, 500.0, 1000.0];

/// Of these, those about caches of embeddings are always empty: no plugin here has one.
const LABELS: [&str; 7] = [
    "ai_provider",
    "ai_model",
    "cache_status",
    "vector_db",
    "embeddings_provider",
    "embeddings_model",
    "workspace",
];

const TOKEN_LABELS: [&str; 8] = [
    "ai_provider",
    "ai_model",
    "cache_status",
    "vector_db",
    "embeddings_provider",
    "embeddings_model",
    "token_type",
    "workspace",
];

impl AiMetrics {
    pub(super) fn new(build: &BuildContext<'_>) -> Result<Self, String> {
        let bounds = UPSTREAM_BOUNDS.map(|microseconds| microseconds as f64 / 1000.0);
        let latency = "kong_ai_llm_provider_latency_ms";
        let first_token = "kong_ai_llm_time_to_first_token_ms";
        let rate = "kong_ai_llm_tokens_per_second";
        Ok(Self {
            names: build.retained.get(),
            requests: build.counter(
                "kong_ai_llm_requests_total",
                "AI requests by provider and model",
                &LABELS,
            )?,
            cost: build.counter(
                "kong_ai_llm_cost_total",
                "Cost of AI requests by provider and model",
                &LABELS,
            )?,
            tokens: build.counter(
                "kong_ai_llm_tokens_total",
                "AI tokens by provider and model",
                &TOKEN_LABELS,
            )?,
            latency: build.histogram(latency, "Latency of AI providers in Kong", &LABELS, &bounds)?,
            first_token: build.histogram(
                first_token,
                "Time to the first token of streams of AI providers",
                &LABELS,
                &bounds,
            )?,
            tokens_per_second: build.histogram(
                rate,
                "Tokens per second of responses of AI providers, of streams behind the first",
                &LABELS,
                &RATE_BOUNDS,
            )?,
        })
    }

    pub(super) fn count(&self, exchange: &Exchange) {
        let Some(LlmCalls(calls)) = exchange.extensions.get() else { return };
        for call in calls {
            let (provider, model) = (&*call.provider, self.names.label(call));
            let labels = [provider, model, "", "", "", "", "default"];
            self.requests.with(&labels).add(1.0);
            if call.cost > 0.0 {
                self.cost.with(&labels).add(call.cost);
            }
            self.latency.with(&labels).add(call.latency.as_secs_f64() * 1000.0);
            if let Some(first_token) = call.first_token {
                self.first_token.with(&labels).add(first_token.as_secs_f64() * 1000.0);
            }
            if let Some(rate) = call.tokens_per_second() {
                self.tokens_per_second.with(&labels).add(rate);
            }
            let usage = &call.usage;
            let counts = [
                ("prompt_tokens", usage.prompt),
                ("completion_tokens", usage.completion),
                ("total_tokens", usage.total()),
            ];
            for (kind, count) in counts {
                if let Some(count) = count.filter(|count| *count > 0) {
                    let labels = [provider, model, "", "", "", "", kind, "default"];
                    self.tokens.with(&labels).add(count as f64);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LlmCall, MAX_NAME_LEN, MAX_NAMES, ModelNames, OTHER};
    use crate::llm::Usage;
    use std::time::Duration;

    fn call(model: &str, status: u16, is_configured: bool) -> LlmCall {
        LlmCall {
            provider: "openai".to_owned(),
            request_model: model.to_owned(),
            response_model: model.to_owned(),
            is_configured,
            status,
            usage: Usage::default(),
            cost: 0.0,
            latency: Duration::ZERO,
            first_token: None,
            azure: None,
        }
    }

    #[test]
    fn clients_cannot_make_series_of_the_names_that_they_choose() {
        let names = ModelNames::default();
        let label =
            |model: &str, status, is_configured| names.label(&call(model, status, is_configured)).to_owned();
        assert_eq!(label("any", 404, false), OTHER, "it has not answered");
        assert_eq!(label("any", 200, false), "any");
        assert_eq!(label("any", 404, false), "any", "it is known");
        assert_eq!(label(&"x".repeat(MAX_NAME_LEN + 1), 200, false), OTHER);
        for number in 1..MAX_NAMES {
            assert_ne!(label(&number.to_string(), 200, false), OTHER);
        }
        assert_eq!(label("one more", 200, false), OTHER);
        assert_eq!(label("configured", 404, true), "configured");
    }
}

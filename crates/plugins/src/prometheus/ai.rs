//! The calls of large language models that AI plugins have made.

use super::exposition::UPSTREAM_BOUNDS;
use crate::llm::LlmCalls;
use weir_plugin::{BuildContext, Exchange, Metric};

/// What is counted of the calls.
pub(super) struct AiMetrics {
    requests: Metric,
    cost: Metric,
    tokens: Metric,
    latency: Metric,
    first_token: Metric,
    tokens_per_second: Metric,
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
            let (provider, model) = (&*call.provider, &*call.request_model);
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

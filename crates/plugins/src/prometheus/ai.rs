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
}

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

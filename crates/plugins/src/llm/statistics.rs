//! What the calls of models have cost, for the logs and for Prometheus.

use super::config::Options;
use super::{Call, Usage};
use serde_json::json;
use std::time::Duration;
use weir_plugin::{Exchange, Json, LogFieldMode, ModelCall, ModelCalls, Uuid};

/// A call of a model that has ended.
#[derive(Debug, Clone)]
pub(crate) struct LlmCall {
    pub(crate) provider: String,
    pub(crate) request_model: String,
    pub(crate) response_model: String,
    /// The configuration names the model that was asked for: it is no client's word.
    pub(crate) is_configured: bool,
    /// The status of the response.
    pub(crate) status: u16,
    pub(crate) usage: Usage,
    /// What the tokens cost, where prices are configured.
    pub(crate) cost: f64,
    pub(crate) latency: Duration,
    /// How long the first text of a stream took.
    pub(crate) first_token: Option<Duration>,
    pub(crate) azure: Option<[Option<String>; 3]>,
}

/// The calls of a request, by all its plugins.
#[derive(Default)]
pub(crate) struct LlmCalls(pub(crate) Vec<LlmCall>);

impl LlmCall {
    pub(crate) fn new(
        call: &Call,
        response_model: Option<&str>,
        usage: Usage,
        (status, latency): (u16, Duration),
    ) -> Self {
        let options = &call.options;
        let azure = (call.provider == "azure").then(|| {
            let version = Some(options.azure_api_version.clone());
            [options.azure_instance.clone(), options.azure_deployment_id.clone(), version]
        });
        Self {
            provider: call.provider.clone(),
            request_model: call.model.clone(),
            response_model: response_model.unwrap_or(&call.model).to_owned(),
            is_configured: call.is_configured,
            status,
            usage,
            cost: cost(options, &usage),
            latency,
            first_token: None,
            azure,
        }
    }

    /// The same, with how long the first text of a stream took.
    pub(crate) fn with_first_token(self, first_token: Option<Duration>) -> Self {
        Self { first_token, ..self }
    }

    /// How many tokens of the response have come a second: of a stream, from its first text on.
    pub(crate) fn tokens_per_second(&self) -> Option<f64> {
        let took = self.latency.saturating_sub(self.first_token.unwrap_or_default());
        let completion = self.usage.completion.filter(|count| *count > 0)?;
        (!took.is_zero()).then(|| completion as f64 / took.as_secs_f64())
    }

    /// Has the analytics count the call.
    pub(crate) fn report(&self, calls: &ModelCalls) {
        if calls.are_counted() {
            calls.push(ModelCall {
                model: format!("{}/{}", self.provider, self.request_model),
                is_configured: self.is_configured,
                status: self.status,
                prompt_tokens: self.usage.prompt.unwrap_or(0),
                completion_tokens: self.usage.completion.unwrap_or(0),
                latency: self.latency,
                first_token: self.first_token,
                tokens_per_second: self.tokens_per_second(),
            });
        }
    }

    /// Has log plugins write the call as `ai.NAME`, and Prometheus count it.
    pub(crate) fn record(self, exchange: &mut Exchange, name: &str, plugin: Uuid) {
        let set = |part: &str, value| log_field(exchange, &format!("ai.{name}.{part}"), value);
        set("meta", self.meta(plugin));
        set("usage", self.counts());
        match exchange.extensions.get_mut::<LlmCalls>() {
            Some(calls) => calls.0.push(self),
            None => exchange.extensions.insert(LlmCalls(vec![self])),
        }
    }

    fn meta(&self, plugin: Uuid) -> Json {
        let mut meta = json!({
            "plugin_id": plugin,
            "provider_name": self.provider,
            "request_model": self.request_model,
            "response_model": self.response_model,
            "llm_latency": self.latency.as_millis() as u64,
        });
        if let Some(first_token) = self.first_token {
            meta["time_to_first_token"] = json!(first_token.as_millis() as u64);
        }
        if let Some([instance, deployment, version]) = &self.azure {
            meta["azure_instance_id"] = json!(instance);
            meta["azure_deployment_id"] = json!(deployment);
            meta["azure_api_version"] = json!(version);
        }
        meta
    }

    fn counts(&self) -> Json {
        let (prompt, completion) = (self.usage.prompt.unwrap_or(0), self.usage.completion.unwrap_or(0));
        let latency = self.latency.as_millis() as u64;
        json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": self.usage.total().unwrap_or(prompt.saturating_add(completion)),
            "time_per_token": latency.checked_div(completion).unwrap_or(0),
            "cost": self.cost,
        })
    }
}

/// The cost of these tokens, whose prices are for a million.
fn cost(options: &Options, usage: &Usage) -> f64 {
    let prices = options.input_cost.zip(options.output_cost);
    let tokens = |count: Option<u64>| count.unwrap_or(0) as f64;
    prices.map_or(0.0, |(input, output)| {
        (tokens(usage.prompt) * input + tokens(usage.completion) * output) / 1_000_000.0
    })
}

/// Has log plugins write a body of the plugin `name`.
pub(crate) fn log_payload(exchange: &Exchange, name: &str, part: &str, body: &[u8]) {
    let text = String::from_utf8_lossy(body).into_owned();
    log_field(exchange, &format!("ai.{name}.payload.{part}"), text.into());
}

/// Has log plugins write a field.
pub(crate) fn log_field(exchange: &Exchange, path: &str, value: Json) {
    exchange.set_log_field(path, Some(value), LogFieldMode::Set);
}

//! Sends a request to the model.

use super::{AiProxy, Config};
use crate::llm::{InFlight, LlmError, Prompts, Provider, Reporting, Route, TokenLimits};
use weir_plugin::{BuildContext, Exchange, Flow, Json, Plugin};

/// One configured instance.
pub(super) struct Proxy {
    config: Config,
    provider: Provider,
    reporting: Reporting,
    /// What limits of tokens know it by.
    instance: String,
}

impl Proxy {
    pub(super) fn new(config: Config, build: &BuildContext<'_>) -> Self {
        let logging = &config.llm.logging;
        let reporting = Reporting {
            plugin: build.entity.id,
            plugin_name: AiProxy::NAME,
            name: "proxy",
            statistics: logging.log_statistics,
            payloads: logging.log_payloads,
            model_header: config.model_name_header,
            calls: build.retained.get(),
        };
        let provider = Provider::new(config.llm.clone(), config.llm_format != "openai");
        let instance = format!("ai-proxy-{}", config.llm.model.provider);
        Self { provider, reporting, instance, config }
    }

    fn max_len(&self) -> usize {
        usize::try_from(self.config.max_request_body_size).unwrap_or(0)
    }

    /// Has the request sent to the model, unless its limits are used up.
    pub(super) fn ask(&self, exchange: &mut Exchange) -> Result<Flow, LlmError> {
        let keeps_form = self.provider.is_native || self.config.llm.route_type == Route::Preserve.name();
        let prompts = if keeps_form {
            Prompts(Prompts::of(exchange, self.max_len()).map_err(LlmError::malformed)?)
        } else {
            Prompts::read(exchange, self.max_len())?
        };
        let mut call = self.provider.backend.call(exchange, &prompts)?;
        if !keeps_form {
            prompts.fit(call.route)?;
        }
        call.streams = self.streams(exchange, &prompts)?;
        let limits = exchange.extensions.get_mut::<TokenLimits>();
        if let Some(rejected) = limits.and_then(|limits| limits.choose(&self.instance)) {
            return Ok(Flow::Respond(rejected));
        }
        let request = exchange.body().filter(|_| self.reporting.payloads).map(<[u8]>::to_vec);
        InFlight::send(exchange, &self.provider, (prompts, call), &self.reporting, request)?;
        Ok(Flow::Continue)
    }

    /// Whether the response is to be a stream.
    fn streams(&self, exchange: &Exchange, prompts: &Prompts) -> Result<bool, LlmError> {
        let path = exchange.path();
        let by_path = path.ends_with("streamGenerateContent") || path.ends_with("converse-stream");
        let by_body = prompts.0.get("stream") == Some(&Json::Bool(true));
        let asks = match (self.provider.is_native, &*self.config.llm.route_type) {
            (true, _) => by_path,
            (false, "preserve") => by_path || by_body,
            (false, _) => by_body,
        };
        match &*self.config.response_streaming {
            "deny" if asks => {
                Err(LlmError::Request("response streaming is not enabled for this LLM".to_owned()))
            }
            "always" => Ok(true),
            _ => Ok(asks),
        }
    }
}

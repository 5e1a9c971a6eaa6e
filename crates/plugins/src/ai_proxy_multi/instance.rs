//! An instance of a model: its provider in the terms of ai-proxy's.

use super::config::{InstanceAuth, InstanceConfig};
use super::health::Health;
use crate::llm::{
    Auth, Bedrock, Call, Llm, LlmError, Logging, Model, Object, Options, Prompts, Provider, Target,
};
use crate::shared::aws::Credentials;
use weir_plugin::{Exchange, Json, Secret};

/// An instance of a model.
pub(super) struct Instance {
    pub(super) name: String,
    pub(super) priority: i32,
    pub(super) weight: u64,
    pub(super) health: Health,
    pub(super) provider: Provider,
    /// The provider, as logs name it.
    pub(super) provider_name: String,
    has_model: bool,
    /// Responses are streams, whatever requests ask for.
    streams: bool,
}

/// How a provider is asked: as which of ai-proxy's, and where.
struct Api {
    provider: &'static str,
    /// The host of its own, if it has one, and the path of chats.
    url: Option<(&'static str, &'static str)>,
}

/// The path of chats in OpenAI's API.
const CHATS: &str = "/v1/chat/completions";

impl Api {
    fn of(config: &InstanceConfig) -> Self {
        let auth = config.auth.as_ref();
        let has_header = |name: &str| {
            let mut names = auth.into_iter().flat_map(|auth| auth.header.iter().flat_map(|map| map.keys()));
            names.any(|header| header.eq_ignore_ascii_case(name))
        };
        let has_key = auth.is_some_and(|auth| auth.query.as_ref().is_some_and(|map| map.contains_key("key")));
        let openai = |host, path| Self { provider: "openai", url: Some((host, path)) };
        let own = |provider| Self { provider, url: None };
        match &*config.provider {
            "deepseek" => openai("https://api.deepseek.com", "/chat/completions"),
            "aimlapi" => openai("https://api.aimlapi.com", CHATS),
            "openrouter" => openai("https://openrouter.ai", "/api/v1/chat/completions"),
            "anthropic" if has_header("x-api-key") => {
                Self { provider: "anthropic", url: Some(("https://api.anthropic.com", "/v1/messages")) }
            }
            "anthropic" => openai("https://api.anthropic.com", CHATS),
            "gemini" if has_header("x-goog-api-key") || has_key => own("gemini"),
            "gemini" => {
                openai("https://generativelanguage.googleapis.com", "/v1beta/openai/chat/completions")
            }
            "bedrock" => own("bedrock"),
            "cohere" => own("cohere"),
            "mistral" => Self { provider: "mistral", url: Some(("https://api.mistral.ai", CHATS)) },
            "huggingface" => own("huggingface"),
            "ollama" => Self { provider: "llama2", url: Some(("", "/api/chat")) },
            "openai" => openai("https://api.openai.com", CHATS),
            // Azure's, Vertex AI's and others.
            _ => openai("", CHATS),
        }
    }

    /// The URL, where it is not the driver's own. One that is configured gets the path of chats, if it has none.
    fn url(&self, config: &InstanceConfig) -> Result<Option<String>, (&'static str, String)> {
        let configured = config.r#override.as_ref().and_then(|of| of.endpoint.as_deref());
        match (configured, self.url) {
            (Some(url), path) => {
                let target = Target::parse(url).map_err(|error| ("override.endpoint", error))?;
                let path = path.filter(|_| target.path == "/" && target.query.is_none());
                Ok(Some(
                    path.map_or(url.to_owned(), |(_, path)| format!("{}{path}", url.trim_end_matches('/'))),
                ))
            }
            (None, Some(("", _))) => {
                Err(("override.endpoint", format!("set it to the URL of {}", config.provider)))
            }
            (None, Some((host, path))) => Ok(Some(format!("{host}{path}"))),
            (None, None) => Ok(None),
        }
    }
}

impl Instance {
    /// Whether requests can be sent to it. The error names its field.
    pub(super) fn check(config: &InstanceConfig) -> Result<(), (&'static str, String)> {
        let refuse = |field, message: &str| Err((field, message.to_owned()));
        if config.checks.is_some() {
            let message = "no instance is probed here: leave it out, and set `fallback_strategy`, with which one that fails is left out for a while";
            return refuse("checks", message);
        }
        if config.auth.as_ref().is_some_and(|auth| auth.gcp.is_some()) {
            let message =
                "Weir cannot ask Google for tokens of a service account; set `auth.header` or `auth.query`";
            return refuse("auth.gcp", message);
        }
        if config.auth.as_ref().is_some_and(|auth| auth.query.as_ref().is_some_and(|query| query.len() > 1)) {
            return refuse("auth.query", "one parameter can hold the key; set others in `override.endpoint`");
        }
        if !matches!(config.options, None | Some(Json::Object(_) | Json::Null)) {
            return refuse("options", "expected a mapping");
        }
        let named = options(config).remove("model");
        if named.as_ref().is_some_and(|model| model.as_str().is_none_or(str::is_empty)) {
            return refuse("options.model", "expected the name of a model");
        }
        let region = config.provider_conf.as_ref().and_then(|conf| conf.region.as_deref());
        let has_key = config.auth.as_ref().is_some_and(|auth| auth.aws.is_some());
        if config.provider == "bedrock" && region.is_none() {
            return refuse("provider_conf.region", "set it to the region of AWS");
        }
        if config.provider == "bedrock" && !has_key {
            return refuse("auth.aws", "set it to the access key that requests are signed with");
        }
        Api::of(config).url(config).map(drop)
    }

    pub(super) fn new(config: InstanceConfig) -> Result<Self, String> {
        let api = Api::of(&config);
        let url = api.url(&config).map_err(|(field, message)| format!("{field}: {message}"))?;
        let mut members = options(&config);
        let model = members.remove("model").and_then(|model| model.as_str().map(str::to_owned));
        let streams = members.remove("stream") == Some(Json::Bool(true));
        let region = config.provider_conf.and_then(|conf| conf.region);
        let mut auth = config.auth.unwrap_or_default();
        let (credentials, headers) = (credentials(&auth), auth.header.take().unwrap_or_default());
        let has_model = model.is_some();
        let llm = Llm {
            route_type: "llm/v1/chat".to_owned(),
            auth: Some(key(auth)),
            model: Model {
                provider: api.provider.to_owned(),
                name: model,
                options: Some(model_options(&api, url, region)),
            },
            logging: Logging { log_statistics: false, log_payloads: false },
        };
        let provider = Provider::new(llm, false).with(headers.into_iter().collect(), members);
        Ok(Self {
            name: config.name,
            priority: config.priority,
            weight: config.weight.into(),
            health: Health::default(),
            provider: provider.signed_by(credentials),
            provider_name: config.provider,
            has_model,
            streams,
        })
    }

    /// The call for these prompts.
    pub(super) fn call(&self, exchange: &Exchange, prompts: &mut Prompts) -> Result<Call, LlmError> {
        if self.has_model {
            prompts.0.remove("model");
        }
        let mut call = self.provider.backend.call(exchange, prompts)?;
        prompts.fit(call.route)?;
        call.streams = self.streams || prompts.0.get("stream") == Some(&Json::Bool(true));
        call.provider.clone_from(&self.provider_name);
        Ok(call)
    }
}

fn options(config: &InstanceConfig) -> Object {
    config.options.as_ref().and_then(Json::as_object).cloned().unwrap_or_default()
}

fn model_options(api: &Api, url: Option<String>, region: Option<String>) -> Options {
    Options {
        upstream_url: url,
        anthropic_version: (api.provider == "anthropic").then(|| "2023-06-01".to_owned()),
        llama2_format: (api.provider == "llama2").then(|| "ollama".to_owned()),
        mistral_format: (api.provider == "mistral").then(|| "openai".to_owned()),
        bedrock: (api.provider == "bedrock").then_some(Bedrock { aws_region: region }),
        ..Options::default()
    }
}

fn credentials(auth: &InstanceAuth) -> Option<Credentials> {
    auth.aws.as_ref().map(|key| Credentials {
        access_key_id: key.access_key_id.expose().to_owned(),
        secret_access_key: key.secret_access_key.clone(),
        session_token: key.session_token.clone(),
    })
}

/// The key in the query. Headers with keys are the provider's more headers.
fn key(auth: InstanceAuth) -> Auth {
    let (name, value): (Option<String>, Option<Secret>) = auth.query.into_iter().flatten().next().unzip();
    let param_location = name.is_some().then(|| "query".to_owned());
    Auth { param_name: name, param_value: value, param_location, ..Auth::default() }
}

//! One request to a model: which model it is, and what is sent.

use super::config::{Auth, Llm, Options};
use super::providers::{self, Dialect};
use super::{LlmError, Object, Prompts, Target, TokenLimits};
use std::sync::{Arc, OnceLock};
use weir_plugin::{Exchange, Json};

/// What is asked of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Chat,
    Completions,
    /// Requests and responses pass as they are.
    Preserve,
}

impl Route {
    fn named(name: &str) -> Self {
        match name {
            "llm/v1/chat" => Self::Chat,
            "llm/v1/completions" => Self::Completions,
            _ => Self::Preserve,
        }
    }

    /// Kong's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "llm/v1/chat",
            Self::Completions => "llm/v1/completions",
            Self::Preserve => "preserve",
        }
    }
}

/// A configured model.
pub(crate) struct Backend {
    pub(crate) config: Llm,
    pub(crate) dialect: &'static dyn Dialect,
    route: Route,
    options: Arc<Options>,
    /// The name or an option refers to the request.
    refers: bool,
    /// The first URL of a request, which is that of most.
    first_url: OnceLock<(String, Result<Target, String>)>,
}

/// The members of requests that say how many tokens a response has at most.
pub(super) const TOKEN_LIMITS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// What the ids of responses begin with that the provider does not name.
const ID_PREFIX: &str = "chatcmpl-";

/// One request to a model.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) provider: String,
    pub(crate) route: Route,
    pub(crate) model: String,
    /// The configuration names the model: it is no client's word.
    pub(crate) is_configured: bool,
    pub(crate) options: Arc<Options>,
    /// The response is a stream.
    pub(crate) streams: bool,
    /// The client wants a last event with the tokens.
    pub(crate) includes_usage: bool,
    /// The provider is asked to count the tokens of a stream, whether the client wants to know them or not.
    pub(crate) counts_usage: bool,
    /// What the response is named by, where the provider does not name it.
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
}

impl Call {
    /// The id of the client's request.
    pub(crate) fn request_id(&self) -> &str {
        self.id.strip_prefix(ID_PREFIX).unwrap_or_default()
    }

    /// The provider and its model.
    pub(crate) fn name(&self) -> String {
        [&self.provider, "/", &self.model].concat()
    }
}

impl Backend {
    pub(crate) fn new(config: Llm) -> Self {
        let options = config.model.options.clone().unwrap_or_default();
        let texts = [
            config.model.name.as_ref(),
            options.anthropic_version.as_ref(),
            options.azure_instance.as_ref(),
            options.azure_deployment_id.as_ref(),
            options.upstream_url.as_ref(),
            options.upstream_path.as_ref(),
            Some(&options.azure_api_version),
        ];
        let refers = texts.into_iter().flatten().any(|text| reference(text).is_some());
        let route = Route::named(&config.route_type);
        let dialect = providers::dialect(&config.model.provider, &options);
        Self { dialect, route, options: Arc::new(options), refers, config, first_url: OnceLock::new() }
    }

    pub(crate) fn auth(&self) -> Option<&Auth> {
        self.config.auth.as_ref()
    }

    /// The call for these prompts: the model is the configured one, or else the one that they name.
    pub(crate) fn call(&self, exchange: &Exchange, prompts: &Prompts) -> Result<Call, LlmError> {
        let name = self.config.model.name.as_deref();
        let is_configured = name.is_some_and(|name| reference(name).is_none());
        let (name, options) = match self.refers {
            true => (
                name.map(|name| resolved("model.name", name, exchange)).transpose()?,
                self.resolved(exchange)?,
            ),
            false => (name.map(str::to_owned), self.options.clone()),
        };
        let missing = "model parameter not found in request, nor in gateway configuration";
        let asked = prompts.model();
        let Some(model) = name.or_else(|| asked.map(str::to_owned)) else {
            return Err(LlmError::Request(missing.to_owned()));
        };
        if asked.is_some_and(|asked| asked != model) {
            return Err(LlmError::Request(format!("cannot use own model - must be: {model}")));
        }
        let includes_usage = prompts.0.get("stream_options").is_some_and(|of| of["include_usage"] == true);
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Ok(Call {
            provider: self.config.model.provider.clone(),
            route: self.route,
            model,
            is_configured,
            options,
            streams: false,
            includes_usage,
            counts_usage: exchange.extensions.get::<TokenLimits>().is_some(),
            id: format!("{ID_PREFIX}{}", exchange.id()),
            created: since_1970.map_or(0, |since| since.as_secs()),
        })
    }

    /// The options, with what the request has in the place of references.
    fn resolved(&self, exchange: &Exchange) -> Result<Arc<Options>, LlmError> {
        let mut options = (*self.options).clone();
        let texts = [
            Some(&mut options.azure_api_version),
            options.anthropic_version.as_mut(),
            options.azure_instance.as_mut(),
            options.azure_deployment_id.as_mut(),
            options.upstream_url.as_mut(),
            options.upstream_path.as_mut(),
        ];
        for text in texts.into_iter().flatten() {
            *text = resolved(text, text, exchange)?;
        }
        Ok(Arc::new(options))
    }

    /// What the provider is sent.
    pub(crate) fn body(&self, mut prompts: Prompts, call: &Call) -> Result<Json, LlmError> {
        merge(&mut prompts.0, &call.options);
        self.dialect.request(prompts, call).map_err(LlmError::Request)
    }

    /// Where it is sent. `path` is that of the client's request.
    pub(crate) fn target(&self, call: &Call, path: &str) -> Result<Target, LlmError> {
        let options = &call.options;
        let url = self.dialect.url(call).map_err(LlmError::Request)?;
        let mut target = self.parsed(&url).map_err(LlmError::Request)?;
        let replaced = match &options.upstream_path {
            // Azure's is behind that of the deployment already.
            Some(path) if options.upstream_url.is_none() && call.provider != "azure" => Some(&**path),
            Some(path) if call.route == Route::Preserve => Some(&**path),
            None if call.route == Route::Preserve => Some(path),
            _ => None,
        };
        if let Some(path) = replaced {
            target.set_path(path);
        }
        Ok(target)
    }

    fn parsed(&self, url: &str) -> Result<Target, String> {
        let (first, target) = self.first_url.get_or_init(|| (url.to_owned(), Target::parse(url)));
        if first == url { target.clone() } else { Target::parse(url) }
    }
}

/// Leaves it to the configuration how many tokens a response may have: two members say so.
pub(super) fn remove_token_limits(body: &mut Object) {
    TOKEN_LIMITS.iter().for_each(|name| drop(body.remove(*name)));
}

/// Replaces what the request says by what is configured.
fn merge(body: &mut Object, options: &Options) {
    if options.max_tokens.is_some() {
        remove_token_limits(body);
    }
    let mut set = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            body.insert(name.to_owned(), value);
        }
    };
    set("temperature", options.temperature.map(Json::from));
    set("max_tokens", options.max_tokens.map(Json::from));
    set("top_p", options.top_p.map(Json::from));
    set("top_k", options.top_k.map(Json::from));
}

/// What `$(headers.name)` refers to.
fn reference(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("$(")?;
    rest.split_once(')').map(|(reference, _)| reference)
}

/// The text, or what it refers to in the request.
fn resolved(field: &str, text: &str, exchange: &Exchange) -> Result<String, LlmError> {
    let Some(reference) = reference(text) else { return Ok(text.to_owned()) };
    let Some((source, key)) = reference.split_once('.').filter(|(_, key)| !key.contains('.')) else {
        return Err(LlmError::Request(format!("cannot parse expression for field '{field}'")));
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let found = match source {
        "headers" => exchange.request.headers.get(key).map(text),
        "uri_captures" => exchange.uri_captures().and_then(|captures| captures.name(key)).map(str::to_owned),
        "query_params" => exchange.query_arg(key).and_then(|pair| pair.value.map(|value| text(&value))),
        _ => return Err(LlmError::Request(format!("source '{source}' is not supported"))),
    };
    let missing = || match field {
        "model.name" => format!("'{source}', key '{key}' was not provided"),
        _ => format!("{source} key {key} was not provided"),
    };
    found.ok_or_else(|| LlmError::Request(missing()))
}

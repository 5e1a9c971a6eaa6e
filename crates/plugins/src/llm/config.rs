//! Which model is asked, where, and as whom: fields that the AI plugins have in common.

use weir_plugin::{FieldError, Record, Secret, rule};

/// A model and how to ask it.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(crate) struct Llm {
    /// What is asked of the model; `preserve` passes requests and responses on as they are.
    #[field(one_of = ["llm/v1/chat", "llm/v1/completions", "preserve"])]
    pub route_type: String,
    /// Who asks.
    pub auth: Option<Auth>,
    /// The model.
    pub model: Model,
    /// What is logged.
    #[field(default = {})]
    pub logging: Logging,
}

/// What the provider knows the caller by. The upstream alone gets it: it is in no log.
#[derive(Debug, Clone, Default, Record)]
#[record(check = auth_violations)]
pub(crate) struct Auth {
    /// The name of the header with the key.
    #[field(referenceable, check = key_header)]
    pub header_name: Option<String>,
    /// The whole value of that header, such as `Bearer KEY`.
    #[field(secret)]
    pub header_value: Option<Secret>,
    /// The name of the parameter with the key.
    #[field(referenceable)]
    pub param_name: Option<String>,
    /// The value of that parameter.
    #[field(secret)]
    pub param_value: Option<Secret>,
    /// Whether the parameter is in the query or in the body.
    #[field(one_of = ["query", "body"])]
    pub param_location: Option<String>,
    /// Asks Gemini as a service account of Google Cloud. Not supported: the configuration is refused with it.
    #[field(nullable, default = false)]
    pub gcp_use_service_account: bool,
    /// The JSON of the service account.
    #[field(secret)]
    pub gcp_service_account_json: Option<Secret>,
    /// The id of the AWS access key; otherwise the environment's `AWS_ACCESS_KEY_ID`.
    #[field(secret)]
    pub aws_access_key_id: Option<Secret>,
    /// The AWS access key; otherwise the environment's `AWS_SECRET_ACCESS_KEY`.
    #[field(secret)]
    pub aws_secret_access_key: Option<Secret>,
    /// Lets clients send a key of their own in the place of this one.
    #[field(nullable, default = false)]
    pub allow_override: bool,
}

/// A model of a provider.
#[derive(Debug, Clone, Record)]
pub(crate) struct Model {
    /// The provider, which decides about URL and format.
    #[field(one_of = [
        "openai", "azure", "anthropic", "cohere", "mistral", "llama2", "gemini", "bedrock", "huggingface"
    ])]
    pub provider: String,
    /// The model's name; if unset, requests name it.
    pub name: Option<String>,
    /// Options of model and provider.
    pub options: Option<Options>,
}

/// Options of model and provider. Those of the model replace what requests say.
#[derive(Debug, Clone, Default, Record)]
pub(crate) struct Options {
    /// How many tokens a response has at most.
    pub max_tokens: Option<i64>,
    /// The cost of a million tokens of prompts.
    #[field(gt = 0)]
    pub input_cost: Option<f64>,
    /// The cost of a million tokens of responses.
    #[field(gt = 0)]
    pub output_cost: Option<f64>,
    /// The temperature.
    #[field(between = [0, 5])]
    pub temperature: Option<f64>,
    /// The probability mass of the tokens to choose from.
    #[field(between = [0, 1])]
    pub top_p: Option<f64>,
    /// How many tokens to choose from.
    #[field(between = [0, 500])]
    pub top_k: Option<i64>,
    /// The version of Anthropic's API.
    pub anthropic_version: Option<String>,
    /// The name of the Azure OpenAI instance.
    pub azure_instance: Option<String>,
    /// The version of Azure's API.
    #[field(nullable, default = "2023-05-15")]
    pub azure_api_version: String,
    /// The name of the Azure deployment.
    pub azure_deployment_id: Option<String>,
    /// The format that the server of a Llama model speaks.
    #[field(one_of = ["raw", "openai", "ollama"])]
    pub llama2_format: Option<String>,
    /// The format that the server of a Mistral model speaks.
    #[field(one_of = ["openai", "ollama"])]
    pub mistral_format: Option<String>,
    /// The whole URL, in the place of the provider's.
    #[field(matches = url)]
    pub upstream_url: Option<String>,
    /// The path, in the place of the provider's.
    pub upstream_path: Option<String>,
    /// Gemini on Vertex AI.
    pub gemini: Option<Gemini>,
    /// Amazon Bedrock.
    pub bedrock: Option<Bedrock>,
    /// Hugging Face's inference API.
    pub huggingface: Option<HuggingFace>,
}

/// Gemini on Vertex AI.
#[derive(Debug, Clone, Record)]
#[record(check = gemini_violations)]
pub(crate) struct Gemini {
    /// The host name of the regional API.
    pub api_endpoint: Option<String>,
    /// The project.
    pub project_id: Option<String>,
    /// The location.
    pub location_id: Option<String>,
}

/// Amazon Bedrock.
#[derive(Debug, Clone, Record)]
pub(crate) struct Bedrock {
    /// The region; otherwise the environment's `AWS_REGION`.
    pub aws_region: Option<String>,
}

/// Hugging Face's inference API.
#[derive(Debug, Clone, Record)]
pub(crate) struct HuggingFace {
    /// Uses the cache of the inference API.
    pub use_cache: Option<bool>,
    /// Waits for a model that is being loaded.
    pub wait_for_model: Option<bool>,
}

/// What is logged of requests and responses, by log plugins.
#[derive(Debug, Clone, Record)]
pub(crate) struct Logging {
    /// Logs model, tokens, duration and cost.
    #[field(default = false)]
    pub log_statistics: bool,
    /// Logs the bodies of requests and responses.
    #[field(default = false)]
    pub log_payloads: bool,
}

/// A header that may hold a key: not one that frames the request.
pub(crate) fn key_header(name: &str) -> Result<(), String> {
    rule::header_name(name)?;
    let frames = ["host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "te"];
    match frames.iter().any(|frame| name.eq_ignore_ascii_case(frame)) {
        true => Err(format!("{name} cannot hold a key; name the header that the provider reads it from")),
        false => Ok(()),
    }
}

/// All of these fields must be set, or none.
fn together(fields: &[(&str, bool)]) -> Vec<FieldError> {
    let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
    let message = format!("all or none of these fields must be set: '{}'", names.join("', '"));
    let is_any = fields.iter().any(|(_, is_set)| *is_set);
    let missing = fields.iter().filter(|(_, is_set)| is_any && !is_set);
    missing.map(|(name, _)| FieldError::new(*name, message.clone())).collect()
}

fn auth_violations(auth: &Auth) -> Vec<FieldError> {
    let header = [("header_name", auth.header_name.is_some()), ("header_value", auth.header_value.is_some())];
    let param = [
        ("param_name", auth.param_name.is_some()),
        ("param_value", auth.param_value.is_some()),
        ("param_location", auth.param_location.is_some()),
    ];
    let mut found = [together(&header), together(&param)].concat();
    if auth.gcp_use_service_account {
        let message =
            "Weir cannot ask Google for tokens of a service account; set `param_name: key` with an API key";
        found.push(FieldError::new("gcp_use_service_account", message));
    }
    found
}

fn gemini_violations(gemini: &Gemini) -> Vec<FieldError> {
    together(&[
        ("api_endpoint", gemini.api_endpoint.is_some()),
        ("project_id", gemini.project_id.is_some()),
        ("location_id", gemini.location_id.is_some()),
    ])
}

fn violations(llm: &Llm) -> Vec<FieldError> {
    let provider = &*llm.model.provider;
    let options = llm.model.options.as_ref();
    let is_set = |get: fn(&Options) -> bool| options.is_some_and(get);
    let required: &[(&str, &str, bool)] = &[
        ("llama2", "llama2_format", is_set(|o| o.llama2_format.is_some())),
        ("mistral", "mistral_format", is_set(|o| o.mistral_format.is_some())),
        ("anthropic", "anthropic_version", is_set(|o| o.anthropic_version.is_some())),
        ("azure", "azure_instance", is_set(|o| o.azure_instance.is_some())),
        ("azure", "azure_deployment_id", is_set(|o| o.azure_deployment_id.is_some())),
        ("llama2", "upstream_url", is_set(|o| o.upstream_url.is_some())),
    ];
    let missing = required.iter().filter(|(of, _, is_set)| *of == provider && !is_set);
    let mut found: Vec<_> = missing
        .map(|(_, name, _)| {
            let whom =
                if *name == "upstream_url" { "self-hosted providers/models" } else { "PROVIDER provider" };
            let whom = whom.replace("PROVIDER", provider);
            let path = format!("model.options.{name}");
            FieldError::new(path.clone(), format!("must set {path} for {whom}"))
        })
        .collect();
    let allows = llm.auth.as_ref().is_some_and(|auth| auth.allow_override);
    if allows && ["bedrock", "gemini"].contains(&provider) {
        let message = "bedrock and gemini only support auth.allow_override = false";
        found.push(FieldError::new("auth.allow_override", message));
    }
    if provider == "anthropic" && llm.route_type == "llm/v1/completions" && llm.logging.log_statistics {
        let message = "anthropic does not support statistics when route_type is llm/v1/completions";
        found.push(FieldError::new("logging.log_statistics", message));
    }
    found
}

//! The configuration: the instances, and how requests are spread over them.

use super::instance::Instance;
use crate::llm::key_header;
use crate::shared::request_key::Key;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_plugin::{FieldError, FieldWarning, Json, Record, Secret};

/// The instances, and how requests are spread over them.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(crate) struct Config {
    /// When another instance is asked: one of these texts, or several of them.
    pub fallback_strategy: Option<Json>,
    /// More statuses behind which another instance is asked.
    #[field(len_min = 1, between = [400, 599])]
    pub fallback_http_statuses: Option<Vec<u16>>,
    /// How many more instances a request is sent to at most; all of them if unset.
    #[field(between = [0, 65535])]
    pub max_retries: Option<u32>,
    /// Asks no other instance behind one that took longer to fail, in milliseconds.
    #[field(between = [1, 2147483646])]
    pub retry_on_failure_within_ms: Option<u32>,
    /// How an instance is chosen among those of one priority.
    #[field(default = {})]
    pub balancer: Balancer,
    /// The instances.
    #[field(len_min = 1)]
    pub instances: Vec<InstanceConfig>,
    /// What is logged.
    #[field(default = {})]
    pub logging: Logging,
    /// The timeout of connecting to an instance, of sending to it, and of each wait for something of it, in milliseconds.
    #[field(default = 30000, between = [1, 600000])]
    pub timeout: u32,
    /// Whether to verify instances' certificates: the service's `tls_verify` says so, which this is in APISIX's objects.
    pub ssl_verify: Option<bool>,
    /// Without effect: connections are kept as those of all upstreams.
    pub keepalive: Option<bool>,
    /// Without effect: `upstream_keepalive_idle_timeout` says how long connections are kept.
    #[field(between = [1000, 2147483646])]
    pub keepalive_timeout: Option<u32>,
    /// Without effect: `upstream_keepalive_pool_size` says how many connections are kept.
    #[field(between = [1, 2147483646])]
    pub keepalive_pool: Option<u32>,
}

/// How an instance is chosen.
#[derive(Debug, Clone, Record)]
pub(crate) struct Balancer {
    /// By weights in turn, or by a hash of something in the request.
    #[field(default = "roundrobin", one_of = ["roundrobin", "chash"])]
    pub algorithm: String,
    /// What is hashed. A request without it is hashed by its client's address.
    #[field(default = "vars", one_of = ["vars", "header", "cookie", "consumer", "vars_combinations"])]
    pub hash_on: String,
    /// The variable, the header or the cookie, or the text with variables.
    pub key: Option<String>,
}

impl Balancer {
    /// What is hashed, if anything is.
    pub(super) fn key(&self) -> Result<Option<Key>, String> {
        if self.algorithm != "chash" {
            return Ok(None);
        }
        let named = self.key.as_deref().filter(|key| !key.is_empty());
        let named = || named.ok_or_else(|| "set it to what is hashed".to_owned());
        match &*self.hash_on {
            "consumer" => Key::read("var", "consumer_name"),
            "header" => Key::read("var", &format!("http_{}", named()?)),
            "cookie" => Key::read("var", &format!("cookie_{}", named()?)),
            "vars_combinations" => Key::read("var_combination", named()?),
            _ => Key::read("var", named()?),
        }
        .map(Some)
    }
}

/// What is logged of requests and responses, by log plugins.
#[derive(Debug, Clone, Record)]
pub(crate) struct Logging {
    /// Logs model, tokens, duration and cost.
    #[field(default = false)]
    pub summaries: bool,
    /// Logs the bodies of requests and responses.
    #[field(default = false)]
    pub payloads: bool,
}

/// An instance of a model.
#[derive(Debug, Clone, Record)]
pub(crate) struct InstanceConfig {
    /// The name, in limits and logs.
    pub name: String,
    /// Who provides it, which decides about URL and format.
    #[field(one_of = [
        "openai", "deepseek", "azure-openai", "aimlapi", "anthropic", "openrouter", "gemini", "vertex-ai", "bedrock",
        "openai-compatible", "cohere", "mistral", "huggingface", "ollama"
    ])]
    pub provider: String,
    /// What a provider needs to know beside the key.
    pub provider_conf: Option<ProviderConf>,
    /// Instances of a higher priority are asked first.
    #[field(default = 0)]
    pub priority: i32,
    /// The share of the requests among the instances of its priority.
    #[field(default = 1, between = [0, 65535])]
    pub weight: u32,
    /// What the provider knows the caller by.
    pub auth: Option<InstanceAuth>,
    /// The `model`, and more members of requests' bodies.
    pub options: Option<Json>,
    /// Where the instance is, if not at the provider's.
    pub r#override: Option<Override>,
    /// Not supported: an instance that fails is left out for a while instead.
    pub checks: Option<Json>,
}

/// What a provider needs to know beside the key.
#[derive(Debug, Clone, Record)]
pub(crate) struct ProviderConf {
    /// The region of AWS.
    pub region: Option<String>,
    /// The project of Google Cloud, which is part of `override.endpoint` here.
    pub project_id: Option<String>,
}

/// What a provider knows the caller by. The provider alone gets it: it is in no log.
#[derive(Debug, Clone, Default, Record)]
pub(crate) struct InstanceAuth {
    /// Headers with keys.
    #[field(secret, key_check = key_header)]
    pub header: Option<BTreeMap<String, Secret>>,
    /// The parameter of the query with the key.
    #[field(secret)]
    pub query: Option<BTreeMap<String, Secret>>,
    /// The access key of AWS.
    pub aws: Option<AwsKey>,
    /// A service account of Google Cloud. Not supported: the configuration is refused with it.
    pub gcp: Option<Json>,
}

/// An access key of AWS.
#[derive(Debug, Clone, Record)]
pub(crate) struct AwsKey {
    /// Its id.
    #[field(secret)]
    pub access_key_id: Secret,
    /// The key.
    #[field(secret)]
    pub secret_access_key: Secret,
    /// The token of a session.
    #[field(secret)]
    pub session_token: Option<Secret>,
}

/// Where an instance is.
#[derive(Debug, Clone, Record)]
pub(crate) struct Override {
    /// The URL.
    #[field(matches = url)]
    pub endpoint: Option<String>,
}

/// Behind what another instance is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Strategy {
    pub(super) limits: bool,
    too_many_requests: bool,
    server_errors: bool,
    statuses: Vec<u16>,
}

impl Strategy {
    pub(super) fn of(config: &Config) -> Result<Self, String> {
        let mut strategy =
            Self { statuses: config.fallback_http_statuses.clone().unwrap_or_default(), ..Self::default() };
        let wrong = || "expected rate_limiting, instance_health_and_rate_limiting, http_429 or http_5xx, or a list of them";
        let names: &[Json] = match &config.fallback_strategy {
            None | Some(Json::Null) => &[],
            Some(Json::Array(names)) => names.as_slice(),
            Some(name) => std::slice::from_ref(name),
        };
        for name in names {
            match name.as_str() {
                Some("rate_limiting" | "instance_health_and_rate_limiting") => strategy.limits = true,
                Some("http_429") => strategy.too_many_requests = true,
                Some("http_5xx") => strategy.server_errors = true,
                _ => return Err(wrong().to_owned()),
            }
        }
        Ok(strategy)
    }

    /// Whether another instance is asked behind this status, or behind none, where there is no response.
    pub(super) fn falls_back(&self, status: Option<u16>) -> bool {
        match status {
            Some(429) if self.too_many_requests => true,
            None | Some(500..=599) if self.server_errors => true,
            status => status.is_some_and(|status| self.statuses.contains(&status)),
        }
    }

    /// Whether any response, or none, leads to another instance.
    pub(super) fn may_fall_back(&self) -> bool {
        self.too_many_requests || self.server_errors || !self.statuses.is_empty()
    }
}

impl Config {
    /// The fields that have no effect.
    pub(super) fn ignored_fields(config: &Json) -> Vec<FieldWarning> {
        let kept = "connections are kept as those of all upstreams";
        let verify = "set `tls_verify` of the service instead";
        let fields = [
            ("ssl_verify", verify),
            ("keepalive", kept),
            ("keepalive_timeout", kept),
            ("keepalive_pool", kept),
        ];
        let given = fields.into_iter().filter(|(field, _)| !config[*field].is_null());
        given.map(|(field, why)| FieldWarning::new(field, why)).collect()
    }

    /// How long an instance may have taken to fail.
    pub(super) fn within(&self) -> Option<Duration> {
        self.retry_on_failure_within_ms.map(|ms| Duration::from_millis(ms.into()))
    }
}

fn violations(config: &Config) -> Vec<FieldError> {
    let mut found = Vec::new();
    if let Err(message) = Strategy::of(config) {
        found.push(FieldError::new("fallback_strategy", message));
    }
    if let Err(message) = config.balancer.key() {
        found.push(FieldError::new("balancer.key", message));
    }
    if config.instances.iter().all(|instance| instance.weight == 0) {
        found.push(FieldError::new("instances", "no weight is above 0"));
    }
    for (index, instance) in config.instances.iter().enumerate() {
        let mut refuse = |field: &str, message: String| {
            found.push(FieldError::new(format!("instances[{index}].{field}"), message));
        };
        if config.instances[..index].iter().any(|other| other.name == instance.name) {
            refuse("name", "another instance has this name; give each its own".to_owned());
        }
        if let Err((field, message)) = Instance::check(instance) {
            refuse(field, message);
        }
    }
    found
}

//! The configuration.

use super::storage::RESERVED;
use crate::limits::Redis;
use weir_plugin::{FieldError, FieldWarning, Json, Record, Secret};

/// Where Let's Encrypt is, without the path of its directory.
const LETS_ENCRYPT: [&str; 2] =
    ["https://acme-v02.api.letsencrypt.org", "https://acme-staging-v02.api.letsencrypt.org"];

/// The longest timeout of Consul and Vault, in milliseconds, as Kong has it elsewhere.
const MAX_TIMEOUT: f64 = 2_147_483_646.0;

#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(crate) struct Config {
    /// The e-mail address of the account at the CA, which names the account in the storage too.
    #[field(check = address, encrypted, referenceable)]
    pub account_email: String,
    /// The account's private key, one of the entities `keys`; otherwise Weir makes one and keeps it in the storage.
    pub account_key: Option<AccountKeyName>,
    /// The CA: the URL of its directory.
    #[field(nullable, default = "https://acme-v02.api.letsencrypt.org/directory", matches = url)]
    pub api_uri: String,
    /// Whether you agree to the terms of service of the CA, as Let's Encrypt requires.
    #[field(nullable, default = false)]
    pub tos_accepted: bool,
    /// The key id of an external account binding (EAB), where the CA requires one.
    #[field(encrypted, referenceable)]
    pub eab_kid: Option<String>,
    /// Its HMAC key, in base64url.
    #[field(secret)]
    pub eab_hmac_key: Option<Secret>,
    /// The kind of the certificates' keys.
    #[field(nullable, default = "rsa", one_of = ["rsa", "ecc"])]
    pub cert_type: String,
    /// The size of RSA keys, in bits.
    #[field(nullable, default = 4096, one_of = [2048, 3072, 4096])]
    pub rsa_key_size: u32,
    /// How many days before its end a certificate is renewed.
    #[field(nullable, default = 14)]
    pub renew_threshold_days: f64,
    /// The names that may get a certificate. In `*.example.com` the `*` stands for any labels.
    #[field(matches = wildcard_host)]
    pub domains: Option<Vec<String>>,
    /// Whether every name may get one, whatever `domains` says.
    #[field(nullable, default = false)]
    pub allow_any_domain: bool,
    /// For how many minutes a name is left alone after a failure.
    #[field(nullable, default = 5)]
    pub fail_backoff_minutes: f64,
    /// Where account, challenges, locks and certificates are kept.
    #[field(nullable, default = "shm", one_of = ["kong", "shm", "redis", "consul", "vault"])]
    pub storage: String,
    /// How to reach the storage.
    #[field(nullable, default = {})]
    pub storage_config: StorageConfig,
    /// The common name of the root that the chain should lead to, where the CA offers several chains.
    pub preferred_chain: Option<String>,
    /// Whether an IPv4 address may get a certificate.
    #[field(nullable, default = true)]
    pub enable_ipv4_common_name: bool,
    /// How the CA checks that a name leads to the node: by plain HTTP on port 80, or by a TLS handshake on port 443. Kong has
    /// `http-01` alone.
    #[field(extension, nullable, default = "http-01", one_of = ["http-01", "tls-alpn-01"])]
    pub challenge: String,
}

/// One of the entities `keys`.
#[derive(Debug, Clone, Record)]
pub(crate) struct AccountKeyName {
    /// The `kid` of the key.
    pub key_id: String,
    /// The name or the id of its key set.
    pub key_set: Option<String>,
}

/// One record for each storage.
#[derive(Debug, Clone, Record)]
pub(crate) struct StorageConfig {
    /// For `shm`.
    #[field(nullable, default = {})]
    pub shm: Shm,
    /// For `kong`.
    #[field(nullable, default = {})]
    pub kong: Kong,
    /// For `redis`.
    #[field(nullable, default = {})]
    pub redis: RedisConfig,
    /// For `consul`.
    #[field(nullable, default = {})]
    pub consul: HashiCorp,
    /// For `vault`.
    #[field(nullable, default = {})]
    pub vault: HashiCorpVault,
}

/// The memory of the node.
#[derive(Debug, Clone, Record)]
pub(crate) struct Shm {
    /// Kong's name of it; without effect.
    #[field(nullable, default = "kong")]
    pub shm_name: String,
}

/// The node's database, which needs no settings.
#[derive(Debug, Clone, Record)]
pub(crate) struct Kong {}

#[derive(Debug, Clone, Record)]
#[record(old_names = RedisConfig::OLD_NAMES)]
pub(crate) struct RedisConfig {
    #[field(flatten)]
    pub server: Redis,
    /// What Redis has for this plugin.
    #[field(nullable, default = {})]
    pub extra_options: ExtraOptions,
}

impl RedisConfig {
    const OLD_NAMES: &[(&str, &str)] = &[
        ("auth", "password"),
        ("ssl_server_name", "server_name"),
        ("namespace", "extra_options.namespace"),
        ("scan_count", "extra_options.scan_count"),
    ];
}

#[derive(Debug, Clone, Record)]
pub(crate) struct ExtraOptions {
    /// What all keys in Redis begin with.
    #[field(default = "", len_min = 0, check = namespace)]
    pub namespace: String,
    /// How many keys Redis looks at for one reply when certificates are listed.
    #[field(nullable, default = 10, gt = 0)]
    pub scan_count: u32,
}

/// How to reach Consul or Vault, HashiCorp's servers.
#[derive(Debug, Clone, Record)]
pub(crate) struct HashiCorp {
    /// Whether to connect over TLS.
    #[field(nullable, default = false)]
    pub https: bool,
    /// The host name or address; 127.0.0.1 if unset.
    #[field(matches = host)]
    pub host: Option<String>,
    /// The port; 8500 for Consul and 8200 for Vault if unset.
    pub port: Option<u16>,
    /// What all keys begin with; for Vault the path where the secrets engine is mounted, and perhaps a folder there. `acme` if unset.
    pub kv_path: Option<String>,
    /// The timeout, in milliseconds; 2000 if unset.
    pub timeout: Option<f64>,
    /// The token.
    #[field(referenceable)]
    pub token: Option<Secret>,
}

#[derive(Debug, Clone, Record)]
pub(crate) struct HashiCorpVault {
    #[field(flatten)]
    pub server: HashiCorp,
    /// Whether to verify the server's certificate.
    #[field(nullable, default = true)]
    pub tls_verify: bool,
    /// The name that its certificate must have, if not the host.
    pub tls_server_name: Option<String>,
    /// How to log in.
    #[field(nullable, default = "token", one_of = ["token", "kubernetes"])]
    pub auth_method: String,
    /// The path where the auth method is mounted; `kubernetes` if unset.
    pub auth_path: Option<String>,
    /// The role to log in with.
    pub auth_role: Option<String>,
    /// The file of the token of a Kubernetes service account, below `vault_file_directory`; if unset, where Kubernetes puts it.
    pub jwt_path: Option<String>,
}

/// Kong takes anything with an at sign.
fn address(text: &str) -> Result<(), String> {
    match text.contains('@') {
        true => Ok(()),
        false => Err("expected an e-mail address such as ops@example.com".to_owned()),
    }
}

fn namespace(text: &str) -> Result<(), String> {
    match RESERVED.iter().find(|reserved| text.starts_with(**reserved)) {
        Some(reserved) => Err(format!("namespace can't be prefixed with reserved word: {reserved}")),
        None => Ok(()),
    }
}

fn violations(config: &Config) -> Vec<FieldError> {
    let mut found = Vec::new();
    if LETS_ENCRYPT.contains(&&*config.api_uri) && !config.tos_accepted {
        found.push(FieldError::new("tos_accepted", TERMS));
    }
    if config.storage == "redis" {
        let missing = config.storage_config.redis.server.missing("storage: redis");
        found.extend(
            missing.into_iter().map(|FieldError { path, message }| {
                FieldError::new(format!("storage_config.{path}"), message)
            }),
        );
    }
    let (consul, vault) = (&config.storage_config.consul, &config.storage_config.vault);
    for (name, server) in [("consul", consul), ("vault", &vault.server)] {
        let is_wrong = |timeout: &f64| !(1.0..=MAX_TIMEOUT).contains(timeout);
        if config.storage == name && server.timeout.is_some_and(|timeout| is_wrong(&timeout)) {
            let message = format!("write milliseconds from 1 to {MAX_TIMEOUT}");
            found.push(FieldError::new(format!("storage_config.{name}.timeout"), message));
        }
    }
    if config.storage == "vault" && vault.auth_method == "kubernetes" && vault.auth_role.is_none() {
        let message =
            "required with `auth_method: kubernetes`: set it to the role of Vault that the node logs in with";
        found.push(FieldError::new("storage_config.vault.auth_role", message));
    }
    found
}

const TERMS: &str = "terms of service must be accepted, see https://letsencrypt.org/repository/: set tos_accepted: true \
                     if you agree";

/// What is probably a mistake.
pub(super) fn warnings(config: &Json) -> Vec<FieldWarning> {
    let mut found = Vec::new();
    let api_uri = config["api_uri"].as_str().unwrap_or_default();
    if LETS_ENCRYPT.iter().any(|ca| api_uri.starts_with(ca)) && config["tos_accepted"] != true {
        found.push(FieldWarning::new("tos_accepted", TERMS));
    }
    let names_nothing = config["domains"].as_array().is_none_or(Vec::is_empty);
    if names_nothing && config["allow_any_domain"] != true {
        let message = "no name may get a certificate: list them here, or set allow_any_domain: true";
        found.push(FieldWarning::new("domains", message));
    }
    let vault = &config["storage_config"]["vault"];
    let has_token = vault["auth_method"] == "kubernetes" || vault["token"].is_string();
    if config["storage"] == "vault" && !has_token {
        let message = "Vault refuses requests without a token: set it, or auth_method: kubernetes";
        found.push(FieldWarning::new("storage_config.vault.token", message));
    }
    found
}

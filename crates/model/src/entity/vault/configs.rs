//! The configurations of the kinds of vaults. The settings `vault_NAME_FIELD` give the same to references by the vault's name.
use crate::schema::{Choice, FieldError, Record};

/// Environment variables of the node: `{vault://env/my-secret}` is `MY_SECRET`.
#[derive(Debug, Clone, PartialEq, Record)]
pub struct EnvConfig {
    /// What the names of all variables begin with.
    #[field(check = env_prefix)]
    pub prefix: Option<String>,
}

fn env_prefix(text: &str) -> Result<(), String> {
    let begins = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    match begins && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)) {
        true => Ok(()),
        false => {
            Err(format!("invalid value: {text:?}; write letters, digits, _ and -, with a letter or _ first"))
        }
    }
}

/// Files below the folder of the setting `vault_file_directory`, one for each secret, as Docker and Kubernetes provide them.
#[derive(Debug, Clone, PartialEq, Record)]
pub struct FileConfig {
    /// What the paths of all secrets begin with, such as `db/`.
    pub prefix: Option<String>,
    /// Seconds after which a secret is read again. Without it, that is at each rotation.
    #[field(between = [0, 100_000_000])]
    pub ttl: Option<i64>,
    /// Seconds after which a missing secret is looked for again. Without it, that is at each rotation.
    #[field(between = [0, 100_000_000])]
    pub neg_ttl: Option<i64>,
    /// Seconds beyond `ttl` for which a secret that cannot be read any more is used. Without it, there is no limit.
    #[field(between = [0, 100_000_000])]
    pub resurrect_ttl: Option<i64>,
}

/// The protocol of a HashiCorp Vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Choice)]
pub enum HcvProtocol {
    Http,
    Https,
}

/// The version of a secrets engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Choice)]
pub enum KvVersion {
    V1,
    V2,
}

/// How the node proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Choice)]
pub enum HcvAuthMethod {
    Token,
    Kubernetes,
    #[choice("approle")]
    AppRole,
}

/// A HashiCorp Vault or OpenBao, with the secrets engine KV.
#[derive(Clone, PartialEq, Record)]
#[record(check = can_log_in)]
pub struct HcvConfig {
    /// The protocol.
    #[field(nullable, default = "http")]
    pub protocol: HcvProtocol,
    /// The host.
    #[field(nullable, default = "127.0.0.1", matches = host)]
    pub host: String,
    /// The port.
    #[field(nullable, default = 8200)]
    pub port: u16,
    /// The namespace of the server.
    pub namespace: Option<String>,
    /// The path of the secrets engine.
    #[field(nullable, default = "secret")]
    pub mount: String,
    /// The version of the secrets engine.
    #[field(nullable, default = "v1")]
    pub kv: KvVersion,
    /// How the node proves who it is.
    #[field(nullable, default = "token")]
    pub auth_method: HcvAuthMethod,
    /// The token, with `auth_method: token`.
    #[field(secret)]
    pub token: Option<String>,
    /// The role, with `auth_method: kubernetes`.
    pub kube_role: Option<String>,
    /// The path of the Kubernetes auth method.
    #[field(nullable, default = "kubernetes")]
    pub kube_auth_path: String,
    /// The file of the service account's token.
    #[field(nullable, default = "/run/secrets/kubernetes.io/serviceaccount/token")]
    pub kube_api_token_file: String,
    /// The path of the AppRole auth method.
    #[field(nullable, default = "approle")]
    pub approle_auth_path: String,
    /// The id of the role, with `auth_method: approle`.
    pub approle_role_id: Option<String>,
    /// Its secret id, unless that is in a file.
    #[field(secret)]
    pub approle_secret_id: Option<String>,
    /// The file of its secret id.
    pub approle_secret_id_file: Option<String>,
    /// Seconds after which a secret is fetched again. Without it, that is at each rotation.
    #[field(between = [0, 100_000_000])]
    pub ttl: Option<i64>,
    /// Seconds after which a missing secret is asked for again. Without it, that is at each rotation.
    #[field(between = [0, 100_000_000])]
    pub neg_ttl: Option<i64>,
    /// Seconds beyond `ttl` for which a secret that cannot be fetched any more is used. Without it, there is no limit.
    #[field(between = [0, 100_000_000])]
    pub resurrect_ttl: Option<i64>,
}

fn can_log_in(config: &HcvConfig) -> Vec<FieldError> {
    let missing = match config.auth_method {
        HcvAuthMethod::Token => config.token.is_none().then_some("token"),
        HcvAuthMethod::Kubernetes => config.kube_role.is_none().then_some("kube_role"),
        HcvAuthMethod::AppRole if config.approle_role_id.is_none() => Some("approle_role_id"),
        HcvAuthMethod::AppRole => {
            let is_given = config.approle_secret_id.is_some() || config.approle_secret_id_file.is_some();
            (!is_given).then_some("approle_secret_id")
        }
    };
    let method = config.auth_method.as_str();
    let message = |field| FieldError::new(field, format!("required: set `{field}` for auth_method {method}"));
    missing.map(message).into_iter().collect()
}

//! Amazon Web Services: the credentials of a caller, and the signatures of its requests.

mod date;
mod instance;
mod profile;
mod provider;
pub(crate) mod sigv4;
mod source;
mod sts;

pub(crate) use provider::{AssumedRole, CredentialsConfig, CredentialsProvider};
pub(crate) use source::ImdsVersion;

use std::fmt;
use weir_plugin::{HttpError, Secret};

/// Whether a response of STS has credentials.
#[cfg(any(test, fuzzing))]
pub(crate) fn is_sts_response(xml: &str) -> bool {
    sts::read(xml).is_some()
}

/// What a request is signed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) access_key_id: String,
    pub(crate) secret_access_key: Secret,
    /// Temporary credentials have one.
    pub(crate) session_token: Option<Secret>,
}

/// Why there are no credentials.
#[derive(Debug, Clone)]
pub(crate) enum CredentialsError {
    /// Nothing says where to get them.
    NoSource,
    /// A server did not answer.
    NoResponse { server: &'static str, why: String },
    /// A server answered with an error.
    Status { server: &'static str, status: u16, message: String },
    /// A server answered with what is no credentials.
    Malformed { server: &'static str },
    /// They had expired when they came.
    Expired { server: &'static str },
    /// A setting, which is named, cannot be used.
    Setting { name: &'static str, why: String },
    /// A file cannot be read.
    File { path: String, why: String },
}

impl fmt::Display for CredentialsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSource => f.write_str(
                "there are no AWS credentials: set config.aws_key and config.aws_secret, AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY, or give the machine a role",
            ),
            Self::NoResponse { server, why } => write!(f, "{server} did not answer: {why}"),
            Self::Status { server, status, message } => write!(f, "{server} answered {status}: {message}"),
            Self::Malformed { server } => write!(f, "{server} answered without credentials"),
            Self::Expired { server } => {
                write!(f, "the credentials from {server} have expired; check the clock of this machine")
            }
            Self::Setting { name, why } => write!(f, "{name} cannot be used: {why}"),
            Self::File { path, why } => write!(f, "{path} cannot be read: {why}"),
        }
    }
}

impl std::error::Error for CredentialsError {}

impl CredentialsError {
    fn no_response(server: &'static str) -> impl Fn(HttpError) -> Self {
        move |error| Self::NoResponse { server, why: error.to_string() }
    }
}

/// A variable of the environment that is not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The region that the environment names.
pub(crate) fn region_of_environment() -> Option<String> {
    variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"))
}

/// The domain of AWS's services in a region.
pub(crate) fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

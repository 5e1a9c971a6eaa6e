//! Why a request gets no further, and what its client gets to know of it.

use std::borrow::Cow;
use std::fmt;
use weir_plugin::{HttpError, LocalResponse};

/// Why the provider was of no help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProviderError {
    /// It did not answer.
    Unreachable(String),
    /// Its answer makes no sense, or must not be trusted.
    Invalid(Cow<'static, str>),
    /// It refuses the code or the refresh token.
    Refused(String),
    /// It refuses the client, or lacks an endpoint: the configuration is wrong.
    Misconfigured(Cow<'static, str>),
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "the provider did not answer: {why}"),
            Self::Invalid(why) => write!(f, "the provider's response is not valid: {why}"),
            Self::Refused(error) => write!(f, "the provider answered {error}"),
            Self::Misconfigured(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ProviderError {}

impl From<HttpError> for ProviderError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::TooLarge { .. } => Self::Invalid(error.to_string().into()),
            HttpError::Timeout | HttpError::Failed(_) => Self::Unreachable(error.to_string()),
        }
    }
}

impl ProviderError {
    /// Logs it, and makes it a response that shows the client nothing else.
    pub(super) fn answer(&self, request_id: &str) -> LocalResponse {
        match self {
            Self::Refused(_) => tracing::info!(request_id, "openid-connect: {self}"),
            _ => tracing::error!(request_id, "openid-connect: {self}"),
        }
        let answer = match self {
            Self::Unreachable(_) => LocalResponse::error(503, "The OpenID provider did not answer"),
            Self::Invalid(_) => LocalResponse::error(502, "The OpenID provider's response is not valid"),
            Self::Refused(error) => LocalResponse::error(401, &format!("The login failed: {error}")),
            Self::Misconfigured(_) => LocalResponse::error(500, "An unexpected error occurred"),
        };
        answer.header("Cache-Control", "no-store")
    }
}

/// The code of an error, as far as it is one (RFC 6749, 4.1.2.1): what a provider or a browser sends may be anything.
pub(super) fn error_code(text: &str) -> String {
    let is_code =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if (1..=64).contains(&text.len()) && is_code(text) { text.to_owned() } else { "an error".to_owned() }
}

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenError {
    /// The provider's documents are not known yet.
    NotReady,
    /// The key that it names is not known.
    UnknownKey,
    /// Something is wrong with it.
    Invalid(&'static str),
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReady => "the provider's keys are not known",
            Self::UnknownKey => "no key of the provider's has made the signature",
            Self::Invalid(why) => why,
        })
    }
}

impl std::error::Error for TokenError {}

impl From<TokenError> for ProviderError {
    /// The same of a token that the provider has sent.
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::NotReady => Self::Unreachable(error.to_string()),
            _ => Self::Invalid(error.to_string().into()),
        }
    }
}

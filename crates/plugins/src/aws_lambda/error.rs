//! What an invocation fails with.

use crate::shared::aws::CredentialsError;
use std::fmt;
use weir_plugin::HttpError;

/// Why a function has no result.
#[derive(Debug)]
pub(super) enum InvokeError {
    NoRegion,
    Credentials(CredentialsError),
    Unsendable(http::Error),
    Http(HttpError),
    /// Lambda refused, with this status and message.
    Refused(u16, String),
}

impl fmt::Display for InvokeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRegion => {
                f.write_str("no region is known: set config.aws_region, or AWS_REGION in the environment")
            }
            Self::Credentials(error) => error.fmt(f),
            Self::Unsendable(error) => write!(f, "the invocation cannot be sent: {error}"),
            Self::Http(error) => write!(f, "Lambda did not answer: {error}"),
            Self::Refused(status, message) => write!(f, "Lambda answered {status}: {message}"),
        }
    }
}

//! Why there is no certificate. No message holds a secret.

use crate::limits::Unavailable;
use std::fmt;
use weir_plugin::{HttpError, RowError};

/// How many characters of the CA's own message are repeated.
const MAX_DETAIL_LEN: usize = 300;

#[derive(Debug)]
pub(super) enum AcmeError {
    /// The storage does not answer, or holds something else.
    Storage(String),
    /// The account's key cannot be used.
    AccountKey(String),
    /// Making a key or a certificate request failed.
    Crypto(String),
    /// The CA did not answer; with the host asked.
    Unreachable(String, HttpError),
    /// The CA refused something.
    Refused { what: &'static str, status: u16, detail: String },
    /// The CA's answer is not what the protocol (RFC 8555) has.
    Malformed(&'static str),
    /// The CA validates by other challenges.
    NoChallenge {
        /// The one that is configured.
        wanted: &'static str,
        /// The other one.
        other: &'static str,
    },
    /// The CA found the wrong answer to its challenge, or none, at this port of the name.
    Challenge { why: String, port: u16 },
    /// It took too long.
    Timeout,
    /// An earlier try failed a short time ago.
    Backoff { host: String, seconds: u64 },
    /// Somebody else orders the certificate, or has just done so.
    Locked(String),
    /// The certificate could not be written to the node's database.
    Entities(String),
}

impl AcmeError {
    /// The CA's refusal, as much of it as a message may hold.
    pub(super) fn refused(what: &'static str, status: u16, detail: &str) -> Self {
        Self::Refused { what, status, detail: shortened(detail) }
    }

    pub(super) fn challenge(detail: &str, port: u16) -> Self {
        Self::Challenge { why: shortened(detail), port }
    }

    /// Whether another try is not due yet: it is no failure of its own.
    pub(super) fn is_wait(&self) -> bool {
        matches!(self, Self::Backoff { .. } | Self::Locked(_))
    }
}

fn shortened(detail: &str) -> String {
    detail.chars().filter(|c| !c.is_control()).take(MAX_DETAIL_LEN).collect()
}

impl fmt::Display for AcmeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage(why) => write!(f, "the storage cannot be used: {why}"),
            Self::AccountKey(why) => write!(f, "the account's key cannot be used: {why}"),
            Self::Crypto(why) => f.write_str(why),
            Self::Unreachable(host, why) => write!(f, "the CA at {host} does not answer: {why}"),
            Self::Refused { what, status, detail } => write!(f, "the CA refused {what} ({status}): {detail}"),
            Self::Malformed(what) => {
                write!(f, "the CA's answer is not as RFC 8555 has it: {what}; check api_uri")
            }
            Self::NoChallenge { wanted, other } => {
                write!(
                    f,
                    "the CA offers no challenge {wanted}: set config.challenge to {other}, or use another CA"
                )
            }
            Self::Challenge { why, port } => write!(
                f,
                "the CA could not validate the name: {why}; port {port} of the name must lead to this node"
            ),
            Self::Timeout => f.write_str("the CA took too long"),
            Self::Backoff { host, seconds } => write!(
                f,
                "please try again in {seconds} seconds for host {host} because of previous failure; this is configurable \
                 with config.fail_backoff_minutes"
            ),
            Self::Locked(host) => write!(
                f,
                "a certificate for {host} is being ordered, or was ordered a moment ago; try again in 30 seconds"
            ),
            Self::Entities(why) => write!(f, "the certificate was not saved: {why}"),
        }
    }
}

impl std::error::Error for AcmeError {}

impl From<RowError> for AcmeError {
    fn from(error: RowError) -> Self {
        Self::Storage(error.to_string())
    }
}

impl From<Unavailable> for AcmeError {
    fn from(error: Unavailable) -> Self {
        Self::Storage(error.to_string())
    }
}

//! The messages of `/v1/outlet`. A data plane sends [`BasicInfo`] once, then pings with the hash of what it serves. The control
//! plane sends the whole configuration at each change, as JSON that is compressed with gzip.
mod reconfigure;
#[cfg(test)]
mod tests;

pub use reconfigure::{Received, Reconfigure, check_size, inflate};

use super::compat::LoadedPlugin;
use super::lua;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// The longest message that data planes take which do not say so, as of Kong.
const MAX_PAYLOAD: usize = 16 << 20;

/// A message that cannot be read, or must not be sent.
#[derive(Debug)]
pub enum MessageError {
    /// It is longer than the other side takes.
    TooLarge {
        /// Its length.
        size: usize,
        /// The greatest length.
        limit: usize,
    },
    /// It is longer than this when it is decompressed.
    Inflated {
        /// The greatest length.
        limit: usize,
    },
    /// It is not compressed as it should be.
    Compression(std::io::Error),
    /// It is not JSON, or not of this form.
    Form(String),
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MessageError::TooLarge { size, limit } => write!(
                f,
                "the message has {size} bytes, and the other side takes {limit}: raise `cluster_max_payload` there"
            ),
            MessageError::Inflated { limit } => {
                write!(
                    f,
                    "the message has more than {limit} bytes when it is decompressed, which is the limit"
                )
            }
            MessageError::Compression(error) => write!(f, "the message cannot be decompressed: {error}"),
            MessageError::Form(what) => write!(f, "the message is not understood: {what}"),
        }
    }
}

impl std::error::Error for MessageError {}

impl MessageError {
    /// The place alone: the message of `serde_json` may hold a value.
    pub(crate) fn json(error: &serde_json::Error) -> Self {
        MessageError::Form(format!(
            "{:?} error at line {}, column {}",
            error.classify(),
            error.line(),
            error.column()
        ))
    }
}

/// What a data plane says of itself, in its first message.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "basic_info")]
pub struct BasicInfo {
    /// The plugins that it has loaded, in the order of their names.
    #[serde(deserialize_with = "lua::list")]
    pub plugins: Vec<LoadedPlugin>,
    /// Its settings. Secrets are not among them.
    #[serde(default, deserialize_with = "lua::object")]
    pub process_conf: Map<String, Value>,
    /// Its Wasm filters.
    #[serde(default, deserialize_with = "lua::object")]
    pub filters: Map<String, Value>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// The settings may hold anything.
impl fmt::Debug for BasicInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BasicInfo({} plugins, labels {:?})", self.plugins.len(), self.labels)
    }
}

impl BasicInfo {
    /// As a binary frame.
    pub fn encode(&self) -> Vec<u8> {
        to_json(self)
    }

    /// Reads the first frame of a data plane.
    ///
    /// # Errors
    /// If it is not of this form.
    pub fn decode(frame: &[u8]) -> Result<BasicInfo, MessageError> {
        of_type("basic_info", frame)
    }

    /// The longest frame that the data plane takes.
    pub fn max_payload(&self) -> usize {
        max_payload(&self.process_conf)
    }

    /// Whether its router takes routes with expressions.
    pub fn takes_expressions(&self) -> bool {
        takes_expressions(&self.process_conf)
    }
}

/// The longest frame that a data plane with these settings takes: Kong's default, if it does not say so.
pub(crate) fn max_payload(settings: &Map<String, Value>) -> usize {
    let limit = settings.get("cluster_max_payload");
    let limit = limit.and_then(|limit| limit.as_u64().or_else(|| limit.as_str()?.parse().ok()));
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MAX_PAYLOAD)
}

/// Whether the router of a data plane with these settings takes routes with expressions.
pub(crate) fn takes_expressions(settings: &Map<String, Value>) -> bool {
    settings.get("router_flavor").is_some_and(|flavor| flavor == "expressions")
}

/// What a data plane reports of a configuration that it does not serve. Control planes of Konnect read it; an open-source one
/// of Kong drops the connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "error")]
pub struct ErrorMessage {
    /// What it is about.
    pub error: ErrorReport,
}

/// An error of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// The kind of error.
    pub name: String,
    /// The part of the program that found it.
    pub source: String,
    /// What is wrong.
    pub message: String,
    /// The hash of the configuration.
    pub config_hash: String,
    /// What else is known.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

impl ErrorMessage {
    /// The name of errors in a configuration itself.
    pub const INVALID: &'static str = "declarative configuration parse failure";
    /// The name of errors while a configuration is put to use.
    pub const NOT_APPLIED: &'static str = "configuration reload failed";

    /// As a binary frame.
    pub fn encode(&self) -> Vec<u8> {
        to_json(self)
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// If it is not of this form.
    pub fn decode(frame: &[u8]) -> Result<ErrorMessage, MessageError> {
        of_type("error", frame)
    }
}

/// Reads a message of this type.
fn of_type<T: DeserializeOwned>(name: &str, frame: &[u8]) -> Result<T, MessageError> {
    let message: Value = serde_json::from_slice(frame).map_err(|error| MessageError::json(&error))?;
    if message.get("type").is_none_or(|given| given != name) {
        return Err(MessageError::Form(format!("its `type` is not `{name}`")));
    }
    // What `serde_json` says may hold a value.
    serde_json::from_value(message)
        .map_err(|_| MessageError::Form(format!("a field of `{name}` is missing or of another type")))
}

/// Values that are nothing but strings, numbers, lists and maps with text keys can always be written.
pub(super) fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// What a data plane says of itself in the address of its upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The id of its node.
    pub node_id: String,
    /// The name of its host.
    pub node_hostname: Option<String>,
    /// Its version of Kong.
    pub node_version: String,
}

impl Query {
    /// The target of the request. Nothing is escaped, as in Kong.
    pub fn target(&self) -> String {
        let Query { node_id, node_hostname, node_version } = self;
        let hostname = node_hostname.as_deref().unwrap_or_default();
        format!("/v1/outlet?node_id={node_id}&node_hostname={hostname}&node_version={node_version}")
    }

    /// Reads the part of a target behind the `?`; none if it does not name the node and its version.
    pub fn parse(query: &str) -> Option<Query> {
        let find = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let value = pairs.into_iter().find(|(key, _)| *key == name)?.1;
            (!value.is_empty()).then(|| value.to_owned())
        };
        let (node_id, node_version) = (find("node_id")?, find("node_version")?);
        Some(Query { node_id, node_hostname: find("node_hostname"), node_version })
    }
}

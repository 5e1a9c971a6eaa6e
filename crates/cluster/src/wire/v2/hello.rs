//! The first message of each side, which are the only ones that are not compressed.
use super::rpc::{Message, RpcError};
use super::{ENCODING, PROTOCOL};
use crate::wire::lua;
use crate::wire::v1::{MessageError, to_json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt;

/// What a data plane says of itself.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The methods that it can be called for, without their last parts.
    #[serde(deserialize_with = "lua::list")]
    pub rpc_capabilities: Vec<String>,
    /// The encodings that it knows.
    pub rpc_frame_encodings: Vec<String>,
    /// Its version of Kong.
    pub kong_version: String,
    /// The name of its host.
    pub kong_hostname: String,
    /// The id of its node.
    pub kong_node_id: String,
    /// Its settings. Secrets are not among them.
    #[serde(deserialize_with = "lua::object")]
    pub kong_conf: Map<String, Value>,
}

/// The settings may hold anything.
impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hello { kong_node_id, kong_hostname, kong_version, rpc_capabilities, .. } = self;
        write!(f, "Hello({kong_node_id} on {kong_hostname}, {kong_version}, {rpc_capabilities:?})")
    }
}

/// What the control plane answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The methods that it can be called for, without their last parts.
    #[serde(deserialize_with = "lua::list")]
    pub rpc_capabilities: Vec<String>,
    /// The encoding that is used from now on.
    pub rpc_frame_encoding: String,
}

impl Hello {
    /// As a binary frame.
    pub fn encode(&self, id: u64) -> Vec<u8> {
        let method = format!("{PROTOCOL}.hello");
        to_json(&json!({ "jsonrpc": "2.0", "method": method, "params": [self], "id": id }))
    }

    /// Reads the first frame of a data plane; returns also the id to answer to.
    ///
    /// # Errors
    /// If it is not of this form, or the data plane knows no encoding that is known here.
    pub fn decode(frame: &[u8]) -> Result<(Hello, Value), MessageError> {
        let form = |what: &str| MessageError::Form(what.to_owned());
        let message = serde_json::from_slice(frame).map_err(|error| MessageError::json(&error))?;
        let Message::Call { method, params, id: Some(id) } = Message::read(message)? else {
            return Err(form("the first message is no call"));
        };
        if method != format!("{PROTOCOL}.hello") {
            return Err(form("the first call is no hello"));
        }
        let first = params.into_iter().next().unwrap_or_default();
        let hello: Hello = serde_json::from_value(first)
            .map_err(|_| form("the hello lacks one of rpc_capabilities, rpc_frame_encodings, kong_version, kong_hostname, kong_node_id and kong_conf"))?;
        if !hello.rpc_frame_encodings.iter().any(|encoding| encoding == ENCODING) {
            return Err(form("the data plane does not know the encoding x-snappy-framed"));
        }
        Ok((hello, id))
    }
}

impl Welcome {
    /// As a binary frame.
    pub fn encode(&self, id: &Value) -> Vec<u8> {
        to_json(&json!({ "jsonrpc": "2.0", "result": self, "id": id }))
    }

    /// Reads the first frame of a control plane.
    ///
    /// # Errors
    /// If it is not of this form, or refuses, or names another encoding.
    pub fn decode(frame: &[u8]) -> Result<Welcome, MessageError> {
        let message = serde_json::from_slice(frame).map_err(|error| MessageError::json(&error))?;
        let result = match Message::read(message)? {
            Message::Result { result, .. } => result,
            Message::Error { error: RpcError { code, message }, .. } => {
                return Err(MessageError::Form(format!("the hello is refused: {message} ({code})")));
            }
            Message::Call { .. } => {
                return Err(MessageError::Form("a call in the place of an answer".to_owned()));
            }
        };
        let welcome: Welcome = serde_json::from_value(result).map_err(|error| MessageError::json(&error))?;
        match welcome.rpc_frame_encoding.as_str() {
            ENCODING => Ok(welcome),
            _ => {
                Err(MessageError::Form("the control plane names an encoding that was not offered".to_owned()))
            }
        }
    }
}

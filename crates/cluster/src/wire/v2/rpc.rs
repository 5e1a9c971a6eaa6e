//! JSON-RPC 2.0 in raw blocks of Snappy.
use crate::wire::v1::{MessageError, to_json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::io;

/// A call, or the answer to one.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// A call; without an id it is not answered.
    Call {
        /// What is called.
        method: String,
        /// The arguments.
        params: Vec<Value>,
        /// What the answer refers to.
        id: Option<Value>,
    },
    /// The result of a call.
    Result {
        /// The id of the call.
        id: Value,
        /// What the method returned.
        result: Value,
    },
    /// The failure of a call.
    Error {
        /// The id of the call.
        id: Value,
        /// Why.
        error: RpcError,
    },
}

/// Why a call fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcError {
    /// One of the codes below, or another.
    pub code: i64,
    /// What happened.
    pub message: String,
}

impl RpcError {
    /// There is no such method.
    pub const UNKNOWN_METHOD: i64 = -32601;
    /// The side that is called has failed, not its method.
    pub const INTERNAL: i64 = -32603;
    /// The method failed.
    pub const FAILED: i64 = -32000;

    /// There is no such method.
    pub fn unknown_method() -> RpcError {
        RpcError { code: RpcError::UNKNOWN_METHOD, message: "Method not found".to_owned() }
    }

    /// The method failed.
    pub fn failed(message: &str) -> RpcError {
        RpcError { code: RpcError::FAILED, message: message.to_owned() }
    }

    /// The side that is called has failed.
    pub fn internal(message: &str) -> RpcError {
        RpcError { code: RpcError::INTERNAL, message: message.to_owned() }
    }
}

impl Message {
    /// As JSON.
    pub fn to_value(&self) -> Value {
        match self {
            Message::Call { method, params, id: Some(id) } => {
                json!({ "jsonrpc": "2.0", "method": method, "params": params, "id": id })
            }
            Message::Call { method, params, id: None } => {
                json!({ "jsonrpc": "2.0", "method": method, "params": params })
            }
            Message::Result { id, result } => json!({ "jsonrpc": "2.0", "result": result, "id": id }),
            Message::Error { id, error } => json!({ "jsonrpc": "2.0", "error": error, "id": id }),
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// If it is not of this form.
    pub fn read(message: Value) -> Result<Message, MessageError> {
        let form = |what: &str| MessageError::Form(what.to_owned());
        let Value::Object(mut members) = message else { return Err(form("it is no object")) };
        if members.get("jsonrpc").is_none_or(|version| version != "2.0") {
            return Err(form("it is not of JSON-RPC 2.0"));
        }
        let id = members.remove("id").filter(|id| !id.is_null());
        if id.as_ref().is_some_and(|id| !id.is_i64() && !id.is_u64() && !id.is_string()) {
            return Err(form("its id is neither a whole number nor a text"));
        }
        if let Some(method) = members.remove("method") {
            let Value::String(method) = method else { return Err(form("its method is no text")) };
            return Ok(Message::Call { method, params: params(&mut members)?, id });
        }
        let id = id.unwrap_or_default();
        match (members.remove("result"), members.remove("error")) {
            (_, Some(error)) if !error.is_null() => {
                let error = serde_json::from_value(error).map_err(|error| MessageError::json(&error))?;
                Ok(Message::Error { id, error })
            }
            (Some(result), _) => Ok(Message::Result { id, result }),
            _ => Err(form("it has neither a method nor a result nor an error")),
        }
    }
}

fn params(members: &mut Map<String, Value>) -> Result<Vec<Value>, MessageError> {
    match members.remove("params") {
        Some(Value::Array(params)) => Ok(params),
        // An empty table of Lua.
        Some(Value::Object(params)) if params.is_empty() => Ok(Vec::new()),
        None => Ok(Vec::new()),
        Some(_) => Err(MessageError::Form("its parameters are no list".to_owned())),
    }
}

/// A message as a binary frame.
///
/// # Errors
/// If it is longer than Snappy's blocks can be, which is 4 GiB.
pub fn encode(message: &Message) -> Result<Vec<u8>, MessageError> {
    let text = to_json(&message.to_value());
    snap::raw::Encoder::new().compress_vec(&text).map_err(compression)
}

/// The result of a call as a binary frame, where it is written as JSON already.
///
/// # Errors
/// If it is longer than Snappy's blocks can be, which is 4 GiB.
pub fn encode_result(id: &Value, result: &str) -> Result<Vec<u8>, MessageError> {
    let text = format!("{{\"jsonrpc\":\"2.0\",\"result\":{result},\"id\":{id}}}");
    snap::raw::Encoder::new().compress_vec(text.as_bytes()).map_err(compression)
}

/// Reads a frame, which is at most `limit` bytes long when it is decompressed. Several messages may come in one list.
///
/// # Errors
/// If it is longer, or not of this form.
pub fn decode(frame: &[u8], limit: usize) -> Result<Vec<Message>, MessageError> {
    let size = snap::raw::decompress_len(frame).map_err(compression)?;
    if size > limit {
        return Err(MessageError::Inflated { limit });
    }
    let text = snap::raw::Decoder::new().decompress_vec(frame).map_err(compression)?;
    match serde_json::from_slice(&text).map_err(|error| MessageError::json(&error))? {
        Value::Array(messages) if !messages.is_empty() => messages.into_iter().map(Message::read).collect(),
        message => Message::read(message).map(|message| vec![message]),
    }
}

fn compression(error: snap::Error) -> MessageError {
    MessageError::Compression(io::Error::new(io::ErrorKind::InvalidData, error))
}

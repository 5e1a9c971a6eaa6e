//! The messages of `/v2/outlet`: a hello in plain JSON, then JSON-RPC 2.0, each message one raw block of Snappy.
mod delta_form;
mod hello;
mod rpc;
mod sync;
#[cfg(test)]
mod tests;

pub use delta_form::DeltaForm;
pub use hello::{Hello, Welcome};
pub use rpc::{Message, RpcError, decode, encode, encode_result};
pub use sync::{
    Delta, DeltaError, GET_DELTA, GetDelta, NOTIFY_NEW_VERSION, NOTIFY_VALIDATION_ERROR, NotifyNewVersion,
    SYNC_CAPABILITY, SyncResult, SyncVersion, ValidationError, document,
};

/// The subprotocol of the WebSocket.
pub const PROTOCOL: &str = "kong.meta.v1";
/// The name of the encoding. It is not the framing format of Snappy that the name brings to mind.
pub const ENCODING: &str = "x-snappy-framed";

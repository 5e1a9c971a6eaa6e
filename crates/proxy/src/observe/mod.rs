//! What the node tells of what it does: logs, explanations, times.

pub mod access_log;
pub mod explain;
pub(crate) mod request_debug;
pub(crate) mod telemetry;

//! What the node tells of what it does: access logs, warnings, what plugins cost, times of single requests.

pub mod access_log;
pub mod costs;
pub(crate) mod request_debug;
pub(crate) mod telemetry;

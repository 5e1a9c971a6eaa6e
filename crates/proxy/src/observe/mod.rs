//! Observability: access logs, warnings, the costs of plugins, and the timings of single requests.

pub mod access_log;
pub mod costs;
pub(crate) mod request_debug;
pub(crate) mod telemetry;

//! Observability: access logs, warnings, records for analytics, the costs of plugins, and the timings of single requests.

pub mod access_log;
pub(crate) mod activity;
pub mod costs;
pub(crate) mod recorder;
pub(crate) mod request_debug;
pub(crate) mod sampler;
pub(crate) mod telemetry;

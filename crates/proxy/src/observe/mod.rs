//! Observability: access logs, warnings, records for analytics, what hooks take, and the timings of single requests.

pub mod access_log;
pub(crate) mod hooks;
pub(crate) mod recorder;
pub(crate) mod request_debug;
pub(crate) mod sampler;
pub(crate) mod server_timing;
pub(crate) mod telemetry;

//! The plugins. To add one: its file, `mod` and a row in the table.

use crate::plugin::{Definition, define};

mod authentication;
mod basic_auth;
mod correlation_id;
mod counters;
mod datagrams;
#[cfg(test)]
mod docs;
mod file_log;
pub(crate) mod form;
mod http_log;
mod key_auth;
mod limit_count;
mod log_record;
mod mtls_auth;
mod opentelemetry;
pub mod prometheus;
mod rate_limiting;
mod redirect;
mod request_id;
mod request_termination;
mod statsd;
mod syslog;
mod tcp_log;
mod trace_context;
mod udp_log;

/// Every plugin this gateway has, the one list of them.
pub static PLUGINS: &[Definition] = &[
    define::<correlation_id::CorrelationId>(),
    define::<request_id::RequestId>(),
    define::<mtls_auth::MtlsAuth>(),
    define::<key_auth::KeyAuth>(),
    define::<basic_auth::BasicAuth>(),
    define::<limit_count::LimitCount>(),
    define::<rate_limiting::RateLimiting>(),
    define::<redirect::Redirect>(),
    define::<opentelemetry::OpenTelemetry>(),
    define::<prometheus::Prometheus>(),
    define::<http_log::HttpLog>(),
    define::<statsd::Statsd>(),
    define::<file_log::FileLog>(),
    define::<udp_log::UdpLog>(),
    define::<tcp_log::TcpLog>(),
    define::<syslog::Syslog>(),
    define::<request_termination::RequestTermination>(),
];

//! The plugins. To add one: its file, `mod` and a row in the table.

use crate::plugin::{Definition, define};

mod authentication;
mod basic_auth;
mod correlation_id;
mod counters;
#[cfg(test)]
mod docs;
pub(crate) mod form;
mod forward_auth;
mod key_auth;
mod limit_count;
mod mtls_auth;
pub mod prometheus;
pub mod proxy_cache;
mod rate_limiting;
mod redirect;
mod request_id;
mod request_termination;
mod response_ratelimiting;

/// Every plugin this gateway has, the one list of them.
pub static PLUGINS: &[Definition] = &[
    define::<correlation_id::CorrelationId>(),
    define::<request_id::RequestId>(),
    define::<mtls_auth::MtlsAuth>(),
    define::<key_auth::KeyAuth>(),
    define::<basic_auth::BasicAuth>(),
    define::<forward_auth::ForwardAuth>(),
    define::<limit_count::LimitCount>(),
    define::<rate_limiting::RateLimiting>(),
    define::<response_ratelimiting::ResponseRateLimiting>(),
    define::<redirect::Redirect>(),
    define::<proxy_cache::ProxyCache>(),
    define::<prometheus::Prometheus>(),
    define::<request_termination::RequestTermination>(),
];

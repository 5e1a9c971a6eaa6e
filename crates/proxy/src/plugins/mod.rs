//! The plugins. To add one: its file, `mod` and a row in the table.

use crate::plugin::{Definition, define};

mod authentication;
mod basic_auth;
mod correlation_id;
#[cfg(test)]
mod docs;
mod form;
mod key_auth;
pub mod prometheus;
mod rate_limiting;
mod request_termination;

/// Every plugin this gateway has, the one list of them.
pub static PLUGINS: &[Definition] = &[
    define::<correlation_id::CorrelationId>(),
    define::<key_auth::KeyAuth>(),
    define::<basic_auth::BasicAuth>(),
    define::<rate_limiting::RateLimiting>(),
    define::<prometheus::Prometheus>(),
    define::<request_termination::RequestTermination>(),
];

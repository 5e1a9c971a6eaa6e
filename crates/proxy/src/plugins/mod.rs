//! The plugins. To add one: its file, `mod` and a row in the table.

use crate::plugin::{Definition, define};

mod authentication;
mod basic_auth;
mod bot_detection;
mod correlation_id;
mod counters;
#[cfg(test)]
mod docs;
pub(crate) mod form;
mod key_auth;
mod limit_count;
mod members;
mod mtls_auth;
mod multipart;
pub mod prometheus;
mod rate_limiting;
mod redirect;
mod request_id;
mod request_size_limiting;
mod request_termination;
mod request_transformer;
mod response_transformer;
mod transformer;

/// Every plugin this gateway has, the one list of them.
pub static PLUGINS: &[Definition] = &[
    define::<correlation_id::CorrelationId>(),
    define::<request_id::RequestId>(),
    define::<bot_detection::BotDetection>(),
    define::<mtls_auth::MtlsAuth>(),
    define::<key_auth::KeyAuth>(),
    define::<basic_auth::BasicAuth>(),
    define::<limit_count::LimitCount>(),
    define::<request_size_limiting::RequestSizeLimiting>(),
    define::<rate_limiting::RateLimiting>(),
    define::<request_transformer::RequestTransformer>(),
    define::<response_transformer::ResponseTransformer>(),
    define::<redirect::Redirect>(),
    define::<prometheus::Prometheus>(),
    define::<request_termination::RequestTermination>(),
];

//! The plugins. To add one: its file, `mod` and a row in the table.

use crate::plugin::{Definition, define};

mod acl;
mod authentication;
mod basic_auth;
mod bot_detection;
mod correlation_id;
mod cors;
mod counters;
#[cfg(test)]
mod docs;
pub(crate) mod form;
mod hmac_auth;
mod ip_restriction;
mod jwt;
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
    define::<cors::Cors>(),
    define::<mtls_auth::MtlsAuth>(),
    define::<jwt::Jwt>(),
    define::<key_auth::KeyAuth>(),
    define::<basic_auth::BasicAuth>(),
    define::<hmac_auth::HmacAuth>(),
    define::<limit_count::LimitCount>(),
    define::<ip_restriction::IpRestriction>(),
    define::<request_size_limiting::RequestSizeLimiting>(),
    define::<acl::Acl>(),
    define::<rate_limiting::RateLimiting>(),
    define::<request_transformer::RequestTransformer>(),
    define::<response_transformer::ResponseTransformer>(),
    define::<redirect::Redirect>(),
    define::<prometheus::Prometheus>(),
    define::<request_termination::RequestTermination>(),
];

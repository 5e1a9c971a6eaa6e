//! The plugins. To add one: its file, `mod` and a row in the table.

use crate::plugin::{Definition, define};

mod acl;
mod authentication;
mod basic_auth;
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
mod mtls_auth;
pub mod prometheus;
mod rate_limiting;
mod redirect;
mod request_id;
mod request_termination;

/// Every plugin this gateway has, the one list of them.
pub static PLUGINS: &[Definition] = &[
    define::<correlation_id::CorrelationId>(),
    define::<request_id::RequestId>(),
    define::<cors::Cors>(),
    define::<mtls_auth::MtlsAuth>(),
    define::<jwt::Jwt>(),
    define::<key_auth::KeyAuth>(),
    define::<basic_auth::BasicAuth>(),
    define::<hmac_auth::HmacAuth>(),
    define::<limit_count::LimitCount>(),
    define::<ip_restriction::IpRestriction>(),
    define::<acl::Acl>(),
    define::<rate_limiting::RateLimiting>(),
    define::<redirect::Redirect>(),
    define::<prometheus::Prometheus>(),
    define::<request_termination::RequestTermination>(),
];

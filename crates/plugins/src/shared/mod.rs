//! Parts that several plugins use. The larger ones have folders of their own beside this one: `limits`, `log_record` and
//! `trace_context`.

pub(crate) mod apisix_record;
pub(crate) mod authentication;
pub(crate) mod aws;
pub(crate) mod batch_processor;
pub(crate) mod body_arguments;
pub(crate) mod counters;
pub(crate) mod datagrams;
pub(crate) mod expression;
pub(crate) mod fetched;
pub(crate) mod forged_headers;
pub(crate) mod function_call;
pub(crate) mod grpc;
pub(crate) mod header_operations;
pub(crate) mod interim_status;
pub(crate) mod limits_of_apisix;
pub(crate) mod members;
pub(crate) mod multipart;
pub(crate) mod quota_window;
pub(crate) mod random_id;
pub(crate) mod regex_uri;
pub(crate) mod request_key;
pub(crate) mod row_cache;
pub(crate) mod scopes;
pub(crate) mod severities;
pub(crate) mod statsd_lines;
pub(crate) mod transformer;
pub(crate) mod variables;

/// Marks an exchange whose response must not be cached: a plugin rewrites what the upstream sends, and could not rewrite
/// what comes from a cache.
pub(crate) struct Uncacheable;

//! One request from its head to its end: rewrite, route, plugins, upstream, response.

mod chain;
pub(crate) mod client_ip;
pub(crate) mod filtered_body;
mod forward;
pub(crate) mod grpc;
pub(crate) mod head;
mod internal;
pub(crate) mod relay;
pub(crate) mod request_body;
pub(crate) mod respond;
pub(crate) mod response_body;
mod rewrite;
pub(crate) mod serve;
pub(crate) mod service_override;

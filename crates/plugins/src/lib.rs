//! The bundled plugins, each a file or a folder. To add one: its file, `mod` and a row in [`PLUGINS`].
//!
//! A plugin depends on `weir_plugin`, but not on `weir_plugin::engine`. [`PLUGINS`] goes to the engine, which builds an
//! instance for each plugin entity of a configuration and calls its hooks. The gateway uses two plugins for more than
//! their hooks: [`prometheus`] renders the metrics, and [`limits`] takes the counters that the nodes of one database
//! share.

use weir_plugin::{Definition, Plugin};

mod acl;
mod acme;
mod ai_prompt_decorator;
mod ai_prompt_guard;
mod ai_prompt_template;
mod ai_proxy;
mod ai_proxy_multi;
mod ai_rate_limiting;
mod ai_request_transformer;
mod ai_response_transformer;
mod api_breaker;
mod apisix_aws_lambda;
mod apisix_cors;
mod apisix_hmac_auth;
mod apisix_proxy_cache;
mod apisix_redirect;
mod aws_lambda;
mod azure_functions;
mod basic_auth;
mod bot_detection;
mod conditional;
mod consumer_restriction;
mod correlation_id;
mod cors;
mod datadog;
#[cfg(test)]
mod docs;
mod fault_injection;
mod file_log;
mod file_logger;
mod forward_auth;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod grpc_gateway;
mod grpc_transcode;
mod grpc_web;
mod gzip;
mod hmac_auth;
mod http_log;
mod http_logger;
mod ip_restriction;
mod jwt;
mod jwt_auth;
mod kafka_logger;
mod key_auth;
mod ldap_auth;
mod limit_conn;
mod limit_count;
mod limit_req;
pub mod limits;
mod llm;
mod log_record;
mod loggly;
#[cfg(test)]
mod marks_tests;
mod mocking;
mod mtls_auth;
mod oauth2;
mod openfunction;
mod openid_connect;
mod opentelemetry;
mod openwhisk;
pub mod prometheus;
mod proxy_cache;
mod proxy_mirror;
mod proxy_rewrite;
mod rate_limiting;
mod redirect;
mod referer_restriction;
mod request_id;
mod request_size_limiting;
mod request_termination;
mod request_transformer;
mod request_validation;
mod response_ratelimiting;
mod response_rewrite;
mod response_transformer;
mod session;
mod shared;
mod standard_webhooks;
mod statsd;
mod sync;
mod syslog;
mod tcp_log;
mod trace_context;
mod traffic_split;
mod ua_restriction;
mod udp_log;
mod uri_blocker;
mod zipkin;

// The version of the bundled plugins: Kong's own have the version of Kong.
pub use shared::grpc::responses::ResponseOptions;
pub use weir_plugin::KONG_VERSION;

/// The record of a request, as log plugins write it.
pub fn request_record(exchange: &weir_plugin::Exchange) -> Vec<u8> {
    log_record::request_record(exchange)
}

/// Whether the content of one of APISIX's protos can be used; else what is wrong with it, and in which line.
pub fn check_proto(content: &str) -> Result<(), String> {
    grpc_transcode::check_proto(content)
}

const fn define<P: Plugin>() -> Definition {
    let plain = weir_plugin::define::<P>();
    let schema = plain.schema.with_reader(&conditional::read::<P>);
    Definition { version: KONG_VERSION, schema, build: conditional::build::<P>, ..plain }
}

/// Every bundled plugin: the only list of them.
pub static PLUGINS: &[Definition] = &[
    define::<correlation_id::CorrelationId>(),
    define::<zipkin::Zipkin>(),
    define::<request_id::RequestId>(),
    define::<fault_injection::FaultInjection>(),
    define::<mocking::Mocking>(),
    define::<apisix_cors::ApisixCors>(),
    define::<ua_restriction::UaRestriction>(),
    define::<referer_restriction::RefererRestriction>(),
    define::<uri_blocker::UriBlocker>(),
    define::<bot_detection::BotDetection>(),
    define::<cors::Cors>(),
    define::<session::SessionPlugin>(),
    define::<acme::Acme>(),
    define::<mtls_auth::MtlsAuth>(),
    define::<openid_connect::OpenIdConnect>(),
    define::<jwt::Jwt>(),
    define::<apisix_hmac_auth::ApisixHmacAuth>(),
    define::<jwt_auth::JwtAuth>(),
    define::<oauth2::OAuth2>(),
    define::<key_auth::KeyAuth>(),
    define::<ldap_auth::LdapAuth>(),
    define::<basic_auth::BasicAuth>(),
    define::<hmac_auth::HmacAuth>(),
    define::<forward_auth::ForwardAuth>(),
    define::<proxy_rewrite::ProxyRewrite>(),
    define::<api_breaker::ApiBreaker>(),
    define::<limit_conn::LimitConn>(),
    define::<limit_count::LimitCount>(),
    define::<limit_req::LimitReq>(),
    define::<grpc_gateway::GrpcGateway>(),
    define::<ip_restriction::IpRestriction>(),
    define::<traffic_split::TrafficSplit>(),
    define::<consumer_restriction::ConsumerRestriction>(),
    define::<request_validation::RequestValidation>(),
    define::<request_size_limiting::RequestSizeLimiting>(),
    define::<acl::Acl>(),
    define::<rate_limiting::RateLimiting>(),
    define::<response_ratelimiting::ResponseRateLimiting>(),
    define::<apisix_redirect::ApisixRedirect>(),
    define::<response_rewrite::ResponseRewrite>(),
    define::<gzip::Gzip>(),
    define::<proxy_mirror::ProxyMirror>(),
    define::<request_transformer::RequestTransformer>(),
    define::<response_transformer::ResponseTransformer>(),
    define::<redirect::Redirect>(),
    define::<ai_request_transformer::AiRequestTransformer>(),
    define::<ai_rate_limiting::AiRateLimiting>(),
    define::<ai_prompt_template::AiPromptTemplate>(),
    define::<ai_prompt_decorator::AiPromptDecorator>(),
    define::<ai_prompt_guard::AiPromptGuard>(),
    define::<ai_proxy::AiProxy>(),
    define::<ai_proxy_multi::AiProxyMulti>(),
    define::<ai_response_transformer::AiResponseTransformer>(),
    define::<standard_webhooks::StandardWebhooks>(),
    define::<aws_lambda::AwsLambda>(),
    define::<azure_functions::AzureFunctions>(),
    define::<apisix_aws_lambda::ApisixAwsLambda>(),
    define::<openwhisk::OpenWhisk>(),
    define::<openfunction::OpenFunction>(),
    define::<grpc_transcode::GrpcTranscode>(),
    define::<apisix_proxy_cache::ApisixProxyCache>(),
    define::<proxy_cache::ProxyCache>(),
    define::<opentelemetry::OpenTelemetry>(),
    define::<prometheus::Prometheus>(),
    define::<http_log::HttpLog>(),
    define::<statsd::Statsd>(),
    define::<datadog::Datadog>(),
    define::<file_logger::FileLogger>(),
    define::<http_logger::HttpLogger>(),
    define::<kafka_logger::KafkaLogger>(),
    define::<file_log::FileLog>(),
    define::<udp_log::UdpLog>(),
    define::<tcp_log::TcpLog>(),
    define::<loggly::Loggly>(),
    define::<syslog::Syslog>(),
    define::<grpc_web::GrpcWeb>(),
    define::<request_termination::RequestTermination>(),
];

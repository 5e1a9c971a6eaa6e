//! Sends spans and logs to a collector, over HTTP or gRPC.

use super::{Config, otlp};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Uri};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use weir_plugin::{
    BuildContext, Bytes, CallError, Failed, GrpcClient, HttpClient, NodeId, Queue, host_and_port,
};

const EXPORT_SPANS: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
const EXPORT_LOGS: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";

/// The port of collectors' gRPC services.
const GRPC_PORT: &str = "4317";

/// Statuses after which OTLP retries a call: cancelled, deadline exceeded, resource exhausted, aborted, out of range,
/// unavailable and data loss.
const TRANSIENT: [u32; 7] = [1, 4, 8, 10, 11, 14, 15];

/// Validates the URL of a collector, for configurations.
pub(super) fn endpoint(text: &str) -> Result<(), String> {
    match grpc(text) {
        Some((_, host)) if host.is_empty() || host.contains(['/', '?', '#', '@']) => Err(format!(
            "expected host and port alone, such as grpc://collector.example.com:4317, got {text:?}"
        )),
        Some((_, host)) => weir_plugin::rule::url(&format!("http://{host}")),
        None => weir_plugin::rule::url(text),
    }
}

/// Whether to use TLS, and the host with an optional port, of a URL of a gRPC service.
fn grpc(endpoint: &str) -> Option<(bool, &str)> {
    let clear = endpoint.strip_prefix("grpc://").map(|rest| (false, rest));
    let found = clear.or_else(|| endpoint.strip_prefix("grpcs://").map(|rest| (true, rest)));
    found.map(|(tls, rest)| (tls, rest.strip_suffix('/').unwrap_or(rest)))
}

/// The queue to a collector of spans.
pub(super) fn spans(
    config: &Config,
    endpoint: &str,
    build: &BuildContext<'_>,
) -> Result<Queue<otlp::Span>, String> {
    let exporter = Arc::new(Exporter::new(config, ("traces_endpoint", endpoint), EXPORT_SPANS, build)?);
    Ok(build.queue(config.queue(), move |batch: Arc<[otlp::Span]>| {
        let exporter = exporter.clone();
        async move {
            let message = otlp::export_spans(exporter.resource.clone(), batch.to_vec());
            exporter.send(message.encode_to_vec()).await
        }
    }))
}

/// The queue to a collector of logs.
pub(super) fn logs(
    config: &Config,
    endpoint: &str,
    build: &BuildContext<'_>,
) -> Result<Queue<otlp::LogRecord>, String> {
    let exporter = Arc::new(Exporter::new(config, ("logs_endpoint", endpoint), EXPORT_LOGS, build)?);
    Ok(build.queue(config.queue(), move |batch: Arc<[otlp::LogRecord]>| {
        let exporter = exporter.clone();
        async move {
            let message = otlp::export_logs(exporter.resource.clone(), batch.to_vec());
            exporter.send(message.encode_to_vec()).await
        }
    }))
}

enum Client {
    Http(HttpClient),
    Grpc(GrpcClient),
}

/// Sends to a collector.
struct Exporter {
    client: Client,
    uri: Uri,
    headers: HeaderMap,
    timeout: Duration,
    resource: otlp::Resource,
}

impl Exporter {
    fn new(
        config: &Config,
        (field, endpoint): (&str, &str),
        method: &str,
        build: &BuildContext<'_>,
    ) -> Result<Self, String> {
        let invalid = || format!("config.{field} is not a valid URL");
        // It may be a secret, for which no rule holds, and which no message may quote.
        self::endpoint(endpoint).map_err(|_| invalid())?;
        let (client, uri) = match grpc(endpoint) {
            Some((tls, host)) => {
                (Client::Grpc(GrpcClient::new(build.log_dialer(tls))), grpc_uri(tls, host, method))
            }
            None => {
                let dialer = build.log_dialer(endpoint.starts_with("https:"));
                (Client::Http(HttpClient::new(dialer)), endpoint.to_owned())
            }
        };
        let milliseconds = [config.connect_timeout, config.send_timeout, config.read_timeout];
        Ok(Self {
            client,
            uri: uri.parse().map_err(|_| invalid())?,
            headers: headers(config)?,
            timeout: milliseconds.into_iter().map(|it| Duration::from_millis(it.into())).sum(),
            resource: resource(config.resource_attributes.clone().unwrap_or_default(), build),
        })
    }

    async fn send(&self, message: Vec<u8>) -> Result<(), Failed> {
        match &self.client {
            Client::Http(client) => self.post(client, message).await.map_err(Failed::Now),
            Client::Grpc(client) => self.call(client, &message).await,
        }
    }

    async fn post(&self, client: &HttpClient, message: Vec<u8>) -> Result<(), String> {
        let mut request = Request::new(Bytes::from(message));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let asked = client.send(request, self.timeout).await;
        match asked.map_err(|error| self.failed(&error))?.status().as_u16() {
            200 => Ok(()),
            status => Err(format!("response error: {status}")),
        }
    }

    async fn call(&self, client: &GrpcClient, message: &[u8]) -> Result<(), Failed> {
        match client.call(self.uri.clone(), self.headers.clone(), message, self.timeout).await {
            Ok(reply) => {
                // The response for logs has the same form.
                let reply = otlp::ExportTraceServiceResponse::decode(&*reply).unwrap_or_default();
                // What the collector rejected must not be sent again.
                if let Some(partial) = reply.partial_success.filter(|partial| partial.rejected_spans > 0) {
                    let otlp::ExportTracePartialSuccess { rejected_spans: rejected, error_message } = partial;
                    tracing::warn!(rejected, "the collector refused some of a batch: {error_message}");
                }
                Ok(())
            }
            Err(CallError::Status { code, message }) if !TRANSIENT.contains(&code) => {
                Err(Failed::Forever(CallError::Status { code, message }.to_string()))
            }
            Err(error) => Err(Failed::Now(self.failed(&error))),
        }
    }

    fn failed(&self, error: &dyn std::error::Error) -> String {
        format!("failed request to {}: {error}", host_and_port(&self.uri))
    }
}

fn grpc_uri(tls: bool, host: &str, method: &str) -> String {
    let scheme = if tls { "https" } else { "http" };
    // The colons of an IPv6 address are within brackets.
    let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
    let port = if has_port { String::new() } else { format!(":{GRPC_PORT}") };
    format!("{scheme}://{host}{port}{method}")
}

fn headers(config: &Config) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    for (name, value) in config.headers.iter().flatten() {
        let invalid = || format!("config.headers: {name} is not a valid header");
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        headers.insert(known, HeaderValue::from_str(value).map_err(|_| invalid())?);
    }
    Ok(headers)
}

/// The attributes of this node, unless the configuration overrides them.
fn resource(mut attributes: BTreeMap<String, String>, build: &BuildContext<'_>) -> otlp::Resource {
    let instance = build.retained.get::<NodeId>().0.to_string();
    for (key, value) in [
        ("service.name", "kong"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", &instance),
    ] {
        attributes.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    let attributes = attributes.into_iter().map(|(key, value)| otlp::attribute(&key, value));
    otlp::Resource { attributes: attributes.collect(), ..otlp::Resource::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_urls_or_name_a_grpc_service() {
        for good in [
            "http://c.test/v1/traces",
            "https://c.test",
            "grpc://c.test",
            "grpcs://c.test:4317/",
            "grpc://[::1]:1",
        ] {
            assert_eq!(endpoint(good), Ok(()), "{good}");
        }
        for bad in [
            "grpc://",
            "grpc://c.test/v1/traces",
            "grpc://:4317",
            "grpc://a@c.test",
            "grpc:c.test",
            "ftp://c.test",
        ] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
        assert!(endpoint("grpc://c.test/v1").unwrap_err().contains("grpc://collector.example.com:4317"));
    }

    #[test]
    fn the_port_of_grpc_is_known() {
        let uri = |text: &str| grpc(text).map(|(tls, host)| grpc_uri(tls, host, "")).unwrap();
        assert_eq!(uri("grpc://c.test"), "http://c.test:4317");
        assert_eq!(uri("grpcs://c.test:1/"), "https://c.test:1");
        assert_eq!(uri("grpcs://[::1]"), "https://[::1]:4317");
        assert_eq!(uri("grpc://[::1]:2"), "http://[::1]:2");
    }
}

//! Sends spans to the server.

use super::Config;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::uri::Scheme;
use http::{Method, Request, Uri};
use std::sync::Arc;
use std::time::Duration;
use weir_plugin::{BuildContext, Bytes, HttpClient, Queue, host_and_port};

/// The queue to the server, if there is one.
pub(super) fn queue(config: &Config, build: &BuildContext<'_>) -> Result<Option<Queue<Vec<u8>>>, String> {
    let Some(endpoint) = &config.http_endpoint else { return Ok(None) };
    let milliseconds = [config.connect_timeout, config.send_timeout, config.read_timeout];
    let uri: Uri = endpoint.parse().map_err(|_| "config.http_endpoint is not a valid URL")?;
    let collector = Arc::new(Collector {
        client: HttpClient::new(build.log_dialer(uri.scheme() == Some(&Scheme::HTTPS))),
        uri,
        timeout: milliseconds.into_iter().map(|it| Duration::from_millis(it.into())).sum(),
    });
    Ok(Some(build.queue(config.queue.clone(), move |batch: Arc<[Vec<u8>]>| {
        let collector = collector.clone();
        async move { collector.send(&batch).await }
    })))
}

struct Collector {
    client: HttpClient,
    uri: Uri,
    timeout: Duration,
}

impl Collector {
    async fn send(&self, spans: &[Vec<u8>]) -> Result<(), String> {
        let body = [&b"["[..], &spans.join(&b','), b"]"].concat();
        let mut request = Request::new(Bytes::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let asked = self.client.send(request, self.timeout).await;
        let failed = |error| format!("failed request to {}: {error}", host_and_port(&self.uri));
        let status = asked.map_err(failed)?.status();
        if status.is_success() {
            Ok(())
        } else {
            Err(format!("zipkin server responded unexpectedly: {status}"))
        }
    }
}

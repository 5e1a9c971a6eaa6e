//! Sends what was counted to a collector of OTLP/HTTP, as metrics in protobuf.
mod message;

use super::Control;
use crate::analytics::{Analytics, now};
use crate::settings::verify_by_system;
use crate::settings::{HttpUrl, Role, Settings};
use crate::threads::spawn_low_priority;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceResponse,
};
use prost::Message;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use weir_net::dialer::{Dialer, NodeResolver};
use weir_net::tls::client_config;
use weir_plugin::{HttpClient, HttpError, host_and_port};
use weir_proxy::Retained;

const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the collector has for the last metrics of a node that stops.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a collector does not have the metrics.
#[derive(Debug)]
enum ExportError {
    /// It cannot be reached, or takes too long.
    Unreachable(HttpError),
    /// It answers something else than 200.
    Refused(u16),
    /// It took some points and refused so many.
    Partial(ExportMetricsPartialSuccess),
    /// The message could not be made.
    Internal,
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => write!(f, "{error}; see that it runs"),
            Self::Refused(status @ (401 | 403)) => {
                write!(f, "it answered {status}; set analytics_otlp_headers to what it asks for")
            }
            Self::Refused(status) => {
                write!(
                    f,
                    "it answered {status}; see that the URL ends in its path for metrics, as /v1/metrics"
                )
            }
            Self::Partial(partial) => {
                let ExportMetricsPartialSuccess { rejected_data_points: points, error_message: why } =
                    partial;
                write!(f, "it refused {points} points: {why}")
            }
            Self::Internal => f.write_str("the message could not be made; this is a defect"),
        }
    }
}

/// The collector that a node sends its metrics to.
pub(crate) struct Collector {
    client: HttpClient,
    endpoint: HttpUrl,
    headers: HeaderMap,
    interval: Duration,
    /// Whether the last metrics were refused, so that an error is logged once.
    is_failing: AtomicBool,
}

impl Collector {
    /// The collector of the settings. A control plane counts nothing of its own.
    pub(crate) fn of(settings: &Settings, retained: &Retained) -> Option<Collector> {
        let is_counting = settings.analytics && settings.role != Role::ControlPlane;
        let endpoint = settings.analytics_otlp_endpoint.clone().filter(|_| is_counting)?;
        let tls = client_config(Some(verify_by_system()), None).map_err(|error| error.to_string());
        let dialer =
            Dialer::new(retained.get::<NodeResolver>()).with_tls(tls, "analytics_otlp_endpoint=http://…");
        let mut headers = HeaderMap::new();
        headers.extend(endpoint.authorization.clone().map(|value| (header::AUTHORIZATION, value)));
        headers.extend(settings.analytics_otlp_headers.0.clone());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        Some(Collector {
            client: HttpClient::new(dialer),
            endpoint,
            headers,
            interval: settings.analytics_otlp_interval.0,
            is_failing: AtomicBool::new(false),
        })
    }

    async fn send(&self, message: Vec<u8>, timeout: Duration) -> Result<(), ExportError> {
        let mut request = Request::new(Bytes::from(message));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri();
        *request.headers_mut() = self.headers.clone();
        let response = self.client.send(request, timeout).await.map_err(ExportError::Unreachable)?;
        if response.status().as_u16() != 200 {
            return Err(ExportError::Refused(response.status().as_u16()));
        }
        let answer = ExportMetricsServiceResponse::decode(response.body().clone()).unwrap_or_default();
        let partial = answer.partial_success.filter(|partial| partial.rejected_data_points > 0);
        partial.map_or(Ok(()), |partial| Err(ExportError::Partial(partial)))
    }

    /// The settings have only URLs that parse.
    fn uri(&self) -> Uri {
        self.endpoint.url.parse().unwrap_or_default()
    }

    /// Logs the first failure of a row, and its end.
    fn note(&self, outcome: &Result<(), ExportError>) {
        let was_failing = self.is_failing.swap(outcome.is_err(), Ordering::Relaxed);
        let (uri, interval) = (self.uri(), self.interval);
        match outcome {
            Err(error) if !was_failing => tracing::warn!(
                "the collector at {} does not have the metrics: {error}; they are sent again every {interval:?}",
                host_and_port(&uri)
            ),
            Ok(()) if was_failing => {
                tracing::info!("the collector at {} has the metrics again", host_and_port(&uri));
            }
            _ => {}
        }
    }
}

/// Sends metrics until the node stops.
pub(crate) fn start(control: &Arc<Control>) {
    let Some(interval) = control.otlp.as_ref().map(|collector| collector.interval) else { return };
    // Counting begins now.
    control.measured();
    let control = control.clone();
    tokio::spawn(async move {
        let mut clock = interval_at(Instant::now() + interval, interval);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            clock.tick().await;
            let counting = control.clone();
            let messages = spawn_low_priority("weir-metrics", move || messages(&counting)).await;
            export(&control, messages.map_err(|_| ExportError::Internal), TIMEOUT).await;
        }
    });
}

/// Sends the last metrics of a node that stops.
pub(crate) async fn finish(control: &Control) {
    if control.otlp.is_some() {
        control.analytics().into_iter().for_each(Analytics::read_last);
        let export = export(control, Ok(messages(control)), LAST_TIMEOUT);
        if tokio::time::timeout(LAST_TIMEOUT, export).await.is_err() {
            tracing::warn!(
                "the collector of analytics_otlp_endpoint took too long for the last metrics; some are not sent"
            );
        }
    }
}

fn messages(control: &Control) -> Vec<Vec<u8>> {
    let messages = message::messages(&control.measured(), control.node_id(), now());
    messages.iter().map(Message::encode_to_vec).collect()
}

async fn export(control: &Control, messages: Result<Vec<Vec<u8>>, ExportError>, timeout: Duration) {
    let Some(collector) = &control.otlp else { return };
    let sent = async {
        for message in messages? {
            collector.send(message, timeout).await?;
        }
        Ok(())
    };
    collector.note(&sent.await);
}

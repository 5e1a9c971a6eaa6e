//! Questions to a Prometheus server that scrapes the nodes, and remembers for longer than they do.
use crate::settings::HttpUrl;
use crate::settings::verify_by_system;
use axum::body::Bytes;
use axum::http::{Method, Request, Response, StatusCode, Uri, header};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_net::dialer::{Dialer, NodeResolver};
use weir_net::tls::client_config;
use weir_plugin::{HttpClient, HttpError, host_and_port};
use weir_proxy::Retained;

/// How long the server is waited for if its answer is asked for.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long it is waited for if the node can answer instead.
const SHORT_TIMEOUT: Duration = Duration::from_secs(2);
/// For so long a server that took too long is not asked again if the node can answer instead.
const SILENCE: Duration = Duration::from_secs(30);
/// The longest answer.
const MAX_BODY_LEN: usize = 16 << 20;

/// A Prometheus server.
pub(crate) struct Prometheus {
    client: HttpClient,
    server: HttpUrl,
    /// When it last took too long, unless it has answered since.
    silent: Mutex<Option<Instant>>,
}

/// How the server is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Its answer is wanted.
    Required,
    /// The node can answer instead.
    Optional,
}

/// Questions to a server.
#[derive(Clone, Copy)]
pub(crate) struct Questions<'p> {
    server: &'p Prometheus,
    pub(crate) need: Need,
}

/// Why it has no answer.
#[derive(Debug)]
pub(crate) enum PrometheusError {
    /// It cannot be reached, or takes too long.
    Unreachable { at: String, why: String },
    /// It answers something else.
    Refused { at: String, status: u16, why: String },
}

impl PrometheusError {
    /// What a client of the Admin API gets.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Unreachable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Refused { .. } => StatusCode::BAD_GATEWAY,
        }
    }
}

impl fmt::Display for PrometheusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { at, why } => {
                write!(
                    f,
                    "Prometheus at {at} does not answer: {why}; see that it runs, and that analytics_prometheus is right"
                )
            }
            Self::Refused { at, status: 401 | 403, .. } => {
                write!(
                    f,
                    "Prometheus at {at} asks for a user and a password: write http://USER:PASSWORD@… in analytics_prometheus"
                )
            }
            Self::Refused { at, status, why } => {
                write!(
                    f,
                    "Prometheus at {at} answered {status}: {why}; see that analytics_prometheus is the address of its API"
                )
            }
        }
    }
}

impl std::error::Error for PrometheusError {}

/// A series of an answer: its labels, and times with values.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Samples {
    #[serde(rename = "metric")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<(f64, String)>,
    value: Option<(f64, String)>,
}

impl Samples {
    /// The value of a label; empty without the label.
    pub(crate) fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }

    /// Times in seconds since 1970, and their values; what is not a number is left out.
    pub(crate) fn points(&self) -> impl Iterator<Item = (u64, f64)> {
        let all = self.values.iter().chain(&self.value);
        let number = |(time, value): &(f64, String)| Some((time.round() as u64, value.parse().ok()?));
        all.filter_map(number).filter(|(_, value): &(u64, f64)| value.is_finite())
    }
}

#[derive(Deserialize)]
struct Answer {
    data: Option<Data>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Data {
    result: Vec<Samples>,
}

impl Prometheus {
    /// The server at this address.
    pub(crate) fn new(server: HttpUrl, retained: &Retained) -> Prometheus {
        let tls = client_config(Some(verify_by_system()), None).map_err(|error| error.to_string());
        let dialer =
            Dialer::new(retained.get::<NodeResolver>()).with_tls(tls, "analytics_prometheus=http://…");
        let client = HttpClient::new(dialer).with_max_body_len(MAX_BODY_LEN);
        Prometheus { client, server, silent: Mutex::default() }
    }

    /// Questions to it.
    pub(crate) fn asked(&self, need: Need) -> Questions<'_> {
        Questions { server: self, need }
    }

    /// Host and port, for messages.
    fn place(&self) -> String {
        let url: Option<Uri> = self.server.url.parse().ok();
        url.as_ref().map(host_and_port).unwrap_or_default().to_owned()
    }

    /// How many seconds ago it took too long, if that is recent and it has not answered since.
    fn silent_since(&self) -> Option<u64> {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.map(|since| since.elapsed()).filter(|ago| *ago < SILENCE).map(|ago| ago.as_secs())
    }

    fn note_silence(&self, is_silent: bool) {
        let since = is_silent.then(Instant::now);
        *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}

impl Questions<'_> {
    /// What an expression is at times this many seconds apart, both ends included.
    pub(crate) async fn range(
        &self,
        expression: &str,
        (from, to): (u64, u64),
        step: u64,
    ) -> Result<Vec<Samples>, PrometheusError> {
        let times = [("start", from), ("end", to), ("step", step)];
        self.ask("query_range", expression, &times).await
    }

    /// What an expression is at a time.
    pub(crate) async fn at(&self, expression: &str, time: u64) -> Result<Vec<Samples>, PrometheusError> {
        self.ask("query", expression, &[("time", time)]).await
    }

    async fn ask(
        &self,
        path: &str,
        expression: &str,
        times: &[(&str, u64)],
    ) -> Result<Vec<Samples>, PrometheusError> {
        let unreachable = |why: String| PrometheusError::Unreachable { at: self.server.place(), why };
        let request =
            self.request(path, expression, times).map_err(|error| unreachable(error.to_string()))?;
        let response = self.send(request).await.map_err(unreachable)?;
        let status = response.status().as_u16();
        let refused =
            |why: &str| PrometheusError::Refused { at: self.server.place(), status, why: why.to_owned() };
        let answer: Answer = serde_json::from_slice(response.body())
            .map_err(|_| refused("something else than Prometheus' JSON"))?;
        match (status, answer.data) {
            (200, Some(data)) => Ok(data.result),
            _ => Err(refused(answer.error.as_deref().unwrap_or("no data"))),
        }
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        if let Some(ago) = self.server.silent_since().filter(|_| self.need == Need::Optional) {
            let pause = SILENCE.as_secs() - ago;
            return Err(format!("it took too long {ago} s ago, and is asked again in {pause} s"));
        }
        let answer = self.server.client.send(request, self.timeout()).await;
        self.server.note_silence(matches!(answer, Err(HttpError::Timeout)));
        answer.map_err(|error| error.to_string())
    }

    fn timeout(self) -> Duration {
        match self.need {
            Need::Required => TIMEOUT,
            Need::Optional => SHORT_TIMEOUT,
        }
    }

    fn request(
        &self,
        path: &str,
        expression: &str,
        times: &[(&str, u64)],
    ) -> Result<Request<Bytes>, axum::http::Error> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("query", expression);
        form.append_pair("timeout", &format!("{}s", self.timeout().as_secs()));
        form.extend_pairs(times.iter().map(|(name, time)| (name, time.to_string())));
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}/api/v1/{path}", self.server.server.url))
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(authorization) = &self.server.server.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        request.body(Bytes::from(form.finish()))
    }
}

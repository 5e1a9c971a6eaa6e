//! Prometheus' remote write, version 1: samples as protobuf, compressed by snappy.
use super::{Series, TelemetryError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use prost::Message;
use std::time::Duration;
use ureq::Agent;
use ureq::tls::{TlsConfig, TlsProvider};

/// Series in one request.
const BATCH: usize = 2_000;
const TIMEOUT: Duration = Duration::from_secs(30);
/// What is shown of the body of a refusal.
const MAX_SHOWN: usize = 500;

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    at_ms: i64,
}

/// Where samples are written.
#[derive(Clone)]
pub struct Endpoint {
    /// Without a user.
    url: String,
    /// `Authorization`, which may hold a password.
    authorization: Option<String>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.url)
    }
}

impl Endpoint {
    /// Reads an address such as `http://user:password@host:9090/api/v1/write`.
    ///
    /// # Errors
    /// When it is none of http or https.
    pub fn parse(text: &str) -> Result<Endpoint, TelemetryError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let (authority, path) = rest.find('/').map_or((rest, ""), |start| rest.split_at(start));
        let (user, host) =
            authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        let url = format!("{scheme}://{host}{path}");
        let shown = if scheme.is_empty() { format!("{host}{path}") } else { url.clone() };
        let wrong = |why: &str| TelemetryError::Address(shown.clone(), why.to_owned());
        if !matches!(scheme, "http" | "https") {
            return Err(wrong("the address has neither http nor https"));
        }
        url.parse::<Uri>().map_err(|error| wrong(&error.to_string()))?;
        if path.len() < 2 {
            return Err(wrong("the address has no path"));
        }
        Ok(Endpoint { url, authorization: user.map(|user| format!("Basic {}", STANDARD.encode(user))) })
    }
}

/// Writes the series, and returns how many.
///
/// # Errors
/// When the receiver cannot be reached, or refuses them.
pub fn write(endpoint: &Endpoint, series: &[Series]) -> Result<usize, TelemetryError> {
    let agent = agent();
    for batch in series.chunks(BATCH) {
        send(&agent, endpoint, batch)?;
    }
    Ok(series.len())
}

fn agent() -> Agent {
    // A provider that was installed before serves as well.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let tls = TlsConfig::builder().provider(TlsProvider::Rustls).build();
    let config = Agent::config_builder().tls_config(tls).http_status_as_error(false).max_redirects(0);
    config.timeout_global(Some(TIMEOUT)).build().into()
}

fn send(agent: &Agent, endpoint: &Endpoint, batch: &[Series]) -> Result<(), TelemetryError> {
    let unreachable = |why: String| TelemetryError::Unreachable(endpoint.url.clone(), why);
    let body = snap::raw::Encoder::new()
        .compress_vec(&request(batch).encode_to_vec())
        .map_err(|error| unreachable(error.to_string()))?;
    let mut builder = agent
        .post(&endpoint.url)
        .header("Content-Type", "application/x-protobuf")
        .header("Content-Encoding", "snappy")
        .header("X-Prometheus-Remote-Write-Version", "0.1.0");
    if let Some(authorization) = &endpoint.authorization {
        builder = builder.header("Authorization", authorization);
    }
    let mut response = builder.send(&body[..]).map_err(|error| unreachable(error.to_string()))?;
    if response.status().is_success() {
        return Ok(());
    }
    let body = response.body_mut().read_to_string().unwrap_or_default();
    let body = body.trim().chars().take(MAX_SHOWN).collect();
    Err(TelemetryError::Refused(endpoint.url.clone(), response.status().as_u16(), body))
}

fn request(batch: &[Series]) -> WriteRequest {
    let label = |(name, value): &(String, String)| Label { name: name.clone(), value: value.clone() };
    let series = |series: &Series| TimeSeries {
        labels: series.labels.iter().map(label).collect(),
        samples: vec![Sample { value: series.value, at_ms: series.at_ms }],
    };
    WriteRequest { series: batch.iter().map(series).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_what_is_missing_and_hides_its_password() {
        let endpoint = Endpoint::parse("https://me:hush@example.com/api/v1/write").unwrap();
        assert_eq!(format!("{endpoint:?}"), "https://example.com/api/v1/write");
        assert_eq!(endpoint.authorization.as_deref(), Some("Basic bWU6aHVzaA=="));
        for (text, why) in [
            ("localhost:9090", "--remote-write localhost:9090: the address has neither http nor https"),
            ("http://me:hush@localhost:9090", "no path"),
            ("http://local host/write", "invalid"),
        ] {
            let error = Endpoint::parse(text).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("hush"), "{error}");
        }
    }
}

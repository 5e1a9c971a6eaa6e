//! How metrics are sent to a collector of OTLP.
use super::{SECRET, Value};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;
use std::time::Duration;

/// The headers of requests to a collector. Their values may be secret, so that no message and no answer has them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretHeaders(pub(crate) HeaderMap);

impl Value for SecretHeaders {
    const KIND: &'static str = "`NAME=VALUE`, separated by commas";
    fn parse(text: &str) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for (place, pair) in text.split(',').map(str::trim).enumerate().filter(|(_, pair)| !pair.is_empty()) {
            let wrong = |what| format!("the {}. header {what}; write `NAME=VALUE`", place + 1);
            let (name, value) = pair.split_once('=').ok_or_else(|| wrong("has no `=`"))?;
            let name =
                HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong("has no valid name"))?;
            let decoded = super::http_url::decoded(value.trim());
            let decoded = decoded.ok_or_else(|| wrong("has a `%` without two hexadecimal digits"))?;
            let mut value = HeaderValue::from_bytes(&decoded).map_err(|_| wrong("has no valid value"))?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        Ok(SecretHeaders(headers))
    }
    fn shown(text: &str) -> serde_json::Value {
        if text.trim().is_empty() { "".into() } else { SECRET.into() }
    }
}

impl fmt::Debug for SecretHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SecretHeaders").field(&self.0.keys()).finish()
    }
}

/// How often metrics are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExportInterval(pub(crate) Duration);

impl Value for ExportInterval {
    const KIND: &'static str = "time (`60s`, `5m`), at least `1s`";
    fn parse(text: &str) -> Result<Self, String> {
        match Duration::parse(text)? {
            interval if interval < Duration::from_secs(1) => {
                Err(format!("`{text}` is too short: write at least `1s`"))
            }
            interval => Ok(ExportInterval(interval)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_pairs_whose_values_stay_secret() {
        let parsed = SecretHeaders::parse("Authorization=Bearer%20hush, x-scope = a=b,").unwrap();
        assert_eq!(parsed.0["authorization"], "Bearer hush");
        assert_eq!(parsed.0["x-scope"], "a=b");
        assert!(!format!("{parsed:?}").contains("hush"));
        assert_eq!(SecretHeaders::shown("a=hush"), SECRET);
        assert_eq!(SecretHeaders::parse("").unwrap().0.len(), 0);
        for wrong in ["hush", "a b=hush", "a=hush%4", "a=hush%0a"] {
            let error = SecretHeaders::parse(wrong).unwrap_err();
            assert!(error.contains("the 1. header") && !error.contains("hush"), "{wrong}: {error}");
        }
    }

    #[test]
    fn metrics_are_sent_once_a_second_at_most() {
        assert_eq!(ExportInterval::parse("1s"), Ok(ExportInterval(Duration::from_secs(1))));
        for wrong in ["0", "999ms", "often"] {
            assert!(ExportInterval::parse(wrong).is_err(), "{wrong}");
        }
    }
}

//! A server that keeps texts and is asked by HTTP: Consul or HashiCorp Vault.

use super::super::config::HashiCorp;
use super::super::error::AcmeError;
use http::{HeaderName, HeaderValue, Method, Request, Response};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::time::Duration;
use weir_plugin::{Bytes, HttpClient};

/// The longest response: a list of all keys.
const MAX_RESPONSE_LEN: usize = 8 * 1024 * 1024;

/// The timeout where none is configured, in milliseconds.
const TIMEOUT: f64 = 2_000.0;

/// One server.
pub(super) struct Server {
    /// What messages call it.
    name: &'static str,
    client: HttpClient,
    /// The URL up to the path.
    origin: String,
    timeout: Duration,
}

/// What proves who asks: a header and a secret.
pub(super) type Proof<'p> = (HeaderName, &'p str);

impl Server {
    pub(super) fn new(name: &'static str, client: HttpClient, origin: String, config: &HashiCorp) -> Self {
        let timeout = Duration::try_from_secs_f64(config.timeout.unwrap_or(TIMEOUT) / 1_000.0);
        let client = client.with_max_body_len(MAX_RESPONSE_LEN);
        Self { name, client, origin, timeout: timeout.unwrap_or_default().max(Duration::from_millis(1)) }
    }

    /// Asks for a path. The response may be a refusal.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        proof: Option<Proof<'_>>,
        body: impl Into<Bytes>,
    ) -> Result<Response<Bytes>, AcmeError> {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.origin));
        let mut request = request.body(body.into()).map_err(|error| self.failed(&error.to_string()))?;
        if let Some((name, secret)) = proof {
            let invalid = |_| self.failed("its token has characters that no header may have; set another");
            let mut value = HeaderValue::from_str(secret).map_err(invalid)?;
            value.set_sensitive(true);
            request.headers_mut().insert(name, value);
        }
        self.client.send(request, self.timeout).await.map_err(|error| self.failed(&error.to_string()))
    }

    /// Why the server cannot be used.
    pub(super) fn failed(&self, why: &str) -> AcmeError {
        let address = self.origin.split_once("://").map_or(&*self.origin, |(_, address)| address);
        AcmeError::Storage(format!("{} at {address}: {why}", self.name))
    }

    /// The server's refusal.
    pub(super) fn refused(&self, response: &Response<Bytes>) -> AcmeError {
        let status = response.status().as_u16();
        let hint = match status {
            403 => "; check the token and what its policy allows",
            404 => "; check kv_path",
            _ => "",
        };
        self.failed(&format!("it answers with status {status}{hint}"))
    }

    pub(super) fn malformed(&self) -> AcmeError {
        self.failed("its response is not as its API has it; check host and port")
    }
}

/// The URL of a server up to the path.
pub(super) fn origin(config: &HashiCorp, host: &str, default_port: u16) -> String {
    let scheme = if config.https { "https" } else { "http" };
    let host =
        if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    format!("{scheme}://{host}:{}", config.port.unwrap_or(default_port))
}

/// The host that is asked.
pub(super) fn host(config: &HashiCorp) -> &str {
    config.host.as_deref().unwrap_or("127.0.0.1")
}

/// What all keys begin with, without slashes at its ends.
pub(super) fn folder(config: &HashiCorp) -> &str {
    config.kv_path.as_deref().unwrap_or("acme").trim_matches('/')
}

/// A key as Kong writes it there: without slashes, which separate folders.
pub(super) fn key_in_path(key: &str) -> String {
    escaped(&key.replace('/', "-"))
}

/// What a path has as it is.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b':').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A path with what no path may have escaped.
pub(super) fn escaped(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_one_segment_of_a_path() {
        assert_eq!(key_in_path("kong_acme:cert_key:*.b.test"), "kong_acme:cert_key:%2A.b.test");
        assert_eq!(key_in_path("a:https://c/d:QQ=="), "a:https:--c-d:QQ%3D%3D");
        assert_eq!(key_in_path("../%2f?#ä"), "..-%252f%3F%23%C3%A4");
        assert_eq!(escaped("a/b c"), "a/b%20c");
    }
}

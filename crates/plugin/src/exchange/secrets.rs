//! What the upstream alone gets, such as the key of an API: neither hooks nor logs see it.

use super::Exchange;
use super::headers::{HeaderError, check};
use crate::form;
use std::borrow::Cow;
use weir_http1::{Known, encode};

/// Headers and a query argument that stand apart from the request's own.
#[derive(Default)]
pub(crate) struct UpstreamSecrets {
    /// Lines of the request's head.
    headers: Vec<(String, Vec<u8>)>,
    /// `name=value`, escaped.
    query: Option<String>,
}

impl Exchange {
    /// Sets a header that the upstream alone gets, in the place of those of its name. For access hooks.
    ///
    /// # Errors
    /// A name or value that cannot be sent, or a name that the gateway writes itself, such as `Content-Length`.
    pub fn set_secret_header(&mut self, name: &str, value: &[u8]) -> Result<(), HeaderError> {
        check(name, value)?;
        if is_framing(Known::of(name.as_bytes())) {
            return Err(HeaderError::Name);
        }
        self.request.headers.remove(name);
        let headers = &mut self.engine.extras().secrets.headers;
        headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        headers.push((name.to_owned(), value.to_vec()));
        Ok(())
    }

    /// Sets an argument of the query that the upstream alone gets, in the place of those of its name. For access hooks.
    pub fn set_secret_query_arg(&mut self, name: &str, value: &str) {
        let query = self.query().unwrap_or_default();
        if form::pairs(query).any(|pair| *pair.name == *name.as_bytes()) {
            self.set_query(form::without(query, name));
        }
        let pair = form::Pair::new(name, Some(Cow::Borrowed(value.as_bytes()))).raw.into_owned();
        self.engine.extras().secrets.query = Some(pair);
    }
}

fn is_framing(known: Known) -> bool {
    matches!(known, Known::Host | Known::ContentLength | Known::TransferEncoding | Known::Expect)
        || known.is_hop_by_hop()
}

/// Appends the secret headers, each as a line.
#[inline]
pub fn write_secret_headers(out: &mut Vec<u8>, exchange: &Exchange) {
    if let Some(extras) = &exchange.engine.extras {
        for (name, value) in &extras.secrets.headers {
            encode::header(out, name.as_bytes(), value);
        }
    }
}

/// Appends the secret argument to the target.
#[inline]
pub fn write_secret_query(out: &mut Vec<u8>, exchange: &Exchange) {
    let secret = exchange.engine.extras.as_ref().and_then(|extras| extras.secrets.query.as_deref());
    if let Some(secret) = secret {
        out.push(if exchange.query().is_some() { b'&' } else { b'?' });
        out.extend_from_slice(secret.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::{write_secret_headers, write_secret_query};
    use crate::testing::Gateway;

    #[test]
    fn the_upstream_alone_gets_them_in_the_place_of_the_clients() {
        let mut exchange = Gateway::new(&[]).exchange("GET /?key=own&a=1\nX-Api-Key: own");
        exchange.set_secret_header("x-api-key", b"first").unwrap();
        exchange.set_secret_header("X-API-Key", b"secret").unwrap();
        exchange.set_secret_query_arg("key", "s&t");
        assert_eq!(exchange.request.headers.get("x-api-key"), None);
        assert_eq!(exchange.query(), Some("a=1"));
        let mut out = Vec::new();
        write_secret_query(&mut out, &exchange);
        write_secret_headers(&mut out, &exchange);
        assert_eq!(out, b"&key=s%26tX-API-Key: secret\r\n");
    }

    #[test]
    fn what_frames_the_request_is_no_secret() {
        let mut exchange = Gateway::new(&[]).exchange("GET /");
        for name in ["Host", "content-length", "Transfer-Encoding", "Connection", "a b"] {
            assert!(exchange.set_secret_header(name, b"1").is_err(), "{name}");
        }
        assert!(exchange.set_secret_header("X-A", b"1\r\nX-B: 2").is_err());
        let mut out = Vec::new();
        exchange.set_secret_query_arg("key", "1");
        write_secret_query(&mut out, &exchange);
        assert_eq!(out, b"?key=1");
    }
}

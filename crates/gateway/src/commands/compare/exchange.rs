//! Sends a request to both gateways.
use super::recorded::Request;
use bytes::Bytes;
use http::header::{HOST, HeaderMap};
use http::{StatusCode, Uri};
use std::fmt;
use std::time::Duration;
use weir_plugin::HttpClient;

/// A gateway under comparison.
pub(super) struct Gateway {
    scheme: String,
    authority: String,
    /// What stands before each path; without a slash at its end.
    path: String,
}

/// What a gateway answered.
#[derive(Debug, Clone)]
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// What both answered to one request.
#[derive(Debug)]
pub(super) struct Responses {
    pub(super) a: Response,
    pub(super) b: Response,
    /// What `a` answered when it was asked again.
    pub(super) again: Option<Response>,
}

/// Why there is nothing to compare.
#[derive(Debug)]
pub(super) enum Failure {
    /// The request cannot be sent.
    Invalid(String),
    /// A gateway did not answer.
    NoResponse { gateway: &'static str, why: String },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(why) => write!(f, "the request cannot be sent: {why}"),
            Self::NoResponse { gateway, why } => write!(f, "{gateway} did not answer: {why}"),
        }
    }
}

/// Sends requests to both gateways.
pub(super) struct Sender {
    pub(super) a: Gateway,
    pub(super) b: Gateway,
    pub(super) timeout: Duration,
    /// Whether `a` is asked twice, where that is safe.
    pub(super) twice: bool,
}

impl Sender {
    /// Sends the request to `a`, to `b`, and to `a` again.
    pub(super) async fn send(&self, client: &HttpClient, request: &Request) -> Result<Responses, Failure> {
        let a = self.a.send(client, request, ("a", self.timeout)).await?;
        let b = self.b.send(client, request, ("b", self.timeout)).await?;
        let again = match self.twice && request.is_safe() {
            true => Some(self.a.send(client, request, ("a", self.timeout)).await?),
            false => None,
        };
        Ok(Responses { a, b, again })
    }
}

impl Gateway {
    /// The gateway at a base URL. `flag` names it in errors.
    pub(super) fn new(flag: &str, url: &str) -> Result<Self, String> {
        let wrong = || format!("{flag}: {url}: write it as http://host:port or https://host:port");
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong());
        };
        if uri.query().is_some() {
            return Err(wrong());
        }
        let port = authority.as_str().rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
        if let Some((_, port)) = port.filter(|(_, port)| !port.is_empty() && port.parse::<u16>().is_err()) {
            return Err(format!("{flag}: {url}: the port {port} is out of range: write one up to 65535"));
        }
        let path = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { scheme: scheme.to_owned(), authority: authority.to_string(), path })
    }

    async fn send(
        &self,
        client: &HttpClient,
        request: &Request,
        (gateway, timeout): (&'static str, Duration),
    ) -> Result<Response, Failure> {
        let request = self.request(request).map_err(|error| Failure::Invalid(error.to_string()))?;
        let response = client.send(request, timeout).await;
        let response = response.map_err(|error| Failure::NoResponse { gateway, why: error.to_string() })?;
        let (head, body) = response.into_parts();
        Ok(Response { status: head.status, headers: head.headers, body })
    }

    fn request(&self, request: &Request) -> Result<http::Request<Bytes>, http::Error> {
        let url = format!("{}://{}{}{}", self.scheme, self.authority, self.path, request.target);
        let mut builder = http::Request::builder().method(request.method.as_str()).uri(url);
        if let Some(host) = &request.host {
            builder = builder.header(HOST, host);
        }
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        builder.body(Bytes::from(request.body.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::Gateway;

    #[test]
    fn a_base_url_may_have_a_path_and_no_query() {
        let gateway = Gateway::new("--a", "http://kong:8000/eu/").expect("a base URL");
        assert_eq!((gateway.authority.as_str(), gateway.path.as_str()), ("kong:8000", "/eu"));
        for wrong in ["kong:8000", "ftp://kong", "http://kong/?a=b", ""] {
            assert!(Gateway::new("--a", wrong).is_err_and(|error| error.starts_with("--a: ")), "{wrong}");
        }
    }
}

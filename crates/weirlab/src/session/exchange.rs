//! Single HTTP exchanges, for parity checks and periodic actions.
use crate::load::{self, Expect, Pace, Plan, Protocol, RequestTemplate, Requests, WarmUp};
use std::net::SocketAddr;
use std::time::Duration;
use ureq::Agent;
use ureq::http::Request;
use ureq::tls::{TlsConfig, TlsProvider};

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
    pub(crate) tls: bool,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(String, String)],
    pub(crate) body: &'a str,
}

impl Ask<'_> {
    /// What is not HTTP/1.1 is spoken by the load generator itself.
    fn by_the_generator(&self) -> Result<Answer, String> {
        let template = RequestTemplate {
            weight: 1,
            method: self.method.to_owned(),
            path: self.path.to_owned(),
            headers: self.headers.to_vec(),
            body: self.body.to_owned(),
            expect: Expect::default(),
        };
        let plan = Plan {
            addresses: vec![self.address],
            host: self.address.to_string(),
            protocol: self.protocol,
            tls: self.tls,
            connections: 1,
            threads: 1,
            cpus: Vec::new(),
            keep_alive: true,
            pace: Pace::Closed,
            warm_up: WarmUp { at_least: Duration::ZERO, at_most: Duration::ZERO },
            duration: Duration::ZERO,
            timeout: PATIENCE,
            requests: Requests { templates: vec![template], variables: Vec::new() },
            seed: 1,
        };
        let got = load::ask(&plan).map_err(|error| format!("{} {}: {error}", self.method, self.path))?;
        let load::Got { status, headers, body, grpc_status } = got;
        Ok(Answer { status, headers, body, grpc_status })
    }
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
    /// Of a call of gRPC.
    pub(crate) grpc_status: Option<String>,
}

/// Makes exchanges, each over a connection of its own.
pub(crate) struct Client(Agent);

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Answers above this are not what any scenario asks for.
const LONGEST_BODY: u64 = 64 << 20;

impl Client {
    pub(crate) fn new() -> Client {
        // A provider that was installed before serves as well.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let tls = TlsConfig::builder().provider(TlsProvider::Rustls).disable_verification(true).build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_idle_connections(0)
            .timeout_global(Some(PATIENCE))
            .proxy(None)
            .build();
        Client(agent.into())
    }

    /// What an address answers in JSON.
    pub(crate) fn json(&self, address: SocketAddr, path: &str) -> Result<serde_json::Value, String> {
        let (method, headers, body) = ("GET", &[], "");
        let ask = Ask { address, protocol: Protocol::Http1, tls: false, method, path, headers, body };
        let answer = self.ask(&ask)?;
        serde_json::from_slice(&answer.body)
            .map_err(|error| format!("GET {path}: status {}: {error}", answer.status))
    }

    pub(crate) fn ask(&self, ask: &Ask<'_>) -> Result<Answer, String> {
        if ask.protocol != Protocol::Http1 {
            return ask.by_the_generator();
        }
        let scheme = if ask.tls { "https" } else { "http" };
        let url = format!("{scheme}://{}{}", ask.address, ask.path);
        let mut request = Request::builder().method(ask.method).uri(&url);
        for (name, value) in ask.headers {
            request = request.header(name, value);
        }
        let request = request.body(ask.body).map_err(|error| format!("{} {url}: {error}", ask.method))?;
        let mut response = self.0.run(request).map_err(|error| format!("{} {url}: {error}", ask.method))?;
        let headers = response.headers().keys().map(|name| name.as_str().to_owned()).collect();
        let body = response
            .body_mut()
            .with_config()
            .limit(LONGEST_BODY)
            .read_to_vec()
            .map_err(|error| format!("{} {url}: the body: {error}", ask.method))?;
        Ok(Answer { status: response.status().as_u16(), headers, body, grpc_status: None })
    }
}

//! Single HTTP exchanges, for parity checks and periodic actions.
use crate::load::{self, Expect, Pace, Plan, Protocol, RequestTemplate, Requests, WarmUp};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;
use ureq::Agent;
use ureq::http::Request;
use ureq::tls::{TlsConfig, TlsProvider};

/// One request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientRequest {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
    pub(crate) tls: bool,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl ClientRequest {
    /// A plain GET of HTTP/1.1.
    pub(crate) fn get(address: SocketAddr, path: &str) -> ClientRequest {
        ClientRequest {
            address,
            protocol: Protocol::Http1,
            tls: false,
            method: "GET".to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: String::new(),
        }
    }

    /// Sends the request by the load generator, which speaks more protocols than HTTP/1.1.
    fn send_by_generator(&self) -> Result<ClientResponse, String> {
        let template = RequestTemplate {
            weight: 1,
            method: self.method.clone(),
            path: self.path.clone(),
            headers: self.headers.clone(),
            body: self.body.clone(),
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
            first_byte: false,
            pace: Pace::Closed,
            warm_up: WarmUp { at_least: Duration::ZERO, at_most: Duration::ZERO },
            duration: Duration::ZERO,
            timeout: RESPONSE_TIMEOUT,
            requests: Requests { templates: vec![template], variables: Vec::new() },
            seed: 1,
            live: None,
        };
        let got = load::send_one(&plan).map_err(|error| format!("{} {}: {error}", self.method, self.path))?;
        let load::Response { status, headers, body, grpc_status } = got;
        Ok(ClientResponse { status, headers, body, grpc_status })
    }
}

/// The response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientResponse {
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
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Answers above this are not what any scenario asks for.
const MAX_BODY_LEN: u64 = 64 << 20;

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
            .timeout_global(Some(RESPONSE_TIMEOUT))
            .proxy(None)
            .build();
        Client(agent.into())
    }

    pub(crate) fn send(&self, request: &ClientRequest) -> Result<ClientResponse, String> {
        if request.protocol != Protocol::Http1 {
            return request.send_by_generator();
        }
        let scheme = if request.tls { "https" } else { "http" };
        let url = format!("{scheme}://{}{}", request.address, request.path);
        let method = request.method.as_str();
        let mut builder = Request::builder().method(method).uri(&url);
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        let sent = builder.body(request.body.as_str()).map_err(|error| format!("{method} {url}: {error}"))?;
        let mut response = self.0.run(sent).map_err(|error| format!("{method} {url}: {error}"))?;
        let headers = response.headers().keys().map(|name| name.as_str().to_owned()).collect();
        let body = response
            .body_mut()
            .with_config()
            .limit(MAX_BODY_LEN)
            .read_to_vec()
            .map_err(|error| format!("{method} {url}: the body: {error}"))?;
        Ok(ClientResponse { status: response.status().as_u16(), headers, body, grpc_status: None })
    }
}

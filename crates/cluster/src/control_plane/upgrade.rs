//! The way of a connection up to its WebSocket: TLS, the certificate, and the HTTP request.
use super::ControlPlane;
use super::v2::Greeting;
use crate::admission::Admission;
use crate::tls::{Peer, PeerError};
use crate::websocket::{self, SUBPROTOCOL};
use crate::wire::v1::Query;
use crate::wire::v2;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::handshake::server::{Callback, ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::header::{RETRY_AFTER, SEC_WEBSOCKET_PROTOCOL};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async_with_config};
use uuid::Uuid;

/// How long a data plane may take for its TLS handshake, and again for its request.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// The path of Kong's first protocol.
const V1: &str = "/v1/outlet";

/// The path of Kong's second protocol, and of Weir's, which is chosen as a subprotocol.
const V2: &str = "/v2/outlet";

/// The connection of a data plane.
pub(super) type Stream = WebSocketStream<TlsStream<TcpStream>>;

/// A data plane that has opened a WebSocket.
pub(super) struct Upgraded {
    pub(super) stream: Stream,
    pub(super) arrival: Arrival,
    pub(super) protocol: Protocol,
}

/// Who has come, and from where.
pub(super) struct Arrival {
    pub(super) visitor: Visitor,
    pub(super) peer: Peer,
    pub(super) address: SocketAddr,
}

/// What a data plane says of itself: in its request, or by Kong's second protocol in its first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Visitor {
    pub(super) id: Uuid,
    pub(super) hostname: String,
    pub(super) version: String,
}

/// What a data plane and the control plane say after the upgrade.
pub(super) enum Protocol {
    /// Weir's own.
    Weir,
    /// Kong's first.
    V1,
    /// Kong's second, in which the data plane has said hello.
    V2(Box<Greeting>),
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Weir(Visitor),
    V1(Visitor),
    V2,
}

/// Why a connection ends before it is a WebSocket.
#[derive(Debug)]
pub(super) enum UpgradeError {
    Tls(std::io::Error),
    Peer(PeerError),
    Http(Error),
    Hello(String),
    Timeout,
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpgradeError::Tls(error) => write!(f, "TLS: {error}"),
            UpgradeError::Peer(error) => error.fmt(f),
            UpgradeError::Http(Error::Http(response)) => {
                let reason = response.body().as_deref().unwrap_or_default();
                write!(
                    f,
                    "its request was answered {}: {}",
                    response.status(),
                    String::from_utf8_lossy(reason)
                )
            }
            UpgradeError::Http(error) => write!(f, "it opens no WebSocket: {error}"),
            UpgradeError::Hello(reason) => f.write_str(reason),
            UpgradeError::Timeout => f.write_str("it took too long to open a WebSocket"),
        }
    }
}

impl ControlPlane {
    /// Takes a connection up to its WebSocket. A peer that is refused gets the reason in a response.
    pub(super) async fn upgrade(
        &self,
        tcp: TcpStream,
        address: SocketAddr,
    ) -> Result<Upgraded, UpgradeError> {
        let accepted = TlsAcceptor::from(self.tls.config.clone()).accept(tcp);
        let tls = in_time(accepted).await?.map_err(UpgradeError::Tls)?;
        let chain = tls.get_ref().1.peer_certificates().map(<[_]>::to_vec);
        let admitted = self.tls.admit(chain.as_deref()).await;
        let mut asked = None;
        let refusal = admitted.as_ref().err().map(ToString::to_string);
        let answer =
            Answer { refusal, admission: &self.admission, offers_rpc: self.options.rpc, asked: &mut asked };
        let config = websocket::config(self.options.max_payload);
        let stream = in_time(Box::pin(accept_hdr_async_with_config(tls, answer, Some(config)))).await?;
        let peer = admitted.map_err(UpgradeError::Peer)?;
        let mut stream = stream.map_err(UpgradeError::Http)?;
        let (visitor, protocol) = match asked.ok_or(UpgradeError::Timeout)? {
            Asked::Weir(visitor) => (visitor, Protocol::Weir),
            Asked::V1(visitor) => (visitor, Protocol::V1),
            Asked::V2 => {
                let greeting = Greeting::read(&mut stream).await.map_err(UpgradeError::Hello)?;
                (greeting.visitor(), Protocol::V2(Box::new(greeting)))
            }
        };
        Ok(Upgraded { stream, arrival: Arrival { visitor, peer, address }, protocol })
    }
}

async fn in_time<T>(step: impl Future<Output = T>) -> Result<T, UpgradeError> {
    tokio::time::timeout(STEP_TIMEOUT, step).await.map_err(|_| UpgradeError::Timeout)
}

/// Answers the request of a data plane.
struct Answer<'v> {
    /// Why its certificate is refused.
    refusal: Option<String>,
    /// Whether it has to come back later.
    admission: &'v Mutex<Admission>,
    /// Whether Kong's second protocol is spoken.
    offers_rpc: bool,
    /// What it asks for.
    asked: &'v mut Option<Asked>,
}

impl Callback for Answer<'_> {
    fn on_request(self, request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
        if let Some(reason) = self.refusal {
            return Err(refuse(StatusCode::FORBIDDEN, &reason));
        }
        let asked = asked(request, self.offers_rpc).map_err(|(status, reason)| refuse(status, reason))?;
        let mut admission = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
        admission.admit(Instant::now()).map_err(later)?;
        let chosen = match asked {
            Asked::Weir(_) => Some(SUBPROTOCOL),
            Asked::V1(_) => None,
            Asked::V2 => Some(v2::PROTOCOL),
        };
        if let Some(chosen) = chosen {
            response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(chosen));
        }
        *self.asked = Some(asked);
        Ok(response)
    }
}

fn refuse(status: StatusCode, reason: &str) -> ErrorResponse {
    let mut response =
        ErrorResponse::new(Some(format!("{{\"message\":{}}}", serde_json::Value::from(reason))));
    *response.status_mut() = status;
    response
}

/// Asks a data plane to come back after this time.
fn later(after: Duration) -> ErrorResponse {
    let mut response = refuse(StatusCode::SERVICE_UNAVAILABLE, "too many data planes connect at once");
    let seconds = after.as_secs_f64().ceil() as u64;
    response.headers_mut().insert(RETRY_AFTER, seconds.into());
    response
}

/// What a request asks for, or the response to one that cannot be served. Weir's own protocol is preferred.
fn asked(request: &Request, offers_rpc: bool) -> Result<Asked, (StatusCode, &'static str)> {
    let offered = request.headers().get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let offered = offered.filter_map(|value| value.to_str().ok()).flat_map(|names| names.split(','));
    let offered: Vec<_> = offered.map(str::trim).collect();
    match request.uri().path() {
        V1 => visitor(request).map(Asked::V1),
        V2 if offered.contains(&SUBPROTOCOL) => visitor(request).map(Asked::Weir),
        V2 if !offered.contains(&v2::PROTOCOL) => {
            Err((StatusCode::BAD_REQUEST, "Sec-WebSocket-Protocol must offer weir.sync.v1 or kong.meta.v1"))
        }
        V2 if offers_rpc => Ok(Asked::V2),
        V2 => Err((
            StatusCode::NOT_FOUND,
            "cluster_rpc is off at the control plane: switch it on, or use /v1/outlet",
        )),
        _ => Err((StatusCode::NOT_FOUND, "data planes connect to /v1/outlet or /v2/outlet")),
    }
}

/// What a data plane says of itself in the query.
fn visitor(request: &Request) -> Result<Visitor, (StatusCode, &'static str)> {
    let bad = |reason| (StatusCode::BAD_REQUEST, reason);
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let query = query.ok_or_else(|| bad("the query must have node_id and node_version"))?;
    Ok(Visitor {
        id: query.node_id.parse().map_err(|_| bad("node_id: it must be a UUID"))?,
        hostname: query.node_hostname.unwrap_or_default(),
        version: query.node_version,
    })
}

/// Names a peer in the log.
pub(super) fn named(Arrival { visitor, address, .. }: &Arrival) -> String {
    format!("{} ({}, {})", visitor.hostname, visitor.id, address.ip())
}

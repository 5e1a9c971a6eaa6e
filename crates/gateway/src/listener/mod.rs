//! The HTTP server of the node's own APIs: the Admin APIs of Kong and of APISIX, and the status API. Descriptors,
//! memory and time are bounded, however many clients connect and however slowly they send or read.
mod bind;
mod connection_limit;
mod deadline;
mod http2;
mod lingering;
mod progress;
mod proxy_protocol;
mod request_body;
mod requests_in_flight;
mod response;
mod send_timeout;
mod socket;

pub(crate) use bind::bind;
pub(crate) use proxy_protocol::TrustedPeers;
pub(crate) use request_body::BodyError;
pub(crate) use requests_in_flight::RequestsInFlight;
pub(crate) use response::{json_response, message};

use crate::settings::Settings;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use axum::middleware::map_request;
use axum::response::{IntoResponse, Response};
use connection_limit::{ConnectionLimit, ConnectionPermit};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{HttpService, Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use lingering::LingeringStream;
use progress::Progress;
use request_body::TimedBody;
use send_timeout::SendTimeout;
use socket::AsyncListener;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use weir_net::tls::HTTP2;
use weir_proxy::listen::{Bound, Socket, UnixFile};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The longest head of a request, in bytes.
const MAX_HEAD_LEN: usize = 64 << 10;

/// How long a connection may take to send the request that is on its way when another process takes the listener over.
const REPLACED_IDLE_GRACE: Duration = Duration::from_secs(1);

/// The first byte of a TLS handshake; no HTTP request begins with it.
const HANDSHAKE: u8 = 22;

/// A client that has sent or received this many bytes gets one more second for the rest.
const BYTES_PER_SECOND: usize = 64 << 10;

/// The client of a request.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// The address of its connection.
    pub(crate) address: SocketAddr,
    /// The subject of its verified certificate.
    pub(crate) certificate: Option<String>,
}

/// How long one client may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientTimeouts {
    /// For a handshake, and for the head of a request: the first since the connection began, further ones since their
    /// first byte.
    head: Duration,
    /// From the end of a response to the first byte of the next request; 0 closes the connection after each response.
    idle: Duration,
    body: Duration,
    send: Duration,
}

impl ClientTimeouts {
    pub(crate) fn of(settings: &Settings) -> ClientTimeouts {
        ClientTimeouts {
            head: settings.client_header_timeout,
            idle: settings.keepalive_timeout,
            body: settings.client_body_timeout,
            send: settings.send_timeout,
        }
    }

    /// The timeouts of the Admin APIs.
    pub(crate) fn of_admin(settings: &Settings) -> ClientTimeouts {
        let timeouts = ClientTimeouts::of(settings);
        ClientTimeouts {
            head: settings.admin_client_header_timeout.unwrap_or(timeouts.head),
            idle: settings.admin_keepalive_timeout.unwrap_or(timeouts.idle),
            ..timeouts
        }
    }
}

/// A socket, and the API that is served on it.
pub(crate) struct ControlListener {
    name: &'static str,
    socket: AsyncListener,
    /// The file of a Unix socket; removed when this is dropped.
    file: Option<UnixFile>,
    service: Arc<ApiService>,
    limit: Arc<ConnectionLimit>,
}

/// What a listener has served since the start.
#[derive(Debug, Default)]
pub(crate) struct ServedCounts {
    pub(crate) connections: AtomicU64,
    pub(crate) open: AtomicU64,
    pub(crate) requests: AtomicU64,
}

/// How a listener serves.
#[derive(Clone)]
pub(crate) struct Serving {
    /// The setting that it comes from.
    pub(crate) name: &'static str,
    /// The configuration for TLS, if clients speak it.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Whether clients must present a certificate over TLS.
    pub(crate) requires_certificate: bool,
    /// Who may name clients by the PROXY protocol, if connections begin with a header of it.
    pub(crate) proxy_protocol: Option<Arc<TrustedPeers>>,
    pub(crate) timeouts: ClientTimeouts,
    pub(crate) counts: Arc<ServedCounts>,
    pub(crate) in_flight: Arc<RequestsInFlight>,
}

struct ApiService {
    tls: Option<TlsAcceptor>,
    requires_certificate: bool,
    proxy_protocol: Option<Arc<TrustedPeers>>,
    router: Router,
    timeouts: ClientTimeouts,
    counts: Arc<ServedCounts>,
}

impl ControlListener {
    /// Serves on a socket.
    pub(crate) fn new(
        Serving { name, tls, requires_certificate, proxy_protocol, timeouts, counts, in_flight }: Serving,
        Bound { listener, file }: Bound,
        router: Router,
    ) -> io::Result<ControlListener> {
        let socket = AsyncListener::new(listener)?;
        let counted = counts.clone();
        let router = router.layer(map_request(move |request: Request<Body>| {
            counted.requests.fetch_add(1, Ordering::Relaxed);
            std::future::ready(request)
        }));
        let tls = tls.map(TlsAcceptor::from);
        let service = ApiService { tls, requires_certificate, proxy_protocol, router, timeouts, counts };
        let limit = Arc::new(ConnectionLimit::new(crate::options::control_connections(), in_flight));
        Ok(ControlListener { name, socket, file, service: Arc::new(service), limit })
    }

    /// Takes the file of a Unix socket, which is removed when it is dropped.
    pub(crate) fn take_file(&mut self) -> Option<UnixFile> {
        self.file.take()
    }

    /// Serves until another process of the node does.
    pub(crate) async fn serve(self, mut replaced: watch::Receiver<bool>) {
        let limit = self.limit.clone();
        tokio::select! {
            () = self.accept() => {}
            Ok(_) = replaced.wait_for(|replaced| *replaced) => {}
        }
        tokio::time::sleep(REPLACED_IDLE_GRACE).await;
        limit.close_idle();
    }

    async fn accept(self) {
        let mut warned = false;
        loop {
            let Some(permit) = self.permit(&mut warned).await else { return };
            match self.socket.accept().await {
                Ok((stream, address)) => {
                    let (service, permit) = (self.service.clone(), Arc::new(self.limit.take(permit)));
                    tokio::spawn(async move {
                        tokio::select! {
                            () = service.connection(stream, address, &permit) => {}
                            () = permit.evicted() => {}
                        }
                    });
                }
                // Out of descriptors: wait, because a busy loop would not free any.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Waits until one more connection is allowed; logs once that the limit is reached.
    async fn permit(&self, warned: &mut bool) -> Option<OwnedSemaphorePermit> {
        let full = |is_full| {
            if is_full && !*warned {
                let (name, connections) = (self.name, self.limit.size);
                tracing::warn!(
                    "{name}: {connections} connections are open, the maximum; the one idle longest is closed, or \
                     further ones wait until one ends"
                );
            }
            *warned = is_full;
        };
        self.limit.acquire(full).await
    }
}

impl ApiService {
    async fn connection(&self, mut stream: Socket, peer: SocketAddr, permit: &Arc<ConnectionPermit>) {
        let _open = OpenConnection::count(&self.counts);
        let mut address = peer;
        if let Some(trusted) = &self.proxy_protocol {
            let Ok(named) = trusted.client(&mut stream, peer, self.timeouts.head).await else { return };
            address = named;
        }
        let client = Client { address, certificate: None };
        let Some(acceptor) = &self.tls else {
            return self.http(stream, self.router.clone(), client, permit).await;
        };
        match timeout(self.timeouts.head, handshake(acceptor, stream)).await {
            Ok(Ok(Accepted::Tls(stream, certificate))) => {
                let is_stranger = self.requires_certificate && certificate.is_none();
                let client = Client { address, certificate };
                let limits = (self.timeouts, permit.clone());
                match stream.get_ref().1.alpn_protocol() == Some(HTTP2) {
                    true if is_stranger => {
                        let refused = http2::serve(*stream, client, certificate_required(), limits);
                        // Strangers hold no connection for longer than a head may take.
                        let _ = timeout(self.timeouts.head, refused).await;
                    }
                    true => http2::serve(*stream, client, self.router.clone(), limits).await,
                    false if is_stranger => {
                        let why = || (StatusCode::BAD_REQUEST, CERTIFICATE_REQUIRED).into_response();
                        self.refuse(*stream, permit, why).await;
                    }
                    false => self.http(*stream, self.router.clone(), client, permit).await,
                }
            }
            Ok(Ok(Accepted::Plain(stream))) => {
                let text = "The plain HTTP request was sent to HTTPS port";
                self.refuse(stream, permit, || message(StatusCode::BAD_REQUEST, text)).await;
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }

    async fn http(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        router: Router,
        client: Client,
        permit: &Arc<ConnectionPermit>,
    ) {
        let progress = Progress::new(permit.clone(), self.timeouts);
        let router = TowerToHyperService::new(router);
        let service = service_fn(|request: Request<Incoming>| {
            progress.head_complete();
            let (head, body) = request.into_parts();
            let (body, unread) = TimedBody::new(body, self.timeouts.body);
            let mut request = Request::from_parts(head, Body::new(body));
            request.extensions_mut().insert(ConnectInfo(client.clone()));
            let (responding, progress) = (router.call(request), progress.clone());
            async move {
                let response = responding.await?;
                let keep_alive = unread.discard(self.timeouts.body).await;
                Ok::<_, Infallible>(progress.response(response, keep_alive))
            }
        });
        self.serve(stream, &progress, service).await;
    }

    /// Answers the first request without reading its body, as nginx answers plain HTTP on a TLS port, and closes. Until then the
    /// connection counts as one without a request, which makes room for others.
    async fn refuse(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        permit: &Arc<ConnectionPermit>,
        answer: impl Fn() -> Response,
    ) {
        let progress = Progress::new(permit.clone(), self.timeouts);
        let service = service_fn(async |_: Request<Incoming>| {
            Ok::<_, Infallible>(progress.clone().response(answer(), false))
        });
        self.serve(stream, &progress, service).await;
    }

    /// Serves until either side closes; a client that is too slow is disconnected without a response.
    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        progress: &Arc<Progress>,
        service: impl HttpService<Incoming, ResBody = Body, Error = Infallible>,
    ) {
        let stream = SendTimeout::new(stream, self.timeouts.send);
        let stream = TokioIo::new(LingeringStream::new(stream, progress.clone(), self.timeouts.body));
        let mut server = http1::Builder::new();
        // Late heads are detected by `Progress`, which knows idle connections.
        server.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(MAX_HEAD_LEN);
        server.keep_alive(!self.timeouts.idle.is_zero());
        tokio::select! {
            _ = server.serve_connection(stream, service) => {}
            () = progress.late() => {}
        }
    }
}

/// Answers a client without a certificate as nginx does.
fn certificate_required() -> Router {
    Router::new().fallback(async || (StatusCode::BAD_REQUEST, CERTIFICATE_REQUIRED))
}

const CERTIFICATE_REQUIRED: &str = "No required SSL certificate was sent\n";

/// An open connection.
struct OpenConnection<'c>(&'c ServedCounts);

impl<'c> OpenConnection<'c> {
    fn count(counts: &'c ServedCounts) -> Self {
        counts.connections.fetch_add(1, Ordering::Relaxed);
        counts.open.fetch_add(1, Ordering::Relaxed);
        Self(counts)
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The protocol that a client uses on a TLS port.
enum Accepted {
    /// TLS, with the subject of the client's certificate.
    Tls(Box<tokio_rustls::server::TlsStream<Socket>>, Option<String>),
    /// HTTP.
    Plain(Socket),
}

async fn handshake(acceptor: &TlsAcceptor, stream: Socket) -> io::Result<Accepted> {
    let mut first = [HANDSHAKE];
    stream.peek_beyond(0, &mut first).await?;
    if first[0] != HANDSHAKE {
        return Ok(Accepted::Plain(stream));
    }
    let stream = acceptor.accept(stream).await?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| {
        let (_, certificate) = X509Certificate::from_der(chain.first()?).ok()?;
        Some(certificate.subject().to_string())
    });
    Ok(Accepted::Tls(Box::new(stream), certificate))
}

#[cfg(test)]
mod tests {
    use super::ClientTimeouts;
    use crate::settings::{Sources, load};
    use std::time::Duration;

    #[test]
    fn clients_have_as_long_as_those_of_kong() {
        let settings = |environment: &[(&str, &str)]| {
            let text = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
            let environment = environment.iter().map(text).collect();
            load(Sources { environment, ..Sources::default() }).unwrap().settings
        };
        let [short, second] = [9, 1].map(Duration::from_secs);
        let [head, idle] = [60, 75].map(Duration::from_secs);
        let defaults = settings(&[]);
        let timeouts = ClientTimeouts { head, idle, body: head, send: head };
        assert_eq!(
            (ClientTimeouts::of(&defaults), ClientTimeouts::of_admin(&defaults)),
            (timeouts, timeouts)
        );
        let given = settings(&[
            ("KONG_NGINX_HTTP_KEEPALIVE_TIMEOUT", "9s"),
            ("KONG_NGINX_ADMIN_CLIENT_HEADER_TIMEOUT", "1s"),
        ]);
        assert_eq!(ClientTimeouts::of(&given), ClientTimeouts { idle: short, ..timeouts });
        assert_eq!(
            ClientTimeouts::of_admin(&given),
            ClientTimeouts { head: second, idle: short, ..timeouts }
        );
    }
}

//! What the node's own APIs are served by: those of Kong and APISIX, and the status listener. However many connect and
//! however slowly they send or read, they take so many descriptors, so much memory and so long, and no more.
mod body;
mod door;
mod open;
mod room;
mod sending;

pub(crate) use body::Unread;
pub(crate) use open::{admin, apisix, bind, openable, status};

use crate::settings::Settings;
use crate::status::message;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, StatusCode};
use body::Timely;
use door::Door;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use room::{Place, Room};
use sending::Sending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use weir_proxy::listen::{Bound, Socket, UnixFile};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The longest head of a request.
const LONGEST_HEAD: usize = 64 << 10;

/// The first byte of a handshake; no HTTP request begins with it.
const HANDSHAKE: u8 = 22;

/// Whoever has sent or taken so many bytes gets a second more for the rest.
const BYTES_PER_SECOND: usize = 64 << 10;

/// Nobody has longer for the head of a request, nor is idle for longer: there is little room.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// Where the connection comes from.
    pub(crate) address: SocketAddr,
    /// The subject of the certificate that was shown and is trusted.
    pub(crate) certificate: Option<String>,
}

/// What one client may take.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// For a handshake, and for the head of a request from the end of the one before.
    head: Duration,
    body: Duration,
    sending: Duration,
    keep_alive: bool,
}

impl Limits {
    fn of(settings: &Settings) -> Limits {
        let idle = settings.keepalive_timeout;
        let keep_alive = !idle.is_zero();
        let head = settings.client_header_timeout.min(LONGEST_SILENCE);
        Limits {
            head: if keep_alive { head.min(idle) } else { head },
            body: settings.client_body_timeout,
            sending: settings.send_timeout,
            keep_alive,
        }
    }
}

/// A socket, and what is served there.
pub(crate) struct ControlListener {
    name: &'static str,
    door: Door,
    /// Of a Unix socket; removed with this.
    file: Option<UnixFile>,
    served: Arc<Served>,
    room: Arc<Room>,
}

struct Served {
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: Limits,
}

impl ControlListener {
    /// Serves on a socket, which the setting `name` is about; with a configuration for TLS, over that.
    pub(crate) fn new(
        name: &'static str,
        Bound { listener, file }: Bound,
        tls: Option<Arc<ServerConfig>>,
        router: Router,
        settings: &Settings,
    ) -> io::Result<ControlListener> {
        let door = Door::new(listener)?;
        let served = Served { tls: tls.map(TlsAcceptor::from), router, limits: Limits::of(settings) };
        let room = Arc::new(Room::new(crate::options::control_connections()));
        Ok(ControlListener { name, door, file, served: Arc::new(served), room })
    }

    /// The file of a Unix socket, to be removed by whoever takes it.
    pub(crate) fn take_file(&mut self) -> Option<UnixFile> {
        self.file.take()
    }

    /// Serves for as long as the node runs.
    pub(crate) async fn serve(self) {
        let mut told = false;
        loop {
            let Some(permit) = self.permit(&mut told).await else { return };
            match self.door.accept().await {
                Ok((stream, address)) => {
                    let (served, place) = (self.served.clone(), Arc::new(self.room.take(permit)));
                    tokio::spawn(async move {
                        tokio::select! {
                            () = served.connection(stream, address, &place) => {}
                            () = place.closed() => {}
                        }
                    });
                }
                // Out of descriptors: they come back, and looping hot would not bring them sooner.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Waits until there is room for one more connection; says once that there is none.
    async fn permit(&self, told: &mut bool) -> Option<OwnedSemaphorePermit> {
        let full = |is_full| {
            if is_full && !*told {
                let (name, connections) = (self.name, self.room.size);
                tracing::warn!(
                    "{name}: {connections} connections are open; the oldest without a request is closed, or further ones \
                     wait until one ends"
                );
            }
            *told = is_full;
        };
        self.room.place(full).await
    }
}

impl Served {
    async fn connection(&self, stream: Socket, address: SocketAddr, place: &Arc<Place>) {
        let client = Client { address, certificate: None };
        let Some(acceptor) = &self.tls else { return self.http(stream, client, place).await };
        match timeout(self.limits.head, handshake(acceptor, stream)).await {
            Ok(Ok(Accepted::Tls(stream, certificate))) => {
                self.http(*stream, Client { address, certificate }, place).await;
            }
            Ok(Ok(Accepted::Plain(stream))) => self.refuse(stream).await,
            Ok(Err(_)) | Err(_) => {}
        }
    }

    async fn http(&self, stream: impl AsyncRead + AsyncWrite + Unpin, client: Client, place: &Arc<Place>) {
        let (service, limit) = (TowerToHyperService::new(self.router.clone()), self.limits.body);
        let service = service_fn(|request: Request<Incoming>| {
            place.has_asked();
            let mut request = request.map(|body| Body::new(Timely::new(body, limit)));
            request.extensions_mut().insert(ConnectInfo(client.clone()));
            let answering = service.call(request);
            async move {
                let mut answer = answering.await;
                if let (Ok(answer), true) = (&mut answer, place.is_scarce()) {
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                answer
            }
        });
        let stream = TokioIo::new(Sending::new(stream, self.limits.sending));
        // Whoever breaks a connection off, or is too slow, is told nothing more.
        let _ = self.server().serve_connection(stream, service).await;
    }

    /// Answers whoever speaks plainly where TLS is spoken, as nginx does.
    async fn refuse(&self, stream: Socket) {
        let service = service_fn(async |_: Request<Incoming>| {
            let text = "The plain HTTP request was sent to HTTPS port";
            Ok::<_, io::Error>(message(StatusCode::BAD_REQUEST, text))
        });
        let stream = TokioIo::new(Sending::new(stream, self.limits.sending));
        let _ = self.server().keep_alive(false).serve_connection(stream, service).await;
    }

    fn server(&self) -> http1::Builder {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(self.limits.head).max_buf_size(LONGEST_HEAD);
        builder.keep_alive(self.limits.keep_alive);
        builder
    }
}

/// What a client speaks where TLS is spoken.
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

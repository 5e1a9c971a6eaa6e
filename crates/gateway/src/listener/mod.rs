//! What the node's own APIs are served by: those of Kong and APISIX, and the status listener. However many connect and
//! however slowly they send or read, they take so many descriptors, so much memory and so long, and no more.
mod bind;
mod connection_limit;
mod deadline;
mod lingering;
mod progress;
mod request_body;
mod response;
mod send_timeout;
mod socket;

pub(crate) use bind::bind;
pub(crate) use request_body::Unread;
pub(crate) use response::{json_response, message};

use crate::settings::Settings;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use connection_limit::{Place, Room};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{HttpService, Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use lingering::Watched;
use progress::Progress;
use request_body::Timely;
use send_timeout::Sending;
use socket::Door;
use std::convert::Infallible;
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

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// Where the connection comes from.
    pub(crate) address: SocketAddr,
    /// The subject of the certificate that was shown and is trusted.
    pub(crate) certificate: Option<String>,
}

/// What one client may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// For a handshake, and for the head of a request: the first from the beginning of the connection, further ones from
    /// their first byte.
    head: Duration,
    /// From the end of a response to the first byte of the next request; zero closes the connection instead.
    idle: Duration,
    body: Duration,
    sending: Duration,
}

impl Limits {
    pub(crate) fn of(settings: &Settings) -> Limits {
        Limits {
            head: settings.client_header_timeout,
            idle: settings.keepalive_timeout,
            body: settings.client_body_timeout,
            sending: settings.send_timeout,
        }
    }

    /// Those of the Admin APIs.
    pub(crate) fn of_admin(settings: &Settings) -> Limits {
        let limits = Limits::of(settings);
        Limits {
            head: settings.admin_client_header_timeout.unwrap_or(limits.head),
            idle: settings.admin_keepalive_timeout.unwrap_or(limits.idle),
            ..limits
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
        limits: Limits,
    ) -> io::Result<ControlListener> {
        let door = Door::new(listener)?;
        let served = Served { tls: tls.map(TlsAcceptor::from), router, limits };
        let room = Arc::new(Room::new(crate::data_plane::options::control_connections()));
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
            Ok(Ok(Accepted::Plain(stream))) => self.refuse(stream, place).await,
            Ok(Err(_)) | Err(_) => {}
        }
    }

    async fn http(&self, stream: impl AsyncRead + AsyncWrite + Unpin, client: Client, place: &Arc<Place>) {
        let progress = Progress::new(place.clone(), self.limits);
        let router = TowerToHyperService::new(self.router.clone());
        let service = service_fn(|request: Request<Incoming>| {
            progress.asked();
            let (head, body) = request.into_parts();
            let (body, leftover) = Timely::new(body, self.limits.body);
            let mut request = Request::from_parts(head, Body::new(body));
            request.extensions_mut().insert(ConnectInfo(client.clone()));
            let (answering, progress) = (router.call(request), progress.clone());
            async move {
                let answer = answering.await?;
                let keep_alive = leftover.discard(self.limits.body).await;
                Ok::<_, Infallible>(progress.answer(answer, keep_alive))
            }
        });
        self.serve(stream, &progress, service).await;
    }

    /// Answers whoever speaks plainly where TLS is spoken, as nginx does.
    async fn refuse(&self, stream: Socket, place: &Arc<Place>) {
        let progress = Progress::new(place.clone(), self.limits);
        let service = service_fn(async |_: Request<Incoming>| {
            progress.asked();
            let text = "The plain HTTP request was sent to HTTPS port";
            Ok::<_, Infallible>(progress.clone().answer(message(StatusCode::BAD_REQUEST, text), false))
        });
        self.serve(stream, &progress, service).await;
    }

    /// Serves until either side closes, or the client is too slow: then it is told nothing more.
    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        progress: &Arc<Progress>,
        service: impl HttpService<Incoming, ResBody = Body, Error = Infallible>,
    ) {
        let stream = Sending::new(stream, self.limits.sending);
        let stream = TokioIo::new(Watched::new(stream, progress.clone(), self.limits.body));
        let mut server = http1::Builder::new();
        // Heads that are late are noticed by the progress, which knows them from idle connections.
        server.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(LONGEST_HEAD);
        server.keep_alive(!self.limits.idle.is_zero());
        tokio::select! {
            _ = server.serve_connection(stream, service) => {}
            () = progress.late() => {}
        }
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

#[cfg(test)]
mod tests {
    use super::Limits;
    use crate::settings::{Sources, load};
    use std::time::Duration;

    #[test]
    fn clients_have_as_long_as_those_of_kong() {
        let settings = |environment: &[(&str, &str)]| {
            let text = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
            let environment = environment.iter().map(text).collect();
            load(Sources { flags: Vec::new(), environment, file: None }).unwrap().settings
        };
        let [short, second] = [9, 1].map(Duration::from_secs);
        let [head, idle] = [60, 75].map(Duration::from_secs);
        let defaults = settings(&[]);
        let limits = Limits { head, idle, body: head, sending: head };
        assert_eq!((Limits::of(&defaults), Limits::of_admin(&defaults)), (limits, limits));
        let given = settings(&[
            ("KONG_NGINX_HTTP_KEEPALIVE_TIMEOUT", "9s"),
            ("KONG_NGINX_ADMIN_CLIENT_HEADER_TIMEOUT", "1s"),
        ]);
        assert_eq!(Limits::of(&given), Limits { idle: short, ..limits });
        assert_eq!(Limits::of_admin(&given), Limits { head: second, idle: short, ..limits });
    }
}

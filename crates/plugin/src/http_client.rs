//! An HTTP client for other servers, for hooks that wait and for tasks off the request path.

use crate::http_proxy::{self, HttpProxies};
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower::Service;
use weir_net::dialer::Dialer;

/// The longest response body, unless a client has another limit.
const MAX_BODY_LEN: usize = 1024 * 1024;

/// The default idle timeout of connections.
const IDLE: Duration = Duration::from_secs(60);

/// A client for HTTP/1.1, plaintext and TLS, with a connection pool. Clones share the pool.
#[derive(Clone)]
pub struct HttpClient {
    client: Client<Connector, Full<Bytes>>,
    max_body_len: usize,
}

/// Why there is no response.
#[derive(Debug)]
pub enum HttpError {
    /// It took too long.
    Timeout,
    /// The body is longer than the limit.
    TooLarge {
        /// The limit, in bytes.
        max: usize,
    },
    /// The connection failed.
    Failed(String),
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("the server took too long"),
            Self::TooLarge { max } => write!(f, "the response is longer than {max} bytes"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for HttpError {}

impl HttpClient {
    /// A client that connects with this dialer.
    pub fn new(dialer: Dialer) -> Self {
        Self::keeping(dialer, IDLE)
    }

    /// The same, with this idle timeout of connections.
    pub fn keeping(dialer: Dialer, idle: Duration) -> Self {
        Self::connecting(Connector::new(dialer), idle)
    }

    /// The same, connecting through forward proxies where there are any.
    pub fn through(proxies: impl Into<HttpProxies>, dialer: Dialer, idle: Duration) -> Self {
        Self::connecting(Connector { proxies: Arc::new(proxies.into()), ..Connector::new(dialer) }, idle)
    }

    /// The same, connecting to this host and port whatever host a URL has, for servers that have a certificate for another name.
    pub fn reaching(dialer: Dialer, host: &str, port: u16) -> Self {
        let connector = Connector { at: Some((host.into(), port)), ..Connector::new(dialer) };
        Self::connecting(connector, IDLE)
    }

    fn connecting(connector: Connector, idle: Duration) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(idle);
        Self { client: builder.build(connector), max_body_len: MAX_BODY_LEN }
    }

    /// The same client, with this limit of response bodies, in bytes.
    pub fn with_max_body_len(self, max_body_len: usize) -> Self {
        Self { max_body_len, ..self }
    }

    /// Sends a request to its absolute URL, and reads the whole response. Redirects are not followed.
    pub async fn send(
        &self,
        request: Request<Bytes>,
        timeout: Duration,
    ) -> Result<Response<Bytes>, HttpError> {
        let asked = async {
            let max = self.max_body_len;
            let response = self.client.request(request.map(Full::new)).await;
            let (head, body) = response.map_err(|error| failed(&error))?.into_parts();
            match Limited::new(body, max).collect().await {
                Ok(body) => Ok(Response::from_parts(head, body.to_bytes())),
                Err(error) if error.is::<LengthLimitError>() => Err(HttpError::TooLarge { max }),
                Err(error) => Err(failed(&*error)),
            }
        };
        tokio::time::timeout(timeout, asked).await.unwrap_or(Err(HttpError::Timeout))
    }
}

fn failed(error: &(dyn std::error::Error + 'static)) -> HttpError {
    HttpError::Failed(with_causes(error))
}

/// The error and its cause, which says more.
pub(crate) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The host and the port of a URL, for messages: user and password are secret.
pub fn host_and_port(url: &Uri) -> &str {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

/// Connects to the host of a URL.
#[derive(Clone)]
pub(crate) struct Connector {
    dialer: Dialer,
    proxies: Arc<HttpProxies>,
    /// Where the server is, if not where the URL says.
    at: Option<(Arc<str>, u16)>,
}

impl Connector {
    /// One without a proxy.
    pub(crate) fn new(dialer: Dialer) -> Self {
        Self { dialer, proxies: Arc::default(), at: None }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(connect(self.clone(), uri))
    }
}

async fn connect(Connector { dialer, proxies, at }: Connector, uri: Uri) -> io::Result<TokioIo<Stream>> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
    let is_tls = uri.scheme_str() == Some("https");
    let host = uri.host().ok_or_else(|| invalid("the URL has no host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let proxy = if is_tls { &proxies.https } else { &proxies.http };
    let (to, through) = match proxy {
        Some(proxy) => ((&*proxy.host, proxy.port), true),
        None => (at.as_ref().map_or((host, port), |(host, port)| (&**host, *port)), false),
    };
    let mut tcp = dialer.tcp(to.0, to.1).await?;
    if !is_tls {
        return Ok(TokioIo::new(Stream { io: Box::new(tcp), takes_absolute_urls: through }));
    }
    if through {
        http_proxy::connect(&mut tcp, (host, port)).await?;
    }
    let tls = dialer.tls(host, tcp).await?;
    Ok(TokioIo::new(Stream { io: Box::new(tls), takes_absolute_urls: false }))
}

pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection, plaintext or TLS.
pub(crate) struct Stream {
    io: Box<dyn Duplex>,
    /// It leads to a proxy, which finds the server in each request.
    takes_absolute_urls: bool,
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.takes_absolute_urls)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, into)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

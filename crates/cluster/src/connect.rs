//! How a data plane reaches its control plane: directly, or through a forward proxy, and then TLS.
use crate::tls::ClientTls;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::client::TlsStream;
use weir_net::connect;
use weir_net::tls::HandshakeFault;

/// The longest head of a proxy's response.
const MAX_HEAD_LEN: usize = 8 * 1024;

/// How to fix a port where something else answers.
pub(crate) const FIX_PORT: &str =
    "name the port of the control plane's `cluster_listen`, 8005 by default, in `cluster_control_plane`";

/// A connection to a control plane.
pub(crate) type Connection = TlsStream<Box<dyn ByteStream>>;

/// What TLS runs on.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> ByteStream for S {}

/// A host and its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// A name, or an IP address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let endpoint = text.rsplit_once(':').and_then(|(host, port)| {
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let port = port.parse().ok().filter(|port| *port > 0)?;
            (!host.is_empty()).then(|| Endpoint { host: host.to_owned(), port })
        });
        endpoint.filter(|_| !text.contains("://")).ok_or_else(|| match text.split_once("://") {
            // A URL may hold a password.
            Some(_) => "a URL is not a host with a port: write it without `http://` and path, as \
                        `host.example.com:8005`"
                .to_owned(),
            None => format!("`{text}` is not a host with a port: write it as `host.example.com:8005`"),
        })
    }
}

/// A proxy that tunnels connections by HTTP's CONNECT.
#[derive(Clone, PartialEq, Eq)]
pub struct ForwardProxy {
    /// Whether the proxy itself is reached over TLS.
    pub is_https: bool,
    /// Where it is.
    pub endpoint: Endpoint,
    /// `user:password` as `Proxy-Authorization: Basic` has it.
    credentials: Option<String>,
}

impl fmt::Debug for ForwardProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForwardProxy({})", self.endpoint)
    }
}

impl FromStr for ForwardProxy {
    type Err = String;

    /// Reads a URL. The error repeats nothing of it, because it may hold a password.
    fn from_str(text: &str) -> Result<Self, String> {
        let error = || "it is not a URL such as `http://user:password@host:port`".to_owned();
        let (scheme, rest) = text.split_once("://").ok_or_else(error)?;
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(error()),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((credentials, place)) => (Some(credentials), place),
            None => (None, authority),
        };
        let with_port = match place.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
            Some(_) => place.to_owned(),
            None => format!("{place}:{}", if is_https { 443 } else { 80 }),
        };
        let endpoint = with_port.parse().map_err(|_| error())?;
        Ok(ForwardProxy { is_https, endpoint, credentials: credentials.map(basic) })
    }
}

/// The value of `Proxy-Authorization` for percent-encoded credentials.
fn basic(credentials: &str) -> String {
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let decoded: Vec<u8> =
        percent_decode_str(user).chain(*b":").chain(percent_decode_str(password)).collect();
    format!("Basic {}", STANDARD.encode(decoded))
}

/// Opens connections to control planes.
#[derive(Clone)]
pub struct Connector {
    /// What the connection is secured with.
    pub tls: ClientTls,
    /// The proxy in between, and what it is reached with if it is `https`.
    pub proxy: Option<(ForwardProxy, Arc<ClientConfig>)>,
}

impl Connector {
    /// Connects to a control plane. The error names the step that failed.
    pub(crate) async fn connect(&self, to: &Endpoint) -> io::Result<Connection> {
        let stream: Box<dyn ByteStream> = match &self.proxy {
            None => Box::new(open(to).await?),
            Some((proxy, config)) => {
                let tunnel = tunnel(proxy, config, to).await;
                tunnel.map_err(|error| explained(&format!("proxy_server {}", proxy.endpoint), &error))?
            }
        };
        let tls = connect::tls(stream, self.tls.config.clone(), self.tls.name(&to.host), None).await;
        tls.map_err(|error| io::Error::new(error.kind(), format!("TLS: {}", tls_failure(&error))))
    }
}

/// Why a handshake failed, in words that say what to do.
fn tls_failure(error: &io::Error) -> String {
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match of_tls {
        Some(rustls::Error::InvalidMessage(_)) => format!("this port does not speak TLS; {FIX_PORT}"),
        // Without the words "unexpected error" before it.
        Some(rustls::Error::General(why)) => why.clone(),
        _ if error.kind() == io::ErrorKind::UnexpectedEof => {
            format!("the other side ends the connection; {FIX_PORT}")
        }
        _ => HandshakeFault::of(error).map_or_else(|| error.to_string(), |fault| fault.to_string()),
    }
}

fn explained(step: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{step}: {error}"))
}

async fn open(to: &Endpoint) -> io::Result<tokio::net::TcpStream> {
    let addresses = tokio::net::lookup_host((to.host.as_str(), to.port)).await?;
    let opened = connect::first(addresses, connect::tcp).await;
    opened.unwrap_or_else(|| Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")))
}

/// A tunnel through a proxy.
async fn tunnel(
    proxy: &ForwardProxy,
    config: &Arc<ClientConfig>,
    to: &Endpoint,
) -> io::Result<Box<dyn ByteStream>> {
    let tcp = open(&proxy.endpoint).await?;
    let mut stream: Box<dyn ByteStream> = match proxy.is_https {
        false => Box::new(tcp),
        true => Box::new(connect::tls(tcp, config.clone(), &proxy.endpoint.host, None).await?),
    };
    let authorization = proxy.credentials.as_ref().map(|it| format!("Proxy-Authorization: {it}\r\n"));
    let authorization = authorization.unwrap_or_default();
    let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{authorization}\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let head = read_head(&mut stream).await?;
    let status = head.split_ascii_whitespace().nth(1).unwrap_or_default();
    match status {
        "200" => Ok(stream),
        "407" => Err(io::Error::other(
            "it demands other credentials (407): write them as `http://user:password@…`",
        )),
        _ => Err(io::Error::other(format!("it does not connect to {to} (status {status})"))),
    }
}

/// Reads the head of a response and nothing behind it, which belongs to the tunnel.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_HEAD_LEN {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its response has no end"));
        }
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_no_urls() {
        assert_eq!("[::1]:8005".parse::<Endpoint>().unwrap().to_string(), "[::1]:8005");
        for wrong in ["http://u:secret@cp.test:8005", "https://cp.test:8005", "cp.test", "cp.test:0"] {
            let error = wrong.parse::<Endpoint>().unwrap_err();
            assert!(error.contains("`host.example.com:8005`") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn proxies_are_urls() {
        let proxy: ForwardProxy = "http://us%40er:pa%3Ass@127.0.0.1:3128".parse().unwrap();
        assert_eq!((proxy.is_https, proxy.endpoint.to_string().as_str()), (false, "127.0.0.1:3128"));
        assert_eq!(proxy.credentials.as_deref(), Some(&*format!("Basic {}", STANDARD.encode("us@er:pa:ss"))));
        assert!(!format!("{proxy:?}").contains("us"));
        let proxy: ForwardProxy = "https://proxy.test/".parse().unwrap();
        assert_eq!((proxy.is_https, proxy.endpoint.port, proxy.credentials), (true, 443, None));
        for wrong in ["proxy:3128", "ftp://secret@proxy:1", "http://", "http://secret@proxy:x"] {
            let error = ForwardProxy::from_str(wrong).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}

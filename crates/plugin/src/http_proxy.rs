//! Forward proxies that an [`HttpClient`](crate::HttpClient) connects through.

use std::io;
use std::str::FromStr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The longest head of a proxy's response.
const MAX_HEAD_LEN: usize = 16 * 1024;

/// A forward proxy that is asked in clear: by `CONNECT` for servers over TLS, by absolute URLs for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpProxy {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// The proxies of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpProxies {
    /// To servers without TLS.
    pub http: Option<HttpProxy>,
    /// To servers over TLS.
    pub https: Option<HttpProxy>,
}

impl From<Option<HttpProxy>> for HttpProxies {
    /// One for all servers.
    fn from(proxy: Option<HttpProxy>) -> Self {
        Self { http: proxy.clone(), https: proxy }
    }
}

impl FromStr for HttpProxy {
    type Err = String;

    /// Reads `http://host:port`.
    fn from_str(url: &str) -> Result<Self, String> {
        let expected = || "expected the URL of a proxy without user and path, such as http://proxy.test:3128";
        let url: http::Uri = url.parse().map_err(|_| expected())?;
        let authority = url.authority().filter(|authority| !authority.as_str().contains('@'));
        let is_whole = url.scheme_str() == Some("http") && url.path() == "/" && url.query().is_none();
        let authority = authority.filter(|_| is_whole).ok_or_else(expected)?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        Ok(Self { host, port: authority.port_u16().unwrap_or(80) })
    }
}

/// Has a proxy connect to a server: what is sent and read from now on is the server's.
pub(crate) async fn connect(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    (host, port): (&str, u16),
) -> io::Result<()> {
    let to = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    stream.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).await?;
    let head = read_head(stream).await?;
    match head.split_ascii_whitespace().nth(1) {
        Some("200") => Ok(()),
        status => {
            let status = status.unwrap_or("none");
            Err(io::Error::other(format!("the proxy does not connect to {to} (status {status})")))
        }
    }
}

/// Reads the head of a response and nothing behind it, which belongs to the tunnel.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_HEAD_LEN {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the proxy's response has no end"));
        }
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_urls() {
        let proxy: HttpProxy = "http://proxy.test:3128/".parse().unwrap();
        assert_eq!((&*proxy.host, proxy.port), ("proxy.test", 3128));
        let proxy: HttpProxy = "http://[::1]".parse().unwrap();
        assert_eq!((&*proxy.host, proxy.port), ("::1", 80));
        for wrong in
            ["https://proxy.test", "http://u:secret@proxy.test", "proxy:1", "http://a/b", "http://a?b", ""]
        {
            let error = wrong.parse::<HttpProxy>().unwrap_err();
            assert!(error.contains("http://proxy.test:3128") && !error.contains("secret"), "{error}");
        }
    }
}

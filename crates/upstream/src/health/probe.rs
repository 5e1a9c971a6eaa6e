//! An active health check of one address: connects, performs the TLS handshake, and sends an HTTP request.

use super::checks::Outcome;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use weir_model::entity::{ProbeType, Upstream};
use weir_net::connect::{self, MemoryNetwork};
use weir_net::io::Duplex;
use weir_net::tls::{self, CertifiedKey, TlsError, Verify};

/// A longer status line is invalid.
const MAX_LINE_LEN: usize = 1024;

/// The timeout of a probe for which none is configured.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// How the targets of one upstream are probed.
pub(super) struct Probe {
    timeout: Duration,
    /// The TLS configuration, or the reason why probes cannot verify certificates.
    tls: Option<Result<Arc<ClientConfig>, TlsError>>,
    sni: Option<String>,
    /// `None` if accepting a connection is enough.
    request: Option<Request>,
}

/// A request without the host name of the target.
struct Request {
    before_host: String,
    /// The configured headers have a `Host` among them.
    names_host: bool,
    host: Option<String>,
}

impl Probe {
    /// Never fails, so that no upstream can prevent a configuration from being applied.
    pub(super) fn new(
        upstream: &Upstream,
        roots: &[CertificateDer<'static>],
        identity: Option<Arc<CertifiedKey>>,
    ) -> Probe {
        let active = &upstream.healthchecks.active;
        let is_used = active.healthy.interval > 0.0 || active.unhealthy.interval > 0.0;
        let tls = (is_used && active.r#type == ProbeType::Https).then(|| {
            let verify = active.https_verify_certificate;
            tls::client_config(verify.then(|| Verify { roots: roots.to_vec(), depth: None }), identity)
        });
        if let Some(Err(error)) = &tls {
            tracing::warn!(
                upstream = upstream.name,
                "probes cannot verify targets, which count as TCP failures: {error}; set lua_ssl_trusted_certificate, \
                 or healthchecks.active.https_verify_certificate to false"
            );
        }
        let asks = matches!(active.r#type, ProbeType::Http | ProbeType::Https);
        let timeout = Duration::from_secs_f64(active.timeout);
        Probe {
            timeout: if timeout.is_zero() { DEFAULT_TIMEOUT } else { timeout },
            tls,
            sni: active.https_sni.clone().or_else(|| upstream.host_header.clone()),
            request: asks.then(|| Request::new(upstream)),
        }
    }

    /// Probes an address of a target; none if this process cannot.
    pub(super) async fn send(
        &self,
        memory: Option<&dyn MemoryNetwork>,
        address: SocketAddr,
        host: &str,
    ) -> Option<Outcome> {
        let asked = async {
            match memory {
                Some(network) => self.ask_in_memory(network.connect(address).await?, host).await,
                None => self.ask(address, host).await,
            }
        };
        match tokio::time::timeout(self.timeout, asked).await {
            Ok(Err(error)) if connect::is_shortage(&error) => None,
            Ok(asked) => Some(asked.unwrap_or(Outcome::TcpFailure)),
            Err(_) => Some(Outcome::Timeout),
        }
    }

    async fn ask(&self, address: SocketAddr, host: &str) -> io::Result<Outcome> {
        let tls = self.tls.as_ref().map(Result::as_ref).transpose();
        let tls = tls.map_err(|_| io::ErrorKind::Unsupported)?;
        let tcp = connect::tcp(address).await?;
        let Some(request) = &self.request else { return Ok(Outcome::Connected) };
        let request = request.to(host);
        match tls {
            None => status(tcp, &request).await,
            Some(config) => {
                let name = self.sni.as_deref().unwrap_or(host);
                status(connect::tls(tcp, config.clone(), name, None).await?, &request).await
            }
        }
    }

    async fn ask_in_memory(&self, stream: Box<dyn Duplex>, host: &str) -> io::Result<Outcome> {
        match &self.request {
            Some(request) => status(stream, &request.to(host)).await,
            None => Ok(Outcome::Connected),
        }
    }
}

impl Request {
    fn new(upstream: &Upstream) -> Request {
        let active = &upstream.healthchecks.active;
        let mut before_host = format!("GET {} HTTP/1.0\r\n", active.http_path);
        let fields = active.headers.iter().flatten();
        for (name, value) in fields.flat_map(|(name, values)| values.iter().map(move |value| (name, value))) {
            let line = format!("{name}: {value}").replace(['\r', '\n'], " ");
            before_host.push_str(&(line + "\r\n"));
        }
        let names_host = active.headers.iter().flatten().any(|(name, _)| name.eq_ignore_ascii_case("host"));
        Request { before_host, names_host, host: upstream.host_header.clone() }
    }

    fn to(&self, host: &str) -> String {
        if self.names_host {
            return format!("{}\r\n", self.before_host);
        }
        format!("{}Host: {}\r\n\r\n", self.before_host, self.host.as_deref().unwrap_or(host))
    }
}

/// Sends the request, and reads the status of the response.
async fn status(mut io: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> io::Result<Outcome> {
    io.write_all(request.as_bytes()).await?;
    io.flush().await?;
    let mut line = Vec::new();
    while !line.contains(&b'\n') && line.len() < MAX_LINE_LEN {
        if io.read_buf(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Outcome::Status(parse(&line).unwrap_or(0)))
}

/// The status in a line like `HTTP/1.1 200 OK`.
fn parse(line: &[u8]) -> Option<u16> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    words.next().filter(|version| version.starts_with("HTTP/"))?;
    words.next()?.parse().ok().filter(|status| (100..1000).contains(status))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn only_a_status_line_has_a_status() {
        for (line, status) in [
            ("HTTP/1.1 200 OK\r\nServer: x\r\n", Some(200)),
            ("HTTP/1.0 503\r\n", Some(503)),
            ("HTTP/2 204\n", Some(204)),
            ("SSH-2.0-OpenSSH 200\r\n", None),
            ("HTTP/1.1 OK\r\n", None),
            ("HTTP/1.1 20\r\n", None),
            ("\r\nHTTP/1.1 200 OK", None),
        ] {
            assert_eq!(parse(line.as_bytes()), status, "{line}");
        }
    }
}

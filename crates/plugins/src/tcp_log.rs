//! Sends a line of JSON about each request to a TCP server.
//!
//! ```yaml
//! plugins:
//!   - name: tcp-log
//!     config:
//!       host: logs.example.com
//!       port: 9999
//! ```
//!
//! [file-log](file-log.md#the-record) describes the object. Lines are sent within 50 ms, many at a time, over a
//! connection that is kept for `keepalive` milliseconds. With `tls` it is encrypted, and the certificate of the server
//! is verified against `lua_ssl_trusted_certificate`, unless `log_tls_verify` is `off`. Lines are dropped if the server
//! does not accept them within `timeout`, or not as fast as requests arrive: `weir_plugin_dropped_total` in `/metrics`
//! counts them.

use super::log_record::{LogRecord, lua_code};
use rustls::pki_types::ServerName;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Mutex;
use tokio::time::timeout;
use weir_plugin::{
    BuildContext, Dialer, Exchange, Hooks, Lines, Phases, Plugin, Record, Session, Streams, Undelivered,
};

/// The server.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// Its name or address.
    #[field(matches = host)]
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The timeout for connecting and sending, in milliseconds.
    #[field(nullable, default = 10_000)]
    pub timeout: f64,
    /// Milliseconds that an idle connection is kept.
    #[field(nullable, default = 60_000)]
    pub keepalive: f64,
    /// Uses TLS.
    #[field(default = false)]
    pub tls: bool,
    /// The SNI; `host` if unset.
    #[field(matches = host)]
    pub tls_sni: Option<String>,
    /// Fields to add to the record, to change or to remove: bodies of functions in Lua.
    #[field(check = lua_code)]
    pub custom_fields_by_lua: Option<BTreeMap<String, String>>,
}

/// One configured instance.
pub(super) struct TcpLog {
    record: LogRecord,
    lines: Lines,
}

impl Plugin for TcpLog {
    const NAME: &'static str = "tcp-log";
    const PRIORITY: i32 = 7;
    const STREAMS: Streams = Streams::IfNamed;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let record = LogRecord::new(&config.custom_fields_by_lua, Self::NAME, build)?;
        let server = Arc::new(Server::new(config, build)?);
        let lines = build.lines(move |text: Vec<u8>| {
            let server = server.clone();
            async move {
                let sent = server.send(&text).await;
                let lost =
                    sent.map_err(|error| Undelivered::all(&text, format_args!("{}: {error}", server.name)));
                (text, lost)
            }
        });
        Ok(Self { record, lines })
    }
}

impl Hooks for TcpLog {
    fn phases(&self) -> Phases {
        Phases::LOG | Phases::LOG_STREAM
    }

    fn log(&self, exchange: &mut Exchange) {
        let scripted = self.record.evaluate(exchange);
        self.lines.write(exchange.worker, |out| self.record.write(out, exchange, &scripted));
    }

    fn log_stream(&self, session: &Session) {
        let scripted = self.record.evaluate_session();
        let worker = session.client.port().into();
        self.lines.write(worker, |out| self.record.write_session(out, session, &scripted));
    }
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection, and when it was last used.
type Kept = (Box<dyn Duplex>, Instant);

struct Server {
    name: String,
    address: (String, u16),
    timeout: Duration,
    keepalive: Duration,
    dialer: Dialer,
    /// The SNI, with TLS.
    tls: Option<String>,
    kept: Mutex<Option<Kept>>,
}

impl Server {
    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let host = config.host.trim_matches(['[', ']']).to_owned();
        let tls = config.tls.then(|| config.tls_sni.unwrap_or_else(|| host.clone()));
        if tls.as_ref().is_some_and(|name| ServerName::try_from(name.as_str()).is_err()) {
            return Err("config.tls_sni is not a valid server name".to_owned());
        }
        Ok(Self {
            name: format!("{}:{}", config.host, config.port),
            address: (host, config.port),
            timeout: milliseconds(config.timeout),
            keepalive: milliseconds(config.keepalive),
            dialer: build.log_dialer(tls.is_some()),
            tls,
            kept: Mutex::default(),
        })
    }

    async fn send(&self, text: &[u8]) -> io::Result<()> {
        let mut kept = self.kept.lock().await;
        let sending = async {
            let usable = match kept.take().filter(|(_, used)| used.elapsed() < self.keepalive) {
                Some((mut stream, _)) => is_open(&mut *stream).await.then_some(stream),
                None => None,
            };
            let mut stream = match usable {
                Some(stream) => stream,
                None => self.connect().await?,
            };
            stream.write_all(text).await?;
            stream.flush().await?;
            Ok::<_, io::Error>(stream)
        };
        let sent =
            timeout(self.timeout, sending).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        *kept = Some((sent?, Instant::now()));
        Ok(())
    }

    async fn connect(&self) -> io::Result<Box<dyn Duplex>> {
        let (host, port) = &self.address;
        let tcp = self.dialer.tcp(host, *port).await?;
        Ok(match &self.tls {
            Some(name) => Box::new(self.dialer.tls(name, tcp).await?),
            None => Box::new(tcp),
        })
    }
}

/// Whether the server has neither closed the connection nor sent unexpected data.
async fn is_open(stream: &mut dyn Duplex) -> bool {
    poll_fn(|cx| {
        let mut byte = [0];
        let read = Pin::new(&mut *stream).poll_read(cx, &mut ReadBuf::new(&mut byte));
        Poll::Ready(read.is_pending())
    })
    .await
}

/// At most a day, because clocks overflow far in the future.
fn milliseconds(milliseconds: f64) -> Duration {
    Duration::from_secs_f64((milliseconds / 1000.0).clamp(0.0, 86_400.0))
}

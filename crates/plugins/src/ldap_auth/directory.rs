//! The directory: connections that are kept, and logins over them.

use super::ber::{self, BIND_RESPONSE, EXTENDED_RESPONSE, Response};
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use weir_plugin::Dialer;

/// Connections that are kept at most.
const MAX_IDLE: usize = 32;

/// How connections are secured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Security {
    Clear,
    /// TLS from the first byte.
    Ldaps,
    /// TLS after an operation of LDAP.
    StartTls,
}

/// Why the directory gave no result.
#[derive(Debug)]
pub(super) enum LdapError {
    Timeout,
    /// It could not be connected to, or the connection broke.
    Io(io::Error),
    Closed,
    Malformed(&'static str),
    /// It does not start TLS, with this result.
    NoTls(u32),
}

impl fmt::Display for LdapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("it took longer than config.timeout"),
            Self::Io(error) => error.fmt(f),
            Self::Closed => f.write_str("it closed the connection"),
            Self::Malformed(what) => f.write_str(what),
            Self::NoTls(result) => {
                write!(
                    f,
                    "it refused StartTLS with the result {result}; set config.ldaps instead of config.start_tls"
                )
            }
        }
    }
}

impl From<io::Error> for LdapError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// Where users log in.
pub(super) struct Directory {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) security: Security,
    /// For a whole login.
    pub(super) timeout: Duration,
    /// How long a connection is kept without a login.
    pub(super) keepalive: Duration,
    pub(super) dialer: Dialer,
    idle: Mutex<Vec<(Instant, Connection)>>,
}

impl Directory {
    pub(super) fn new(
        (host, port): (&str, u16),
        security: Security,
        [timeout, keepalive]: [Duration; 2],
        dialer: Dialer,
    ) -> Self {
        let host = host.trim_matches(['[', ']']).to_owned();
        Self { host, port, security, timeout, keepalive, dialer, idle: Mutex::default() }
    }

    /// Logs in, and returns the result: 0 is success.
    pub(super) async fn bind(&self, name: &[u8], password: &[u8]) -> Result<u32, LdapError> {
        let bound = tokio::time::timeout(self.timeout, self.bind_over_any(name, password)).await;
        bound.unwrap_or(Err(LdapError::Timeout))
    }

    async fn bind_over_any(&self, name: &[u8], password: &[u8]) -> Result<u32, LdapError> {
        if let Some(mut kept) = self.take_idle() {
            match kept.bind(name, password).await {
                Ok(result) => {
                    self.keep(kept);
                    return Ok(result);
                }
                // The directory has closed it meanwhile.
                Err(LdapError::Closed | LdapError::Io(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let mut connection = self.connect().await?;
        let result = connection.bind(name, password).await?;
        self.keep(connection);
        Ok(result)
    }

    /// The connection that was used last: the others can expire.
    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        idle.retain(|(since, _)| now.duration_since(*since) < self.keepalive);
        idle.pop().map(|(_, connection)| connection)
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE && !self.keepalive.is_zero() {
            idle.push((Instant::now(), connection));
        }
    }

    async fn connect(&self) -> Result<Connection, LdapError> {
        let tcp = self.dialer.tcp(&self.host, self.port).await?;
        match self.security {
            Security::Clear => Ok(Connection::over(tcp)),
            Security::Ldaps => Ok(Connection::over(self.dialer.tls(&self.host, tcp).await?)),
            Security::StartTls => {
                let mut tcp = tcp;
                let response = call(&mut tcp, 1, &ber::start_tls_request(1), EXTENDED_RESPONSE).await?;
                match response.result {
                    0 => Ok(Connection::over(self.dialer.tls(&self.host, tcp).await?)),
                    refused => Err(LdapError::NoTls(refused)),
                }
            }
        }
    }
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection, and the number of the last request.
struct Connection {
    stream: Box<dyn Duplex>,
    id: u8,
}

impl Connection {
    fn over(stream: impl Duplex + 'static) -> Self {
        Self { stream: Box::new(stream), id: 1 }
    }

    async fn bind(&mut self, name: &[u8], password: &[u8]) -> Result<u32, LdapError> {
        self.id = self.id % 127 + 1;
        let request = ber::bind_request(self.id, name, password);
        Ok(call(&mut *self.stream, self.id, &request, BIND_RESPONSE).await?.result)
    }
}

/// Sends a request, and waits for its response.
async fn call(
    stream: &mut (impl Duplex + ?Sized),
    id: u8,
    request: &[u8],
    operation: u8,
) -> Result<Response, LdapError> {
    stream.write_all(request).await?;
    stream.flush().await?;
    let response = Response::read(&receive(stream).await?).map_err(LdapError::Malformed)?;
    match response {
        // The directory is about to close the connection.
        Response { id: 0, operation: EXTENDED_RESPONSE, .. } => Err(LdapError::Closed),
        response if response.id == u32::from(id) && response.operation == operation => Ok(response),
        _ => Err(LdapError::Malformed("a response to another request")),
    }
}

/// Reads one message, and no byte of what follows it. Memory grows with what arrives, not with the length that it states.
async fn receive(stream: &mut (impl Duplex + ?Sized)) -> Result<Vec<u8>, LdapError> {
    let mut message = Vec::new();
    let len = loop {
        match ber::message_len(&message).map_err(LdapError::Malformed)? {
            Some(len) => break len,
            None => message.push(stream.read_u8().await?),
        }
    };
    let missing = len.saturating_sub(message.len());
    stream.take(missing as u64).read_to_end(&mut message).await?;
    if message.len() < len { Err(LdapError::Closed) } else { Ok(message) }
}

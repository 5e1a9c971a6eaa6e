//! One connection's bytes, plain or over TLS, never blocking.
use super::{LoadError, Plan};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ClientConnection, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As much as one read takes.
const READ: usize = 64 * 1024;

/// HTTP/2, as TLS calls it.
const HTTP2: &[u8] = b"h2";

/// What TLS connections are made with.
#[derive(Clone)]
pub(super) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// Room for what is read, shared by the connections of a thread.
pub(super) struct Buffers {
    raw: Vec<u8>,
    plain: Vec<u8>,
}

/// A connection.
pub(super) struct Wire {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// What the socket did not take of a plain request.
    unsent: Vec<u8>,
}

/// What a read came to.
pub(super) enum Received<'a> {
    /// Bytes, and whether there may be more.
    Bytes(&'a [u8], bool),
    /// Nothing, for now.
    Nothing,
    /// The peer has ended the connection.
    End,
}

/// What a connection failed of.
#[derive(Debug)]
pub(super) enum Fault {
    Socket,
    Tls,
}

impl Buffers {
    pub(super) fn new() -> Buffers {
        Buffers { raw: vec![0; READ], plain: Vec::new() }
    }
}

impl Wire {
    /// Begins to connect; the socket becomes writable when that is done.
    pub(super) fn open(address: SocketAddr, tls: Option<&Tls>) -> io::Result<Wire> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        let tls = tls.map(Tls::connection).transpose().map_err(io::Error::other)?;
        Ok(Wire { stream, tls: tls.map(Box::new), unsent: Vec::new() })
    }

    /// Connects, and waits until that is done.
    pub(super) fn connect(
        address: SocketAddr,
        tls: Option<&Tls>,
        buffers: &mut Buffers,
        deadline: Instant,
    ) -> Result<Wire, String> {
        let mut wire = Wire::open(address, tls).map_err(|error| error.to_string())?;
        wait(&wire.stream, PollFlags::OUT, deadline)?;
        if !wire.connected() {
            return Err("it was refused".to_owned());
        }
        while !wire.shake(buffers).map_err(|_| "the handshake failed")? {
            wait(&wire.stream, PollFlags::IN, deadline)?;
        }
        Ok(wire)
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether connecting has succeeded, once the socket is writable.
    pub(super) fn connected(&self) -> bool {
        matches!(self.stream.take_error(), Ok(None))
    }

    /// Goes on with the handshake: whether it is over. Plain connections have none.
    pub(super) fn shake(&mut self, buffers: &mut Buffers) -> Result<bool, Fault> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        loop {
            while tls.wants_write() {
                match tls.write_tls(&mut &self.stream) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => return Err(Fault::Tls),
                }
            }
            if !tls.is_handshaking() {
                return Ok(true);
            }
            match self.stream.read(&mut buffers.raw) {
                Ok(0) => return Err(Fault::Tls),
                Ok(length) => {
                    decrypt(tls, &buffers.raw[..length], &mut buffers.plain)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(_) => return Err(Fault::Tls),
            }
        }
    }

    /// Whether the peer has agreed to speak HTTP/2. Without TLS it is prior knowledge.
    pub(super) fn speaks_http2(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.alpn_protocol() == Some(HTTP2))
    }

    /// Reads once, straight to where it belongs; 0 bytes at the end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.stream.read(into) };
        loop {
            match tls.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Not every peer says good-bye.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if tls.read_tls(&mut &self.stream)? == 0 {
                return Ok(0);
            }
            tls.process_new_packets().map_err(io::Error::other)?;
        }
    }

    /// Reads once.
    pub(super) fn receive<'a>(&mut self, buffers: &'a mut Buffers) -> Result<Received<'a>, Fault> {
        let length = match self.stream.read(&mut buffers.raw) {
            Ok(0) => return Ok(Received::End),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Received::Nothing),
            Err(_) => return Err(Fault::Socket),
        };
        let more = length == buffers.raw.len();
        let Some(tls) = &mut self.tls else { return Ok(Received::Bytes(&buffers.raw[..length], more)) };
        buffers.plain.clear();
        let ended = decrypt(tls, &buffers.raw[..length], &mut buffers.plain)?;
        if ended && buffers.plain.is_empty() {
            return Ok(Received::End);
        }
        Ok(Received::Bytes(&buffers.plain, more))
    }

    /// Sends a request, or as much as the socket takes; the rest follows with [`Wire::flush`].
    pub(super) fn send(&mut self, request: &[u8]) -> Result<(), Fault> {
        if let Some(tls) = &mut self.tls {
            tls.writer().write_all(request).map_err(|_| Fault::Tls)?;
            return self.flush();
        }
        match self.stream.write(request) {
            Ok(sent) if sent == request.len() => {}
            Ok(sent) => self.unsent.extend_from_slice(&request[sent..]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.unsent.extend_from_slice(request),
            Err(_) => return Err(Fault::Socket),
        }
        Ok(())
    }

    /// Sends what is left to send.
    pub(super) fn flush(&mut self) -> Result<(), Fault> {
        let sent = match &mut self.tls {
            Some(tls) => flush_tls(tls, &self.stream),
            None => flush_plain(&mut self.unsent, &self.stream),
        };
        match sent {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(Fault::Socket),
            _ => Ok(()),
        }
    }

    /// Ends the connection without waiting for the peer to.
    pub(super) fn reset(self) {
        // Where it cannot be set, the connection is closed in the ordinary way.
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
    }
}

/// Waits until a socket is ready.
pub(super) fn wait(socket: &TcpStream, flags: PollFlags, deadline: Instant) -> Result<(), String> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|error| error.to_string())?;
        match poll(&mut [PollFd::new(socket, flags)], Some(&left)) {
            Ok(0) => return Err("it was not answered in time".to_owned()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn flush_tls(tls: &mut ClientConnection, mut stream: &TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut stream)?;
    }
    Ok(())
}

fn flush_plain(unsent: &mut Vec<u8>, mut stream: &TcpStream) -> io::Result<()> {
    while !unsent.is_empty() {
        let sent = stream.write(unsent)?;
        unsent.drain(..sent);
    }
    Ok(())
}

/// Takes in what came over the wire and appends what it says; whether the peer has ended the session.
fn decrypt(tls: &mut ClientConnection, mut raw: &[u8], plain: &mut Vec<u8>) -> Result<bool, Fault> {
    let mut ended = false;
    while !raw.is_empty() {
        if tls.read_tls(&mut raw).map_err(|_| Fault::Tls)? == 0 {
            break;
        }
        ended = tls.process_new_packets().map_err(|_| Fault::Tls)?.peer_has_closed();
        let mut reader = tls.reader();
        while let Ok(text @ [_, ..]) = reader.fill_buf() {
            plain.extend_from_slice(text);
            let length = text.len();
            reader.consume(length);
        }
    }
    Ok(ended)
}

impl Tls {
    /// Sessions are not resumed, so that every handshake is a full one; certificates are not verified.
    pub(super) fn new(plan: &Plan) -> Result<Tls, LoadError> {
        let host = &plan.host;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let versions =
            ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let builder = versions.map_err(|error| LoadError::Plan(error.to_string()))?;
        let verifier = Arc::new(Unverified(provider));
        let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        config.resumption = Resumption::disabled();
        let protocol = if plan.protocol.is_http2() { HTTP2 } else { b"http/1.1" };
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::try_from(without_port(host).to_owned())
            .map_err(|_| LoadError::Plan(format!("{host:?} is not the name of a server")))?;
        Ok(Tls { config: Arc::new(config), name })
    }

    fn connection(&self) -> Result<ClientConnection, Error> {
        let mut connection = ClientConnection::new(self.config.clone(), self.name.clone())?;
        connection.set_buffer_limit(None);
        Ok(connection)
    }
}

/// `[::1]:8443` and `example:8443` without the port.
fn without_port(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => {
            host.split_once(':').map_or(host, |(name, port)| if port.contains(':') { host } else { name })
        }
    }
}

/// Accepts any certificate, if only the server has its key.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

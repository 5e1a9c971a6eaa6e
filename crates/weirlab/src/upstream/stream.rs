//! A client's connection, plain or under TLS.
use crate::event_loop::{Received, ServiceError, Socket};
use rustix::event::epoll::EventFlags;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Plain text given to TLS at once, so that what it holds for a slow reader stays small.
const PIECE_BYTES: usize = 64 * 1024;

/// A connection's bytes, whatever carries them.
pub(super) enum Stream {
    Plain(Socket),
    Tls(Box<Tls>),
}

pub(super) struct Tls {
    socket: Socket,
    session: ServerConnection,
}

impl Stream {
    pub(super) fn new(socket: Socket, tls: Option<&Arc<ServerConfig>>) -> io::Result<Self> {
        let Some(config) = tls else { return Ok(Self::Plain(socket)) };
        let mut session = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        session.set_buffer_limit(None);
        Ok(Self::Tls(Box::new(Tls { socket, session })))
    }

    #[inline]
    pub(super) fn note(&mut self, flags: EventFlags) {
        self.socket_mut().note(flags);
    }

    fn socket_mut(&mut self) -> &mut Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => &mut tls.socket,
        }
    }

    /// Reads until there is `Nothing`, which is not asked of a plain socket that had less than was asked for.
    #[inline]
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        match self {
            Self::Plain(socket) if !socket.is_readable() => Ok(Received::Nothing),
            Self::Plain(socket) => socket.receive(buffer),
            Self::Tls(tls) => tls.receive(buffer),
        }
    }

    #[inline]
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.send(bytes),
            Self::Tls(tls) => {
                tls.session.writer().write_all(bytes)?;
                tls.flush().map(drop)
            }
        }
    }

    /// Sends what goes out at once; how much that was.
    #[inline]
    pub(super) fn offer(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) if socket.is_blocked() => Ok(0),
            Self::Plain(socket) => socket.offer(bytes),
            Self::Tls(tls) => {
                let mut sent = 0;
                while sent < bytes.len() && tls.flush()? {
                    let piece = &bytes[sent..bytes.len().min(sent + PIECE_BYTES)];
                    sent += tls.session.writer().write(piece)?;
                }
                tls.flush()?;
                Ok(sent)
            }
        }
    }

    /// Sends what could not be sent; whether nothing is left.
    #[inline]
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }

    /// Closes the sending half towards the client.
    pub(super) fn finish_sending(&mut self) -> io::Result<()> {
        if let Self::Tls(tls) = self {
            tls.session.send_close_notify();
            tls.flush()?;
        }
        self.socket_mut().finish_sending();
        Ok(())
    }

    pub(super) fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => &tls.socket,
        }
    }
}

impl Tls {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            match self.session.reader().read(buffer) {
                Ok(0) => return Ok(Received::End),
                Ok(count) => return Ok(Received::Bytes(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if !self.socket.is_readable() {
                return Ok(Received::Nothing);
            }
            match self.session.read_tls(&mut Ciphertext(&mut self.socket)) {
                Ok(0) => return Ok(Received::End),
                Ok(_) => self.session.process_new_packets().map(drop).map_err(io::Error::other)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            self.flush()?;
        }
    }

    fn flush(&mut self) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Ciphertext(&mut self.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// The socket as the session reads and writes it.
struct Ciphertext<'a>(&'a mut Socket);

impl Read for Ciphertext<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.receive(buffer)? {
            Received::Bytes(count) => Ok(count),
            Received::Nothing => Err(io::ErrorKind::WouldBlock.into()),
            Received::End => Ok(0),
        }
    }
}

impl Write for Ciphertext<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.offer(bytes)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Serves with a self-signed certificate for `localhost`.
pub(super) fn self_signed() -> Result<Arc<ServerConfig>, ServiceError> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certified =
        rcgen::generate_simple_self_signed(names).map_err(|error| ServiceError::Tls(error.to_string()))?;
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let refused = |error: rustls::Error| ServiceError::Tls(error.to_string());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key.into())
        .map_err(refused)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

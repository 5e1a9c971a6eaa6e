//! The connections of an upstream server, with TLS or without, and how a response is cut short on them.
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// What [`drip`] sends at a time, and how often.
const DROP_BYTES: usize = 64;
const DROP_INTERVAL: Duration = Duration::from_millis(4);

/// A connection's bytes, and the socket below them.
pub(super) trait Channel: Read + Write {
    fn socket(&self) -> &TcpStream;
}

impl Channel for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Channel for StreamOwned<ServerConnection, TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref()
    }
}

/// The side of a server with this certificate and key.
pub(super) fn tls(certificate: &Path, key: &Path) -> io::Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(io::Error::other)?;
    Ok(Arc::new(config))
}

/// Sends a part of a response and ends the connection.
pub(super) fn cut(channel: &mut impl Channel, part: &[u8], by_reset: bool) -> bool {
    // The part that is missing is the fault; so may be all of it.
    let _ = channel.write_all(part).and_then(|()| channel.flush());
    if by_reset {
        // What was sent would be thrown away by the peer's kernel if the reset overtook its reading.
        thread::sleep(Duration::from_millis(2));
        reset(channel.socket());
    }
    false
}

/// Sends a response a few bytes at a time.
pub(super) fn drip(channel: &mut impl Channel, whole: &[u8]) -> io::Result<()> {
    whole.chunks(DROP_BYTES).try_for_each(|piece| {
        thread::sleep(DROP_INTERVAL);
        channel.write_all(piece)
    })
}

/// Has the connection end with a reset once it is dropped.
pub(super) fn reset(socket: &TcpStream) {
    // Without it the connection ends in good order, which is a fault as well.
    let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

//! The server name that a client asks for, read from its hello without taking it: what is not decrypted here passes on
//! as it came.

use crate::socket::Socket;
use rustls::server::Acceptor;
use std::io;
use tokio::io::AsyncWriteExt;

/// The longest hello that is looked at: a record of TLS.
const LONGEST: usize = 16 * 1024 + 5;

/// Why there is no hello.
#[derive(Debug)]
pub(super) enum NoHello {
    /// The connection ended before.
    Ended,
    /// It is longer than one record.
    TooLong,
    /// What came is no TLS.
    NotTls(rustls::Error),
    /// The socket failed.
    Io(io::Error),
}

impl std::fmt::Display for NoHello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoHello::Ended => f.write_str("the client left before its TLS handshake had begun"),
            NoHello::TooLong => f.write_str("the client's TLS hello is too long"),
            NoHello::NotTls(error) => write!(f, "the client does not speak TLS: {error}"),
            NoHello::Io(error) => write!(f, "the client's TLS hello could not be read: {error}"),
        }
    }
}

/// Waits for the hello and returns the name in it, in lower case.
pub(super) async fn server_name(socket: &mut Socket) -> Result<Option<String>, NoHello> {
    let mut bytes = vec![0; LONGEST];
    let mut known = 0;
    loop {
        let seen = socket.peek_beyond(known, &mut bytes).await.map_err(NoHello::Io)?;
        if let Some(name) = read(&bytes[..seen], socket).await? {
            return Ok(name);
        }
        match seen {
            LONGEST => return Err(NoHello::TooLong),
            _ if seen == known => return Err(NoHello::Ended),
            _ => known = seen,
        }
    }
}

/// The name, if there is one; nothing while the hello is not complete. Who does not speak TLS is told so.
async fn read(bytes: &[u8], socket: &mut Socket) -> Result<Option<Option<String>>, NoHello> {
    let mut acceptor = Acceptor::default();
    let mut unread = bytes;
    while !unread.is_empty() {
        acceptor.read_tls(&mut unread).map_err(NoHello::Io)?;
    }
    match acceptor.accept() {
        Ok(Some(accepted)) => Ok(Some(accepted.client_hello().server_name().map(str::to_ascii_lowercase))),
        Ok(None) => Ok(None),
        Err((error, mut alert)) => {
            let mut record = Vec::new();
            if alert.write(&mut record).is_ok() {
                let _ = socket.write_all(&record).await;
            }
            Err(NoHello::NotTls(error))
        }
    }
}

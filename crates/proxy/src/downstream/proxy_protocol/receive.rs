//! Receives the PROXY header at the start of a connection.

use super::{Addresses, MAX_HEADER_LEN, Malformed, parse};
use crate::limits::NodeLimit;
use crate::listen::Accepted;
use crate::worker::Worker;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use weir_net::socket::Socket;

/// Why a connection that must begin with a header is closed.
#[derive(Debug)]
pub enum Refused {
    /// It begins with something else.
    Malformed(Malformed),
    /// It ended before.
    Ended,
    /// No whole header came in time.
    Late,
    /// The socket failed.
    Io(io::Error),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Malformed(malformed) => malformed.fmt(f),
            Refused::Ended => f.write_str("the connection ended within the PROXY protocol header"),
            Refused::Late => f.write_str("no PROXY protocol header came in time"),
            Refused::Io(error) => write!(f, "the PROXY protocol header could not be read: {error}"),
        }
    }
}

/// Takes the header off, and not a byte more.
pub async fn receive(socket: &mut Socket, timeout: Duration) -> Result<Option<Addresses>, Refused> {
    // Boxed, so that connections without a header have no room for one.
    let taking = Box::pin(take(socket));
    tokio::time::timeout(timeout, taking).await.unwrap_or(Err(Refused::Late))
}

async fn take(socket: &mut Socket) -> Result<Option<Addresses>, Refused> {
    let mut bytes = [0; MAX_HEADER_LEN];
    let mut known = 0;
    let header = loop {
        let seen = socket.peek_beyond(known, &mut bytes).await.map_err(Refused::Io)?;
        match parse(&bytes[..seen]) {
            Ok(Some(header)) => break header,
            Ok(None) if seen == known => return Err(Refused::Ended),
            Ok(None) => known = seen,
            Err(malformed) => return Err(Refused::Malformed(malformed)),
        }
    };
    socket.read_exact(&mut bytes[..header.length]).await.map_err(Refused::Io)?;
    Ok(header.addresses)
}

/// The socket, past the header that its listener asks for; with the client that a trusted peer speaks for. Peers that
/// are not in `trusted_ips` must send a header too, and are not believed.
pub(crate) async fn open(
    worker: &Worker,
    accepted: Accepted,
) -> Result<(Socket, Option<SocketAddr>), Refused> {
    let (peer, asked) = (accepted.peer, accepted.listener.proxy_protocol);
    let trusted = worker.options.trusts(&accepted);
    let mut socket = accepted.incoming.socket().map_err(Refused::Io)?;
    if !asked {
        return Ok((socket, None));
    }
    let said = receive(&mut socket, worker.options.client_header_timeout).await;
    if let Err(refused) = &said {
        if matches!(refused, Refused::Late) {
            worker.limit_acted(NodeLimit::HandshakeTime);
        }
        if worker.may_warn() {
            tracing::warn!(%peer, "the connection is closed: {refused}");
        }
    }
    let client = said?.filter(|_| trusted).map(|addresses| addresses.source);
    Ok((socket, client))
}

//! The floor: the barest relay that is still correct. Parses, forwards; no routing, no policy, one thread, raw epoll.
mod message;
mod peer;
mod relay;
mod request;
mod response;

use crate::event_loop::{Running, ServiceError, bind};
use relay::Relay;
use std::io;
use std::net::{SocketAddr, TcpListener};

/// A floor that runs. Dropping it ends it.
pub struct Floor {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    pub(crate) running: Running,
}

/// Relays what comes to these addresses to the upstream, in a thread of this process.
///
/// # Errors
/// When an address is taken, or the system is out of something.
pub fn start(listen: &[SocketAddr], upstream: SocketAddr) -> Result<Floor, ServiceError> {
    let mut listeners = Vec::new();
    for address in listen {
        listeners.extend(bind(*address, 1)?);
    }
    let listen = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>();
    let running = Running::start(vec![(listeners, Relay::new(upstream))])?;
    Ok(Floor { listen: listen.map_err(ServiceError::System)?, running })
}

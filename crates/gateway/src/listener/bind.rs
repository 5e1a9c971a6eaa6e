//! Opens the sockets of the node's own APIs.
use crate::options;
use crate::settings::{Listen, Listeners};
use crate::start_error::StartError;
use std::io;
use weir_proxy::Traffic;
use weir_proxy::listen::{Bound, SocketTable};

/// The mode of Unix sockets: for the node's own user alone.
const OWN: u32 = 0o600;

/// Opens the sockets of the setting `name`, which errors mention, or takes them from those that this process was given.
pub(crate) fn bind(
    name: &'static str,
    listeners: &Listeners,
    sockets: &SocketTable,
) -> Result<Vec<Bound>, StartError> {
    let bind = |listen: &Listen| {
        if listen.http2 && !listen.ssl {
            tracing::warn!(
                "{name} {}: `http2` has no effect without `ssl`: this listener serves HTTP/2 over TLS only",
                listen.address
            );
        }
        let unsupported = |what| Err(io::Error::new(io::ErrorKind::Unsupported, what));
        let bound = match listen {
            Listen { quic: true, .. } => unsupported("`quic` is not supported here"),
            listen => sockets.bind(name, &options::listen(listen, Traffic::Http, OWN)),
        };
        bound.map_err(|error| StartError::Bind { name, address: listen.address.clone(), error })
    };
    listeners.0.iter().map(bind).collect()
}

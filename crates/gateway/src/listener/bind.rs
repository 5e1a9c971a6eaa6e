//! Opens the sockets of the node's own APIs.
use crate::data_plane::options;
use crate::settings::{Listen, Listeners};
use crate::start_error::StartError;
use std::io;
use weir_proxy::Traffic;
use weir_proxy::listen::{self, Bound};

/// For Unix sockets of the node's own user.
const OWN: u32 = 0o600;

/// Listens; the setting is named where that fails.
pub(crate) fn bind(name: &'static str, listeners: &Listeners) -> Result<Vec<Bound>, StartError> {
    let bind = |listen: &Listen| {
        if listen.http2 {
            tracing::warn!(
                "{name} {}: `http2` is without effect: only HTTP/1.1 is spoken here",
                listen.address
            );
        }
        let unspoken = |what| Err(io::Error::new(io::ErrorKind::Unsupported, what));
        let bound = match listen {
            Listen { proxy_protocol: true, .. } => unspoken("`proxy_protocol` is not spoken here"),
            Listen { quic: true, .. } => unspoken("`quic` is not spoken here"),
            listen => listen::bind(&options::listen(listen, Traffic::Http, OWN)),
        };
        bound.map_err(|error| StartError::Bind { name, address: listen.address.clone(), error })
    };
    listeners.0.iter().map(bind).collect()
}

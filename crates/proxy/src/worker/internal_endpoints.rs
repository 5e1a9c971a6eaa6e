//! Internal endpoints: requests to paths of the node itself, which it answers before it looks for a route.

use crate::exchange::is_forwarded;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use weir_plugin::{Exchange, LocalResponse};

/// A request to the node itself.
#[derive(Clone, PartialEq, Eq)]
pub struct InternalRequest {
    /// Who sent it.
    pub peer: SocketAddr,
    /// The method.
    pub method: String,
    /// The path and the query, as sent.
    pub target: String,
    /// Names and values of the headers.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Who answers requests to the node itself.
pub trait InternalHandler: Send + Sync + 'static {
    /// Whether a path, as sent to this address, is the node's own. Its query may hold a key, and is not logged.
    fn has(&self, local: SocketAddr, path: &str) -> bool;
    /// Whether a request to such a path is answered; if not, it is one like any other.
    fn admits(&self, from: &RequestOrigin<'_>) -> bool;
    /// Answers it. Runs on a worker: what takes long is to be done elsewhere.
    fn answer(&self, request: InternalRequest) -> Pin<Box<dyn Future<Output = LocalResponse> + Send>>;
    /// Reports a request that was rejected because its body is too long.
    fn too_long(&self, peer: SocketAddr, method: &str, path: &str);
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestOrigin<'e> {
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// The host that is asked for, with the port, as sent.
    pub host: &'e str,
    /// Whether a proxy says that it passes the request on, so that the peer is not who asks.
    pub is_forwarded: bool,
}

impl RequestOrigin<'_> {
    fn of(exchange: &Exchange) -> RequestOrigin<'_> {
        let host = exchange.request.host().unwrap_or_default();
        RequestOrigin { peer: exchange.peer, host, is_forwarded: is_forwarded(exchange) }
    }
}

/// The paths that the node answers itself; by default none.
#[derive(Clone, Default)]
pub struct InternalEndpoints(pub Option<Arc<dyn InternalHandler>>);

impl fmt::Debug for InternalEndpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "InternalEndpoints(…)" } else { "InternalEndpoints(none)" })
    }
}

impl InternalEndpoints {
    /// Who answers this request, if it is to the node itself.
    pub(crate) fn of(&self, exchange: &Exchange) -> Option<&dyn InternalHandler> {
        let own = self.0.as_deref()?;
        (self.has_path(exchange) && own.admits(&RequestOrigin::of(exchange))).then_some(own)
    }

    /// Whether the path is one of the node's own, for any client.
    pub(crate) fn has_path(&self, exchange: &Exchange) -> bool {
        self.0.as_deref().is_some_and(|own| own.has(exchange.local(), exchange.request.path()))
    }
}

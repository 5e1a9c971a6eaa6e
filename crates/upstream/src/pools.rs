//! The connection pools of one worker, over HTTP/1.1 and HTTP/2, and what they need to open connections.

use super::endpoint::{DynamicEndpointIds, Endpoint};
use super::http2::{Http2Pool, Http2UpstreamOptions};
use super::pool::{KeepAlive, Pool, UpstreamConnection};
use std::rc::Rc;
use std::sync::Arc;
use tokio::time::Instant;
use weir_net::connect::MemoryNetwork;
use weir_net::resolve::Resolver;

/// The connections of one worker to all upstreams.
pub struct Pools {
    /// Over HTTP/1.1, those that are idle.
    pub http1: Pool,
    /// Over HTTP/2, those that are shared.
    pub http2: Http2Pool,
    /// The ids of endpoints that requests choose.
    pub dynamic_ids: DynamicEndpointIds,
    /// How connections over HTTP/2 are shared.
    pub(super) sharing: Http2UpstreamOptions,
    /// How idle connections are kept.
    pub(super) keep_alive: KeepAlive,
    /// The node's.
    pub resolver: Arc<Resolver>,
    /// In the place of the system's network, if set.
    pub(super) memory: Option<Rc<dyn MemoryNetwork>>,
}

impl Pools {
    /// Without a connection.
    pub fn new(
        keep_alive: KeepAlive,
        sharing: Http2UpstreamOptions,
        resolver: Arc<Resolver>,
        memory: Option<Rc<dyn MemoryNetwork>>,
    ) -> Self {
        let (http1, http2) = (Pool::new(keep_alive.clone()), Http2Pool::default());
        let dynamic_ids = DynamicEndpointIds::default();
        Self { http1, http2, dynamic_ids, sharing, keep_alive, resolver, memory }
    }

    /// An idle connection over HTTP/1.1, to an address that the endpoint leads to now and that may be asked. Where SRV records
    /// give weights, it is the address whose turn it is.
    pub fn idle(
        &self,
        endpoint: &Endpoint,
        server_name: Option<&str>,
        turn: u64,
    ) -> Option<Box<UpstreamConnection>> {
        let address = endpoint.weighted_address(&self.resolver, turn);
        let leads_there = |upstream: &UpstreamConnection| match address {
            Some(_) => upstream.address == address,
            None => upstream.address_check.passes((endpoint, upstream.address), &self.resolver),
        };
        let idle = self.http1.take(endpoint.id, server_name, leads_there)?;
        endpoint.admits(idle.address).then_some(idle)
    }

    /// Closes connections that were idle for too long, or that the peer has closed.
    pub fn sweep(&self, now: Instant) {
        self.http1.sweep(now);
        self.http2.sweep(now, self.keep_alive.idle_timeout);
    }
}

//! Forwards the request over HTTP/2, where requests share connections.

use super::{AnyUpstream, AttemptError, UpstreamCall};
use crate::client::Client;
use crate::error::RequestError;
use crate::exchange::Exchange;
use crate::pipeline::relay::Upload;
use crate::pipeline::request_body;
use std::rc::Rc;
use weir_upstream::balance::Pick;
use weir_upstream::connect::ConnectAttempt;
use weir_upstream::endpoint::{Endpoint, UpstreamProtocol};
use weir_upstream::http2::Opened;
use weir_upstream::retry_budget::RetryReason;

/// How often a request is sent on a shared connection that then ends, which is no failure of the endpoint.
const STREAMS_TRIED: u32 = 3;

impl UpstreamCall<'_> {
    /// Asks on a shared connection; where that ends before the request is processed, on another.
    pub(super) async fn over_http2<C: Client>(
        &self,
        mut pick: Pick<'_>,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<(AnyUpstream, Upload), AttemptError> {
        let (worker, endpoint) = (self.worker, pick.endpoint);
        if exchange.engine.upgrade.is_some() && endpoint.protocol == UpstreamProtocol::Http2 {
            return Err(RequestError::NoTunnel.into());
        }
        if exchange.engine.upgrade.is_some() || worker.upstreams.http2.chose_http1(endpoint) {
            return Box::pin(self.over_http1(pick, client, exchange)).await;
        }
        request_body::gather(worker, client, exchange).await?;
        let server_name = self.server_name(endpoint, exchange);
        let mut tries = 0;
        loop {
            tries += 1;
            let mut reached = match worker.upstreams.ready_stream(endpoint, server_name.as_deref()) {
                Some(upstream) => AnyUpstream::Http2(upstream),
                // Boxed, so that a request has no room for what only a new upstream connection needs.
                None => Box::pin(self.open_http2(endpoint, server_name.clone(), client, exchange)).await?,
            };
            *reached.lease() = pick.lease.take();
            let asked = match &mut reached {
                AnyUpstream::Http1(upstream) => {
                    self.attempt(&mut **upstream, endpoint, client, exchange).await
                }
                AnyUpstream::Http2(upstream) => {
                    self.attempt(&mut **upstream, endpoint, client, exchange).await
                }
            };
            match asked {
                Ok(upload) => return Ok((reached, upload)),
                Err(failed) if failed.retry == Some(RetryReason::IdleClosed) && tries < STREAMS_TRIED => {
                    pick.lease = reached.lease().take();
                    self.idle_connection_closed(exchange);
                }
                Err(failed) => return Err(failed),
            }
        }
    }

    /// Waits for room on a shared connection, or opens one.
    async fn open_http2<C: Client>(
        &self,
        endpoint: &Endpoint,
        server_name: Option<Rc<str>>,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<AnyUpstream, AttemptError> {
        let upstreams = &self.worker.upstreams;
        let open =
            async |attempt: &ConnectAttempt| upstreams.open_stream(endpoint, server_name, attempt).await;
        Ok(match self.open((endpoint, self.worker.random()), client, exchange, open).await? {
            Opened::Http1(upstream) => AnyUpstream::Http1(upstream),
            Opened::Http2(upstream) => AnyUpstream::Http2(upstream),
        })
    }
}

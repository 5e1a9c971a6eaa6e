//! Asking an upstream over HTTP/2, where requests share connections.

use super::{Ask, Failed, Reached};
use crate::answer::Failure;
use crate::client::Client;
use crate::exchange::Exchange;
use crate::relay::Upload;
use crate::request_body;
use crate::upstream::balance::Pick;
use crate::upstream::connect::Trying;
use crate::upstream::endpoint::{Endpoint, Speaks};
use crate::upstream::http2::Opened;
use crate::upstream::retry_budget::Reason;
use std::rc::Rc;

/// How often a request is sent on a shared connection that then ends, which is no failure of the endpoint.
const STREAMS_TRIED: u32 = 3;

impl Ask<'_> {
    /// Asks on a shared connection; where that ends before the request is processed, on another.
    pub(super) async fn over_http2<C: Client>(
        &self,
        mut pick: Pick<'_>,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<(Reached, Upload), Failed> {
        let (worker, endpoint) = (self.worker, pick.endpoint);
        if exchange.engine.upgrade.is_some() && endpoint.speaks == Speaks::Http2 {
            return Err(Failure::NoTunnel.into());
        }
        if exchange.engine.upgrade.is_some() || worker.http2.chose_http1(endpoint) {
            return Box::pin(self.over_http1(pick, client, exchange)).await;
        }
        request_body::gather(worker, client, exchange).await?;
        let server_name = self.server_name(endpoint, exchange);
        let mut tries = 0;
        loop {
            tries += 1;
            let mut reached = match worker.http2.ready(worker, endpoint, server_name.as_deref()) {
                Some(upstream) => Reached::Http2(upstream),
                // Boxed, so that a request has no room for what only a new upstream connection needs.
                None => Box::pin(self.open_http2(endpoint, server_name.clone(), client, exchange)).await?,
            };
            *reached.lease() = pick.lease.take();
            let asked = match &mut reached {
                Reached::Http1(upstream) => self.ask(&mut **upstream, endpoint, client, exchange).await,
                Reached::Http2(upstream) => self.ask(&mut **upstream, endpoint, client, exchange).await,
            };
            match asked {
                Ok(upload) => return Ok((reached, upload)),
                Err(failed) if failed.retry == Some(Reason::Kept) && tries < STREAMS_TRIED => {
                    pick.lease = reached.lease().take();
                    self.kept_connection_ended(exchange);
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
    ) -> Result<Reached, Failed> {
        let worker = self.worker;
        let open = async |trying: &Trying| worker.http2.open(worker, endpoint, server_name, trying).await;
        Ok(match self.open(endpoint, client, exchange, open).await? {
            Opened::Http1(upstream) => Reached::Http1(upstream),
            Opened::Http2(upstream) => Reached::Http2(upstream),
        })
    }
}

//! Asking the upstream: picks an endpoint, gets a connection to it, sends the request and waits for the response's
//! head; tries again where that is safe.

use crate::answer::Failure;
use crate::client::Client;
use crate::exchange::Exchange;
use crate::head;
use crate::relay::{Awaited, Relay, Timeouts, Upload};
use crate::serve::unless_gone;
use crate::snapshot::{CompiledRoute, CompiledService, Destination};
use crate::telemetry;
use crate::upstream::connect::connect;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::pool::UpstreamConnection;
use crate::worker::Worker;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_http1::{Framing, Method};

/// What stays the same over all tries of one request.
pub(crate) struct Ask<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) route: &'a CompiledRoute,
    pub(crate) service: &'a CompiledService,
    /// How the request's body goes to the upstream.
    pub(crate) framing: Framing,
}

/// Why a try failed, and whether the request may have reached the upstream's application.
struct Lost {
    failure: Failure,
    unprocessed: bool,
}

impl Ask<'_> {
    /// The connection on which the response's head has arrived. The head is in the exchange.
    pub(crate) async fn forward<C: Client>(
        &self,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<(Box<UpstreamConnection>, Upload), Failure> {
        let mut tried = Vec::new();
        let mut retries = self.service.entity.retries;
        loop {
            let endpoint = self.pick(&tried)?;
            let server_name = self.server_name(endpoint, exchange);
            if let Some(mut upstream) = self.worker.pool.take(endpoint.id, server_name.as_deref()) {
                match self.ask(&mut upstream, endpoint, client, exchange).await {
                    Ok(upload) => return Ok((upstream, upload)),
                    // The peer had closed the idle connection: that is no failure of the endpoint.
                    Err(lost) if lost.unprocessed => {}
                    Err(lost) => return Err(lost.failure),
                }
            }
            let opened = self.open(endpoint, server_name, client, exchange).await;
            match opened {
                Ok(mut upstream) => {
                    let asked = self.ask(&mut upstream, endpoint, client, exchange).await;
                    return asked.map(|upload| (upstream, upload)).map_err(|lost| lost.failure);
                }
                Err(failure) if retries == 0 || matches!(failure, Failure::ClientGone) => {
                    return Err(failure);
                }
                Err(failure) => {
                    if self.worker.may_warn() {
                        telemetry::passed_over(exchange, self.service, endpoint, &failure);
                    }
                    retries -= 1;
                    tried.push(endpoint.id);
                    if self.pick(&tried).is_err() {
                        tried.clear();
                    }
                }
            }
        }
    }

    fn pick(&self, tried: &[u32]) -> Result<&Endpoint, Failure> {
        match &self.service.destination {
            Destination::Host(endpoint) if tried.contains(&endpoint.id) => Err(Failure::NoPeer),
            Destination::Host(endpoint) => Ok(endpoint),
            Destination::Upstream(balancer) => balancer.next(self.worker.index, tried).ok_or(Failure::NoPeer),
        }
    }

    /// The name that a TLS upstream is asked for: the host that the request names there.
    fn server_name(&self, endpoint: &Endpoint, exchange: &Exchange) -> Option<Rc<str>> {
        endpoint.tls.as_ref()?;
        let preserved = exchange.request.host().filter(|_| self.route.entity.preserve_host);
        let authority = preserved.unwrap_or(&endpoint.authority);
        Some(head::without_port(authority).into())
    }

    async fn open<C: Client>(
        &self,
        endpoint: &Endpoint,
        server_name: Option<Rc<str>>,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<Box<UpstreamConnection>, Failure> {
        let timeout = Duration::from_millis(self.service.entity.connect_timeout.into());
        exchange.timing.upstream_start.get_or_insert_with(Instant::now);
        // Boxed, so that a connection has no room for what only a new upstream connection needs.
        let opening = Box::pin(connect(self.worker, endpoint, server_name, timeout));
        unless_gone(client, opening).await.unwrap_or(Err(Failure::ClientGone))
    }

    /// Sends the request on this connection and waits for the head.
    async fn ask<C: Client>(
        &self,
        upstream: &mut UpstreamConnection,
        endpoint: &Endpoint,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<Upload, Lost> {
        exchange.asked = upstream.address;
        let reused = upstream.requests > 0;
        upstream.requests += 1;
        let now = *exchange.timing.upstream_start.get_or_insert_with(Instant::now);
        head::write_request(upstream.wire.outbox.writable(), exchange, self, &endpoint.authority);
        upstream.wire.begin_writing(self.framing);
        let timeouts = self.timeouts();
        client.deadline().set(now, timeouts.read);
        let mut relay = Relay {
            client,
            upstream,
            exchange,
            timeouts,
            limits: &self.worker.options.limits,
            max_body: self.worker.options.client_max_body_size,
            read_ahead: self.route.entity.response_buffering,
            upload: Upload::default(),
            awaited: Awaited::Response,
            interim: 0,
            lost: false,
        };
        match poll_fn(|cx| relay.poll_response(cx)).await {
            Ok(()) => Ok(relay.upload),
            Err(failure) => Err(Lost { unprocessed: reused && relay.is_unprocessed(&failure), failure }),
        }
    }

    /// This service's timeouts once connected.
    pub(crate) fn timeouts(&self) -> Timeouts {
        let millis = |ms: u32| Duration::from_millis(ms.into());
        Timeouts {
            write: millis(self.service.entity.write_timeout),
            read: millis(self.service.entity.read_timeout),
            client_body: self.worker.options.client_body_timeout,
            client_send: self.worker.options.send_timeout,
        }
    }
}

impl<C: Client> Relay<'_, C> {
    /// Whether a request on a reused connection can be sent again: the connection ended before a byte of response,
    /// the body is still here, and either nothing left this process or asking twice does no harm (RFC 9110 9.2.2).
    fn is_unprocessed(&self, failure: &Failure) -> bool {
        let ended = matches!(failure, Failure::UpstreamClosed(_));
        let nothing_back = self.upstream.wire.inbox.is_empty() && self.interim == 0;
        let nothing_out = !self.upstream.wire.touched;
        ended
            && nothing_back
            && self.upload.streamed == 0
            && (nothing_out || is_idempotent(self.exchange.request.method))
    }
}

fn is_idempotent(method: Method) -> bool {
    matches!(
        method,
        Method::Get | Method::Head | Method::Options | Method::Put | Method::Delete | Method::Trace
    )
}

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
use crate::upstream::balance::{Asking, Key, Pick};
use crate::upstream::connect::connect;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::health::Outcome;
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
        let mut key = self.key(exchange);
        loop {
            let Pick { endpoint, mut lease } = self.pick(&mut tried, key.as_ref())?;
            let server_name = self.server_name(endpoint, exchange);
            if let Some(mut upstream) = self.idle(endpoint, server_name.as_deref()) {
                upstream.lease = lease.take();
                match self.ask(&mut upstream, endpoint, client, exchange).await {
                    Ok(upload) => {
                        keep_to_target(key.take(), exchange);
                        return Ok((upstream, upload));
                    }
                    // The peer had closed the idle connection: that is no failure of the endpoint.
                    Err(lost) if lost.unprocessed => lease = upstream.lease.take(),
                    Err(lost) => return Err(lost.failure),
                }
            }
            let opened = self.open(endpoint, server_name, client, exchange).await;
            match opened {
                Ok(mut upstream) => {
                    upstream.lease = lease;
                    let asked = self.ask(&mut upstream, endpoint, client, exchange).await;
                    let upload = asked.map_err(|lost| lost.failure)?;
                    keep_to_target(key, exchange);
                    return Ok((upstream, upload));
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
                }
            }
        }
    }

    /// Whom to ask; once all were tried, they are tried again.
    fn pick(&self, tried: &mut Vec<u32>, key: Option<&Key>) -> Result<Pick<'_>, Failure> {
        let balancer = match &self.service.destination {
            Destination::Host(endpoint) => return Ok(Pick { endpoint, lease: None }),
            Destination::Upstream(balancer) => balancer,
        };
        let pick = |tried: &[u32]| {
            let random = &|| self.worker.random();
            balancer.pick(&Asking { worker: self.worker.index, tried, hash: key.map(|key| key.hash), random })
        };
        let picked = pick(tried);
        if picked.is_some() || tried.is_empty() {
            return picked.ok_or(Failure::NoPeer);
        }
        tried.clear();
        pick(tried).ok_or(Failure::NoPeer)
    }

    fn key(&self, exchange: &Exchange) -> Option<Key> {
        match &self.service.destination {
            Destination::Host(_) => None,
            Destination::Upstream(balancer) => balancer.key(exchange),
        }
    }

    /// An idle connection to an address of the endpoint that may be asked.
    fn idle(&self, endpoint: &Endpoint, server_name: Option<&str>) -> Option<Box<UpstreamConnection>> {
        let idle = self.worker.pool.take(endpoint.id, server_name)?;
        endpoint.admits(idle.address).then_some(idle)
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
            Ok(()) => {
                let upload = relay.upload;
                answered(upstream, endpoint, exchange.response.status);
                Ok(upload)
            }
            Err(failure) => {
                let unprocessed = reused && relay.is_unprocessed(&failure);
                // That a kept connection has ended says nothing of the target.
                let ended = reused && matches!(failure, Failure::UpstreamClosed(_));
                if let Some(outcome) = outcome(&failure).filter(|_| !ended) {
                    endpoint.met(upstream.address, outcome);
                }
                Err(Lost { unprocessed, failure })
            }
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

/// The target has answered: what that says of it.
fn answered(upstream: &UpstreamConnection, endpoint: &Endpoint, status: u16) {
    if endpoint.watch.is_some() {
        // As Kong has it: an upstream that speaks of a timeout of its own has run into one.
        let outcome = if status == 504 { Outcome::Timeout } else { Outcome::Status(status) };
        endpoint.met(upstream.address, outcome);
    }
    if let Some(lease) = &upstream.lease {
        lease.answered();
    }
}

/// What a failure says of the target; nothing, where it is the client's.
fn outcome(failure: &Failure) -> Option<Outcome> {
    match failure {
        Failure::UpstreamTimeout => Some(Outcome::Timeout),
        Failure::UpstreamClosed(_) => Some(Outcome::TcpFailure),
        Failure::UpstreamGarbage(_) => Some(Outcome::Status(0)),
        _ => None,
    }
}

/// Has the client come with the cookie that leads to the same target, if it needs one.
fn keep_to_target(key: Option<Key>, exchange: &mut Exchange) {
    if let Some(cookie) = key.and_then(|key| key.cookie) {
        exchange.response.headers.append("Set-Cookie", cookie.as_bytes());
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

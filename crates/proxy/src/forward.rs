//! Asking the upstream: picks an endpoint, gets a connection to it, sends the request and waits for the response's
//! head; tries again where that is safe.

mod over_http2;
mod retry;

use crate::answer::Failure;
use crate::client::Client;
use crate::exchange::{Exchange, FailedTry};
use crate::head;
use crate::plugin::engine::grpc_status;
use crate::plugin::without_port;
use crate::relay::{Awaited, Relay, Timeouts, Upload};
use crate::serve::{is_gone, unless_gone};
use crate::snapshot::{CompiledRoute, CompiledService, Destination};
use crate::telemetry;
use crate::upstream::Upstream;
use crate::upstream::balance::{Asking, Key, Lease, Pick};
use crate::upstream::connect::{Trying, connect};
use crate::upstream::endpoint::{Endpoint, Speaks};
use crate::upstream::health::Outcome;
use crate::upstream::http2::Http2Stream;
use crate::upstream::pool::UpstreamConnection;
use crate::upstream::retry_budget::Reason;
use crate::worker::Worker;
use h2::Reason as Reset;
use retry::Attempt;
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use weir_http1::Framing;

/// What stays the same over all tries of one request.
pub(crate) struct Ask<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) route: &'a CompiledRoute,
    pub(crate) service: &'a CompiledService,
    /// How the request's body goes to the upstream.
    pub(crate) framing: Framing,
    pub(crate) timeouts: Timeouts,
    /// How much of the client's body was counted and shown to plugins, which they see once however often it is sent.
    seen: Cell<u64>,
}

/// What answers, once the response's head is in the exchange.
pub(crate) enum Reached {
    Http1(Box<UpstreamConnection>),
    Http2(Box<Http2Stream>),
}

impl Reached {
    fn lease(&mut self) -> &mut Option<Lease> {
        match self {
            Self::Http1(upstream) => upstream.lease(),
            Self::Http2(upstream) => upstream.lease(),
        }
    }
}

/// An attempt that got no response.
struct Failed {
    failure: Failure,
    /// Why the request may be sent again, if it may.
    retry: Option<Reason>,
    /// When the target was asked, if there was a connection.
    asked: Option<Instant>,
}

impl From<Failure> for Failed {
    /// One that ends the request.
    fn from(failure: Failure) -> Self {
        Self { failure, retry: None, asked: None }
    }
}

/// The attempts that a request has left, and the targets that it was sent to.
struct Attempts {
    left: u16,
    tried: Vec<u32>,
}

impl<'a> Ask<'a> {
    /// Ends when the client says it has to be over, if it does.
    pub(crate) fn new(
        worker: &'a Worker,
        route: &'a CompiledRoute,
        service: &'a CompiledService,
        framing: Framing,
        ends: Option<Instant>,
    ) -> Self {
        let timeouts = timeouts(worker, service, ends);
        Self { worker, route, service, framing, timeouts, seen: Cell::new(0) }
    }

    /// Where the response's head has come from. The head is in the exchange.
    pub(crate) async fn forward<C: Client>(
        &self,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<(Reached, Upload), Failure> {
        let service = self.service;
        service.retry_budget.count_request(self.worker.index, exchange.timing.start);
        let mut attempts = Attempts { left: service.entity.retries, tried: Vec::new() };
        let key = self.key(exchange);
        let mut pick = self.pick(&mut attempts.tried, key.as_ref()).ok_or(Failure::NoPeer)?;
        loop {
            let endpoint = pick.endpoint;
            let asked = match endpoint.speaks {
                Speaks::Http1 => self.over_http1(pick, client, exchange).await,
                _ => Box::pin(self.over_http2(pick, client, exchange)).await,
            };
            let failed = match asked {
                Ok(reached) => {
                    keep_to_target(key, exchange);
                    return Ok(reached);
                }
                Err(failed) => failed,
            };
            if failed.retry.is_some() && is_gone(client).await {
                return Err(Failure::ClientGone);
            }
            pick = self.next_attempt(&mut attempts, key.as_ref(), (failed, endpoint), exchange)?;
        }
    }

    /// Whom to ask after an attempt that failed; its failure, where the request may not be sent again.
    fn next_attempt(
        &self,
        attempts: &mut Attempts,
        key: Option<&Key>,
        (failed, endpoint): (Failed, &Endpoint),
        exchange: &mut Exchange,
    ) -> Result<Pick<'_>, Failure> {
        let Failed { failure, retry, asked } = failed;
        let now = Instant::now();
        let reason = match retry {
            Some(reason) if attempts.left > 0 => reason,
            _ => return Err(failure),
        };
        if self.timeouts.ends.is_some_and(|ends| ends <= now) {
            return Err(Failure::DeadlineExceeded);
        }
        attempts.tried.push(endpoint.id);
        let Some(pick) = self.pick(&mut attempts.tried, key) else { return Err(failure) };
        // Connections that end one after another are failures of the target.
        let reason = if reason == Reason::Kept { Reason::Reset } else { reason };
        if !self.service.retry_budget.spend(reason, now) {
            return Err(failure);
        }
        attempts.left -= 1;
        if self.worker.may_warn() {
            telemetry::passed_over(exchange, self.service, endpoint, &failure);
        }
        if let Some(start) = asked {
            // What is left there is the address of the attempt that decides.
            let address = exchange.engine.upstream_addr.take();
            let port = address.map_or(endpoint.port, |address| address.port());
            exchange.engine.try_failed(FailedTry { address, port, start, end: now, code: code(&failure) });
        }
        Ok(pick)
    }

    /// Counts a request that a kept connection took with it when it ended.
    fn kept_connection_ended(&self, exchange: &mut Exchange) {
        exchange.engine.upstream_addr = None;
        self.service.retry_budget.spend(Reason::Kept, Instant::now());
    }

    /// Asks on a kept connection, or else on a new one.
    async fn over_http1<C: Client>(
        &self,
        Pick { endpoint, mut lease }: Pick<'_>,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<(Reached, Upload), Failed> {
        let server_name = self.server_name(endpoint, exchange);
        if let Some(mut upstream) = self.idle(endpoint, server_name.as_deref()) {
            upstream.lease = lease.take();
            match self.ask(&mut *upstream, endpoint, client, exchange).await {
                Ok(upload) => return Ok((Reached::Http1(upstream), upload)),
                // The peer had closed the idle connection: that is no failure of the endpoint.
                Err(failed) if failed.retry == Some(Reason::Kept) => {
                    lease = upstream.lease.take();
                    self.kept_connection_ended(exchange);
                }
                Err(failed) => return Err(failed),
            }
        }
        let open = async |trying: &Trying| connect(self.worker, endpoint, server_name, trying).await;
        // Boxed, so that a connection has no room for what only a new upstream connection needs.
        let mut upstream = Box::pin(self.open(endpoint, client, exchange, open)).await?;
        upstream.lease = lease;
        let upload = self.ask(&mut *upstream, endpoint, client, exchange).await?;
        Ok((Reached::Http1(upstream), upload))
    }

    /// Whom to ask, if anybody; once all were tried, they are tried again.
    fn pick(&self, tried: &mut Vec<u32>, key: Option<&Key>) -> Option<Pick<'_>> {
        let balancer = match &self.service.destination {
            Destination::Host(endpoint) => return Some(Pick { endpoint, lease: None }),
            Destination::Upstream(balancer) => balancer,
        };
        let pick = |tried: &[u32]| {
            let random = &|| self.worker.random();
            balancer.pick(&Asking { worker: self.worker.index, tried, hash: key.map(|key| key.hash), random })
        };
        let picked = pick(tried);
        if picked.is_some() || tried.is_empty() {
            return picked;
        }
        tried.clear();
        pick(tried)
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
        Some(without_port(head::authority(exchange, self, &endpoint.authority)).into())
    }

    /// Opens a connection within the timeout, unless the client leaves meanwhile.
    async fn open<C: Client, T>(
        &self,
        endpoint: &Endpoint,
        client: &mut C,
        exchange: &mut Exchange,
        open: impl AsyncFnOnce(&Trying) -> Result<T, Failure>,
    ) -> Result<T, Failed> {
        exchange.timing.upstream_start.get_or_insert_with(Instant::now);
        let (trying, start) = (Trying::default(), Instant::now());
        let opening = timeout(self.connect_timeout(), open(&trying));
        let opened = unless_gone(client, opening).await;
        if let Some(times) = exchange.times() {
            times.opened(&endpoint.host, (trying.get(), trying.resolved()), start.elapsed());
        }
        let failure = match opened {
            Some(Ok(Ok(opened))) => return Ok(opened),
            Some(Ok(Err(failure))) => failure,
            None => Failure::ClientGone,
            // The client's time is over, which says nothing of the target.
            Some(Err(_)) if self.timeouts.ends.is_some_and(|ends| ends <= Instant::now()) => {
                Failure::DeadlineExceeded
            }
            Some(Err(_)) => {
                endpoint.met(trying.get(), Outcome::Timeout);
                Failure::ConnectTimeout
            }
        };
        let (address, port) = (trying.get(), endpoint.port);
        let (end, code) = (Instant::now(), code(&failure));
        exchange.engine.try_failed(FailedTry { address, port, start, end, code });
        let is_over = matches!(failure, Failure::ClientGone | Failure::DeadlineExceeded);
        Err(Failed { failure, retry: (!is_over).then_some(Reason::Connect), asked: None })
    }

    fn connect_timeout(&self) -> Duration {
        let timeout = Duration::from_millis(self.service.entity.connect_timeout.into());
        self.timeouts.at_most(Instant::now(), timeout)
    }

    /// Sends the request and waits for the response's head.
    async fn ask<C: Client, U: Upstream>(
        &self,
        upstream: &mut U,
        endpoint: &Endpoint,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<Upload, Failed> {
        exchange.engine.upstream_addr = upstream.address();
        let now = Instant::now();
        exchange.timing.upstream_start.get_or_insert(now);
        upstream.begin(exchange, self, &endpoint.authority);
        let timeouts = &self.timeouts;
        client.deadline().set(now, timeouts.at_most(now, timeouts.read));
        let mut relay = Relay {
            client,
            upstream,
            exchange,
            timeouts,
            limits: &self.worker.options.limits,
            max_body: self.worker.options.client_max_body_size,
            read_ahead: self.route.entity.response_buffering,
            upload: Upload::new(self.seen.get()),
            awaited: Awaited::Response,
            lost: false,
        };
        match poll_fn(|cx| relay.poll_response(cx)).await {
            Ok(()) => {
                let upload = relay.upload;
                answered(upstream, endpoint, exchange.response.status);
                Ok(upload)
            }
            Err(failure) => {
                let upload = relay.upload;
                self.seen.set(upload.seen);
                if let Some(outcome) = self.outcome(&failure, exchange)
                    && upstream.tells_of_target(&failure)
                {
                    endpoint.met(upstream.address(), outcome);
                }
                let attempt = Attempt {
                    failure: &failure,
                    progress: upstream.progress(),
                    lost_kept_connection: upstream.lost_kept_connection(),
                    has_body: upload.can_be_repeated(),
                    method: exchange.request.method,
                };
                let retry = attempt.retry();
                Err(Failed { failure, retry, asked: Some(now) })
            }
        }
    }

    /// What a failure says of the target; nothing, where it is the client's.
    fn outcome(&self, failure: &Failure, exchange: &Exchange) -> Option<Outcome> {
        match failure {
            Failure::UpstreamTimeout => Some(Outcome::Timeout),
            // Servers end calls so whose time is over, or that were cancelled.
            Failure::UpstreamReset(Reset::CANCEL | Reset::NO_ERROR)
                if self.service.is_grpc() || grpc_status::is_call(exchange) =>
            {
                None
            }
            Failure::UpstreamClosed(_) | Failure::UpstreamReset(_) => Some(Outcome::TcpFailure),
            Failure::UpstreamGarbage(_) => Some(Outcome::Status(0)),
            _ => None,
        }
    }
}

/// The status that an attempt is logged with.
fn code(failure: &Failure) -> u16 {
    match failure {
        Failure::ConnectTimeout | Failure::UpstreamTimeout | Failure::DeadlineExceeded => 504,
        _ => 502,
    }
}

/// A service's timeouts once connected.
fn timeouts(worker: &Worker, service: &CompiledService, ends: Option<Instant>) -> Timeouts {
    let millis = |ms: u32| Duration::from_millis(ms.into());
    let read = millis(service.entity.read_timeout);
    Timeouts {
        write: millis(service.entity.write_timeout),
        read,
        // Either side of a stream of messages may be silent for as long as the service allows.
        client_body: if service.is_grpc() { read } else { worker.options.client_body_timeout },
        client_send: worker.options.send_timeout,
        ends,
    }
}

/// The target has answered: what that says of it.
fn answered<U: Upstream>(upstream: &mut U, endpoint: &Endpoint, status: u16) {
    if endpoint.watch.is_some() {
        // As Kong has it: an upstream that speaks of a timeout of its own has run into one.
        let outcome = if status == 504 { Outcome::Timeout } else { Outcome::Status(status) };
        endpoint.met(upstream.address(), outcome);
    }
    if let Some(lease) = upstream.lease() {
        lease.answered();
    }
}

/// Has the client come with the cookie that leads to the same target, if it needs one.
fn keep_to_target(key: Option<Key>, exchange: &mut Exchange) {
    if let Some(cookie) = key.and_then(|key| key.cookie) {
        exchange.response.headers.append("Set-Cookie", cookie.as_bytes());
    }
}

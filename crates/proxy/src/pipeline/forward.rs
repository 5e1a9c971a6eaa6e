//! Forwards the request to the upstream: picks an endpoint, gets a connection to it, sends the request and waits for
//! the response's head; retries if that is safe.

mod admission;
mod over_http2;
mod target;

use crate::client::Client;
use crate::client::Timeouts;
use crate::client::{is_gone, unless_gone};
use crate::error::RequestError;
use crate::exchange::{Exchange, FailedTry};
use crate::observe::telemetry;
use crate::pipeline::head::{self, Outgoing};
use crate::pipeline::relay::{Awaited, Relay, Upload};
use crate::pipeline::service_override::ServiceRef;
use crate::snapshot::{CompiledRoute, CompiledService};
use crate::worker::Worker;
use h2::Reason as Reset;
use std::cell::{Cell, OnceCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;
use target::keep_to_target;
use tokio::time::Instant;
use tokio::time::timeout;
use weir_http1::Framing;
use weir_plugin::engine::grpc_status;
use weir_plugin::without_port;
use weir_upstream::balance::{Key, Lease, Pick};
use weir_upstream::connect::ConnectAttempt;
use weir_upstream::endpoint::{Endpoint, UpstreamProtocol};
use weir_upstream::health::Outcome;
use weir_upstream::http2::Http2Stream;
use weir_upstream::limit::UpstreamPermit;
use weir_upstream::pool::UpstreamConnection;
use weir_upstream::retry::FailedAttempt;
use weir_upstream::retry_budget::RetryReason;
use weir_upstream::{Upstream, UpstreamError};

/// What stays the same over all tries of one request.
pub(crate) struct UpstreamCall<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) route: &'a CompiledRoute,
    pub(crate) service: ServiceRef<'a>,
    /// How the request's body goes to the upstream.
    pub(crate) framing: Framing,
    pub(crate) timeouts: Timeouts,
    /// How much of the client's body was counted and shown to plugins, which they see once however often it is sent.
    seen: Cell<u64>,
    /// How long the client was waited for, all together.
    client_took: Cell<Duration>,
    /// Counts the request in flight, where the upstream has limits.
    permit: OnceCell<UpstreamPermit>,
}

/// What answers, once the response's head is in the exchange.
pub(crate) enum AnyUpstream {
    Http1(Box<UpstreamConnection>),
    Http2(Box<Http2Stream>),
}

impl AnyUpstream {
    fn lease(&mut self) -> &mut Option<Lease> {
        match self {
            Self::Http1(upstream) => upstream.lease(),
            Self::Http2(upstream) => upstream.lease(),
        }
    }
}

/// An attempt that got no response.
struct AttemptError {
    failure: RequestError,
    /// Why the request may be sent again, if it may.
    retry: Option<RetryReason>,
    /// When the target was asked, if there was a connection.
    asked: Option<Instant>,
}

impl From<RequestError> for AttemptError {
    /// One that ends the request.
    fn from(failure: RequestError) -> Self {
        Self { failure, retry: None, asked: None }
    }
}

/// The attempts that a request has left, and the targets that it was sent to.
struct Attempts {
    left: u16,
    tried: Vec<u32>,
}

impl<'a> UpstreamCall<'a> {
    /// Ends when the client says it has to be over, if it does.
    pub(crate) fn new(
        worker: &'a Worker,
        route: &'a CompiledRoute,
        service: ServiceRef<'a>,
        framing: Framing,
        ends: Option<Instant>,
    ) -> Self {
        let timeouts = timeouts(worker, &service, ends);
        let (seen, client_took, permit) = (Cell::new(0), Cell::new(Duration::ZERO), OnceCell::new());
        Self { worker, route, service, framing, timeouts, seen, client_took, permit }
    }

    /// Where the response's head has come from. The head is in the exchange.
    pub(crate) async fn forward<C: Client>(
        &self,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<(AnyUpstream, Upload), RequestError> {
        let service = &*self.service;
        service.retry_budget.count_request(self.worker.index, exchange.timing.start);
        let mut attempts = Attempts { left: service.entity.retries, tried: Vec::new() };
        let key = self.key(exchange);
        let mut pick = match &service.limit {
            None => self.pick(&mut attempts.tried, key.as_ref()).ok_or(UpstreamError::NoTarget)?,
            Some(limit) => self.admitted(limit, client, (&mut attempts.tried, key.as_ref())).await?,
        };
        loop {
            let endpoint = pick.endpoint;
            let asked = match endpoint.protocol {
                UpstreamProtocol::Http1 => self.over_http1(pick, client, exchange).await,
                _ => Box::pin(self.over_http2(pick, client, exchange)).await,
            };
            let failed = match asked {
                Ok(reached) => {
                    self.record_latency(Ok(exchange.response.status));
                    keep_to_target(key, exchange);
                    return Ok(reached);
                }
                Err(failed) => failed,
            };
            self.record_latency(Err(&failed.failure));
            if failed.retry.is_some() && is_gone(client).await {
                return Err(RequestError::ClientGone);
            }
            pick = self.next_attempt(&mut attempts, key.as_ref(), (failed, endpoint), exchange)?;
        }
    }

    /// Whom to ask after an attempt that failed; its failure, where the request may not be sent again.
    fn next_attempt(
        &self,
        attempts: &mut Attempts,
        key: Option<&Key>,
        (failed, endpoint): (AttemptError, &Endpoint),
        exchange: &mut Exchange,
    ) -> Result<Pick<'_>, RequestError> {
        let AttemptError { failure, retry, asked } = failed;
        let now = Instant::now();
        let reason = match retry {
            Some(reason) if attempts.left > 0 => reason,
            _ => return Err(failure),
        };
        if self.timeouts.ends.is_some_and(|ends| ends <= now) {
            return Err(RequestError::DeadlineExceeded);
        }
        attempts.tried.push(endpoint.id);
        let Some(pick) = self.pick(&mut attempts.tried, key) else { return Err(failure) };
        // Connections that end one after another are failures of the target.
        let reason = if reason == RetryReason::IdleClosed { RetryReason::Reset } else { reason };
        if !self.service.retry_budget.spend(reason, now) {
            return Err(failure);
        }
        attempts.left -= 1;
        if self.worker.may_warn() {
            telemetry::passed_over(exchange, &self.service, endpoint, &failure);
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
    fn idle_connection_closed(&self, exchange: &mut Exchange) {
        exchange.engine.upstream_addr = None;
        self.service.retry_budget.spend(RetryReason::IdleClosed, Instant::now());
    }

    /// Asks on a kept connection, or else on a new one.
    async fn over_http1<C: Client>(
        &self,
        Pick { endpoint, mut lease }: Pick<'_>,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<(AnyUpstream, Upload), AttemptError> {
        let (server_name, turn) = (self.server_name(endpoint, exchange), self.worker.random());
        if let Some(mut upstream) = self.worker.upstreams.idle(endpoint, server_name.as_deref(), turn) {
            upstream.lease = lease.take();
            match self.attempt(&mut *upstream, endpoint, client, exchange).await {
                Ok(upload) => {
                    exchange.decision.reused = true;
                    return Ok((AnyUpstream::Http1(upstream), upload));
                }
                // The peer had closed the idle connection: that is no failure of the endpoint.
                Err(failed) if failed.retry == Some(RetryReason::IdleClosed) => {
                    lease = upstream.lease.take();
                    self.idle_connection_closed(exchange);
                }
                Err(failed) => return Err(failed),
            }
        }
        let upstreams = &self.worker.upstreams;
        let open = async |attempt: &ConnectAttempt| upstreams.connect(endpoint, server_name, attempt).await;
        // Boxed, so that a connection has no room for what only a new upstream connection needs.
        let mut upstream = Box::pin(self.open((endpoint, turn), client, exchange, open)).await?;
        upstream.lease = lease;
        let upload = self.attempt(&mut *upstream, endpoint, client, exchange).await?;
        Ok((AnyUpstream::Http1(upstream), upload))
    }

    /// The name that a TLS upstream is asked for: the host that the request names there.
    fn server_name(&self, endpoint: &Endpoint, exchange: &Exchange) -> Option<Rc<str>> {
        endpoint.tls.as_ref()?;
        Some(without_port(head::authority(exchange, self, &endpoint.authority)).into())
    }

    /// Opens a connection within the timeout, unless the client leaves meanwhile.
    async fn open<C: Client, T>(
        &self,
        (endpoint, turn): (&Endpoint, u64),
        client: &mut C,
        exchange: &mut Exchange,
        open: impl AsyncFnOnce(&ConnectAttempt) -> Result<T, UpstreamError>,
    ) -> Result<T, AttemptError> {
        exchange.timing.upstream_start.get_or_insert_with(Instant::now);
        let (attempt, start) = (ConnectAttempt::new(turn), Instant::now());
        let opening = timeout(self.connect_timeout(), open(&attempt));
        let opened = unless_gone(client, opening).await;
        let took = start.elapsed();
        exchange.decision.connected(took);
        if let Some(times) = exchange.times() {
            times.opened(&endpoint.host, (attempt.get(), attempt.resolved()), took);
        }
        if let Some(resolved) = attempt.resolved()
            && exchange.engine.instrumentations().is_some_and(|on| on.dns_query)
        {
            exchange.engine.step_done("kong.dns", start, start + resolved.took);
        }
        let failure = match opened {
            Some(Ok(Ok(opened))) => return Ok(opened),
            Some(Ok(Err(error))) => error.into(),
            None => RequestError::ClientGone,
            // The client's time is over, which says nothing of the target.
            Some(Err(_)) if self.timeouts.ends.is_some_and(|ends| ends <= Instant::now()) => {
                RequestError::DeadlineExceeded
            }
            Some(Err(_)) => {
                endpoint.record_outcome(attempt.get(), Outcome::Timeout);
                UpstreamError::ConnectTimeout.into()
            }
        };
        let (address, port) = (attempt.get(), endpoint.port);
        let (end, code) = (Instant::now(), code(&failure));
        exchange.engine.try_failed(FailedTry { address, port, start, end, code });
        let is_over = matches!(failure, RequestError::ClientGone | RequestError::DeadlineExceeded);
        Err(AttemptError { failure, retry: (!is_over).then_some(RetryReason::Connect), asked: None })
    }

    fn connect_timeout(&self) -> Duration {
        let timeout = Duration::from_millis(self.service.entity.connect_timeout.into());
        self.timeouts.at_most(Instant::now(), timeout)
    }

    /// Sends the request and waits for the response's head.
    async fn attempt<C: Client, U: Upstream>(
        &self,
        upstream: &mut U,
        endpoint: &Endpoint,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<Upload, AttemptError> {
        exchange.engine.upstream_addr = upstream.address();
        let now = Instant::now();
        exchange.timing.upstream_start.get_or_insert(now);
        let srv = endpoint.srv_authority(&self.worker.upstreams.resolver, upstream.address());
        let authority = srv.as_deref().unwrap_or(&endpoint.authority);
        upstream.begin(&Outgoing { exchange, call: self, authority });
        let timeouts = &self.timeouts;
        client.deadline().set(now, timeouts.at_most(now, timeouts.read));
        let mut relay = Relay {
            client,
            upstream,
            exchange,
            chain: &self.route.chain,
            timeouts,
            limits: &self.worker.options.limits,
            max_body: self.worker.options.client_max_body_size,
            read_ahead: self.route.response_buffering,
            upload: Upload::new(self.seen.get()),
            awaited: Awaited::Response,
            has_interim: false,
            lost: false,
        };
        let outcome = poll_fn(|cx| relay.poll_response(cx)).await;
        let upload = relay.upload;
        self.client_took.set(self.client_took.get() + upload.client_took);
        match outcome {
            Ok(()) => {
                answered(upstream, endpoint, exchange.response.status, upload.client_took);
                Ok(upload)
            }
            Err(failure) => {
                self.seen.set(upload.seen);
                // What has come of a head is not the beginning of the next attempt's.
                exchange.response.clear();
                let retry = match &failure {
                    RequestError::Upstream(error) => {
                        self.record(error, (&*upstream, endpoint), exchange);
                        let attempt = FailedAttempt {
                            error,
                            progress: upstream.progress(),
                            lost_idle_connection: upstream.lost_idle_connection(),
                            has_body: upload.can_be_repeated(),
                            method: exchange.request.method,
                        };
                        attempt.retry()
                    }
                    _ => None,
                };
                Err(AttemptError { failure, retry, asked: Some(now) })
            }
        }
    }

    /// Records what an error says of the target, if it says anything.
    fn record<U: Upstream>(
        &self,
        error: &UpstreamError,
        (upstream, endpoint): (&U, &Endpoint),
        exchange: &Exchange,
    ) {
        if let Some(outcome) = self.outcome(error, exchange)
            && upstream.tells_of_target(error)
        {
            endpoint.record_outcome(upstream.address(), outcome);
        }
    }

    /// What an error says of the target; nothing, where it is the client's.
    fn outcome(&self, error: &UpstreamError, exchange: &Exchange) -> Option<Outcome> {
        match error {
            UpstreamError::Timeout => Some(Outcome::Timeout),
            // Servers end calls so whose time is over, or that were cancelled.
            UpstreamError::Reset(Reset::CANCEL | Reset::NO_ERROR)
                if self.service.is_grpc() || grpc_status::is_call(exchange) =>
            {
                None
            }
            UpstreamError::Closed(_) | UpstreamError::Reset(_) => Some(Outcome::TcpFailure),
            UpstreamError::InvalidResponse(_) => Some(Outcome::Status(0)),
            _ => None,
        }
    }
}

/// The status that an attempt is logged with.
fn code(failure: &RequestError) -> u16 {
    match failure {
        RequestError::DeadlineExceeded => 504,
        RequestError::Upstream(error) if error.is_timeout() => 504,
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
        client_body_rate: if service.is_grpc() { 0 } else { worker.options.client_body_min_rate },
        client_send: worker.options.send_timeout,
        ends,
    }
}

/// The target has answered: what that says of it. The time for which the client was waited for says nothing.
fn answered<U: Upstream>(upstream: &mut U, endpoint: &Endpoint, status: u16, client_took: Duration) {
    if endpoint.monitor.is_some() {
        // As Kong has it: an upstream that speaks of a timeout of its own has run into one.
        let outcome = if status == 504 { Outcome::Timeout } else { Outcome::Status(status) };
        endpoint.record_outcome(upstream.address(), outcome);
    }
    if let Some(lease) = upstream.lease() {
        lease.answered(client_took);
    }
}

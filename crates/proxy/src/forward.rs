//! Asking the upstream: picks an endpoint, gets a connection to it, sends the request and waits for the response's
//! head; tries again where that is safe.

use crate::answer::Failure;
use crate::client::Client;
use crate::exchange::{Exchange, FailedTry};
use crate::head;
use crate::relay::{Awaited, Relay, Timeouts, Upload};
use crate::request_body;
use crate::serve::unless_gone;
use crate::snapshot::{CompiledRoute, CompiledService, Destination};
use crate::telemetry;
use crate::upstream::Upstream;
use crate::upstream::balance::{Asking, Key, Lease, Pick};
use crate::upstream::connect::{Trying, connect};
use crate::upstream::endpoint::{Endpoint, Speaks};
use crate::upstream::health::Outcome;
use crate::upstream::http2::{Http2Stream, Opened};
use crate::upstream::pool::UpstreamConnection;
use crate::worker::Worker;
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

/// Why a try failed.
enum Missed {
    /// The request may have reached the upstream's application, or nothing would change.
    Failed(Failure),
    /// There is no connection: another endpoint may be asked.
    Unreached(Failure),
}

/// Why a request got no response, and whether it can be sent again.
struct Lost {
    failure: Failure,
    unprocessed: bool,
}

/// How often a request that an upstream refused over HTTP/2 is sent in all.
const STREAMS_TRIED: u32 = 3;

impl<'a> Ask<'a> {
    /// Ends when the client says it has to be over, if it does.
    pub(crate) fn new(
        worker: &'a Worker,
        route: &'a CompiledRoute,
        service: &'a CompiledService,
        framing: Framing,
        ends: Option<Instant>,
    ) -> Self {
        Self { worker, route, service, framing, timeouts: timeouts(worker, service, ends) }
    }

    /// Where the response's head has come from. The head is in the exchange.
    pub(crate) async fn forward<C: Client>(
        &self,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<(Reached, Upload), Failure> {
        let mut tried = Vec::new();
        let mut retries = self.service.entity.retries;
        let key = self.key(exchange);
        loop {
            let pick = self.pick(&mut tried, key.as_ref())?;
            let endpoint = pick.endpoint;
            let asked = match endpoint.speaks {
                Speaks::Http1 => self.over_http1(pick, client, exchange).await,
                _ => Box::pin(self.over_http2(pick, client, exchange)).await,
            };
            match asked {
                Ok(reached) => {
                    keep_to_target(key, exchange);
                    return Ok(reached);
                }
                Err(Missed::Failed(failure)) => return Err(failure),
                Err(Missed::Unreached(failure)) if retries == 0 => return Err(failure),
                Err(Missed::Unreached(failure)) => {
                    if self.worker.may_warn() {
                        telemetry::passed_over(exchange, self.service, endpoint, &failure);
                    }
                    retries -= 1;
                    tried.push(endpoint.id);
                }
            }
        }
    }

    /// Asks on a kept connection, or else on a new one.
    async fn over_http1<C: Client>(
        &self,
        Pick { endpoint, mut lease }: Pick<'_>,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<(Reached, Upload), Missed> {
        let server_name = self.server_name(endpoint, exchange);
        if let Some(mut upstream) = self.idle(endpoint, server_name.as_deref()) {
            upstream.lease = lease.take();
            match self.ask(&mut *upstream, endpoint, client, exchange).await {
                Ok(upload) => return Ok((Reached::Http1(upstream), upload)),
                // The peer had closed the idle connection: that is no failure of the endpoint.
                Err(lost) if lost.unprocessed => lease = upstream.lease.take(),
                Err(lost) => return Err(Missed::Failed(lost.failure)),
            }
        }
        let open = async |trying: &Trying| connect(self.worker, endpoint, server_name, trying).await;
        // Boxed, so that a connection has no room for what only a new upstream connection needs.
        let mut upstream = Box::pin(self.open(endpoint, client, exchange, open)).await?;
        upstream.lease = lease;
        match self.ask(&mut *upstream, endpoint, client, exchange).await {
            Ok(upload) => Ok((Reached::Http1(upstream), upload)),
            Err(lost) => Err(Missed::Failed(lost.failure)),
        }
    }

    /// Asks on a shared connection; a request that was not processed is asked again, elsewhere if need be.
    async fn over_http2<C: Client>(
        &self,
        mut pick: Pick<'_>,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<(Reached, Upload), Missed> {
        let (worker, endpoint) = (self.worker, pick.endpoint);
        if exchange.upgrade.is_some() && endpoint.speaks == Speaks::Http2 {
            return Err(Missed::Failed(Failure::NoTunnel));
        }
        if exchange.upgrade.is_some() || worker.http2.chose_http1(endpoint) {
            return Box::pin(self.over_http1(pick, client, exchange)).await;
        }
        request_body::gather(worker, client, exchange).await.map_err(Missed::Failed)?;
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
                Err(lost) if lost.unprocessed && tries < STREAMS_TRIED => {
                    pick.lease = reached.lease().take();
                }
                Err(lost) => return Err(Missed::Failed(lost.failure)),
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
    ) -> Result<Reached, Missed> {
        let worker = self.worker;
        let open = async |trying: &Trying| worker.http2.open(worker, endpoint, server_name, trying).await;
        Ok(match self.open(endpoint, client, exchange, open).await? {
            Opened::Http1(upstream) => Reached::Http1(upstream),
            Opened::Http2(upstream) => Reached::Http2(upstream),
        })
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
        Some(head::without_port(head::authority(exchange, self, &endpoint.authority)).into())
    }

    /// Opens a connection within the timeout, unless the client leaves meanwhile.
    async fn open<C: Client, T>(
        &self,
        endpoint: &Endpoint,
        client: &mut C,
        exchange: &mut Exchange,
        open: impl AsyncFnOnce(&Trying) -> Result<T, Failure>,
    ) -> Result<T, Missed> {
        exchange.timing.upstream_start.get_or_insert_with(Instant::now);
        let (trying, start) = (Trying::default(), Instant::now());
        let opening = timeout(self.connect_timeout(), open(&trying));
        let opened = unless_gone(client, opening).await;
        if let Some(times) = exchange.times() {
            times.opened(&endpoint.host, (trying.get(), trying.resolved()), start.elapsed());
        }
        if !matches!(opened, Some(Ok(Ok(_)))) {
            let (address, port) = (trying.get(), endpoint.port);
            exchange.try_failed(FailedTry { address, port, start, end: Instant::now() });
        }
        match opened {
            None => Err(Missed::Failed(Failure::ClientGone)),
            Some(Ok(opened)) => opened.map_err(Missed::Unreached),
            // The client's time is over, which says nothing of the target.
            Some(Err(_)) if self.timeouts.ends.is_some_and(|ends| ends <= Instant::now()) => {
                Err(Missed::Failed(Failure::DeadlineExceeded))
            }
            Some(Err(_)) => {
                endpoint.met(trying.get(), Outcome::Timeout);
                Err(Missed::Unreached(Failure::ConnectTimeout))
            }
        }
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
    ) -> Result<Upload, Lost> {
        exchange.asked = upstream.address();
        let now = *exchange.timing.upstream_start.get_or_insert_with(Instant::now);
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
            upload: Upload::default(),
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
                // What was taken from the client cannot be sent again.
                let unprocessed =
                    relay.upload.streamed == 0 && relay.upstream.is_unprocessed(relay.exchange, &failure);
                if let Some(outcome) = outcome(&failure)
                    && upstream.tells_of_target(&failure)
                {
                    endpoint.met(upstream.address(), outcome);
                }
                Err(Lost { failure, unprocessed })
            }
        }
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

//! Asking the upstream: picks an endpoint, gets a connection to it, sends the request and waits for the response's
//! head; tries again where that is safe.

use crate::answer::Failure;
use crate::client::Client;
use crate::exchange::Exchange;
use crate::head;
use crate::relay::{Awaited, Relay, Timeouts, Upload};
use crate::request_body;
use crate::serve::unless_gone;
use crate::snapshot::{CompiledRoute, CompiledService, Destination};
use crate::telemetry;
use crate::upstream::Upstream;
use crate::upstream::connect::connect;
use crate::upstream::endpoint::{Endpoint, Speaks};
use crate::upstream::http2::{Http2Stream, Opened};
use crate::upstream::pool::UpstreamConnection;
use crate::worker::Worker;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_http1::Framing;

/// What stays the same over all tries of one request.
pub(crate) struct Ask<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) route: &'a CompiledRoute,
    pub(crate) service: &'a CompiledService,
    /// How the request's body goes to the upstream.
    pub(crate) framing: Framing,
    /// When it has to be over, where the client says so.
    pub(crate) ends: Option<Instant>,
}

/// What answers, once the response's head is in the exchange.
pub(crate) enum Reached {
    Http1(Box<UpstreamConnection>),
    Http2(Box<Http2Stream>),
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

impl Ask<'_> {
    /// Where the response's head has come from. The head is in the exchange.
    pub(crate) async fn forward<C: Client>(
        &self,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<(Reached, Upload), Failure> {
        let mut tried = Vec::new();
        let mut retries = self.service.entity.retries;
        loop {
            let endpoint = self.pick(&tried)?;
            let asked = match endpoint.speaks {
                Speaks::Http1 => self.over_http1(endpoint, client, exchange).await,
                _ => Box::pin(self.over_http2(endpoint, client, exchange)).await,
            };
            match asked {
                Ok(reached) => return Ok(reached),
                Err(Missed::Failed(failure)) => return Err(failure),
                Err(Missed::Unreached(failure)) if retries == 0 || matches!(failure, Failure::ClientGone) => {
                    return Err(failure);
                }
                Err(Missed::Unreached(failure)) => {
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

    /// Asks on a kept connection, or else on a new one.
    async fn over_http1<C: Client>(
        &self,
        endpoint: &Endpoint,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<(Reached, Upload), Missed> {
        let server_name = self.server_name(endpoint, exchange);
        if let Some(mut upstream) = self.worker.pool.take(endpoint.id, server_name.as_deref()) {
            match self.ask(&mut *upstream, endpoint, client, exchange).await {
                Ok(upload) => return Ok((Reached::Http1(upstream), upload)),
                // The peer had closed the idle connection: that is no failure of the endpoint.
                Err(lost) if lost.unprocessed => {}
                Err(lost) => return Err(Missed::Failed(lost.failure)),
            }
        }
        // Boxed, so that a connection has no room for what only a new upstream connection needs.
        let opening = Box::pin(connect(self.worker, endpoint, server_name, self.connect_timeout()));
        let opened = self.unless_gone(client, exchange, opening).await;
        let mut upstream = opened.map_err(Missed::Unreached)?;
        match self.ask(&mut *upstream, endpoint, client, exchange).await {
            Ok(upload) => Ok((Reached::Http1(upstream), upload)),
            Err(lost) => Err(Missed::Failed(lost.failure)),
        }
    }

    /// Asks on a shared connection; a request that was not processed is asked again, elsewhere if need be.
    async fn over_http2<C: Client>(
        &self,
        endpoint: &Endpoint,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<(Reached, Upload), Missed> {
        let worker = self.worker;
        if worker.http2.chose_http1(endpoint) {
            return self.over_http1(endpoint, client, exchange).await;
        }
        request_body::gather(worker, client, exchange).await.map_err(Missed::Failed)?;
        let server_name = self.server_name(endpoint, exchange);
        let mut tries = 0;
        loop {
            tries += 1;
            let opening = worker.http2.open(worker, endpoint, server_name.clone());
            let opening = async {
                let opened = tokio::time::timeout(self.connect_timeout(), opening).await;
                opened.unwrap_or(Err(Failure::ConnectTimeout))
            };
            let opened = self.unless_gone(client, exchange, opening).await;
            let mut reached = match opened.map_err(Missed::Unreached)? {
                Opened::Http1(upstream) => Reached::Http1(upstream),
                Opened::Http2(upstream) => Reached::Http2(upstream),
            };
            let asked = match &mut reached {
                Reached::Http1(upstream) => self.ask(&mut **upstream, endpoint, client, exchange).await,
                Reached::Http2(upstream) => self.ask(&mut **upstream, endpoint, client, exchange).await,
            };
            match asked {
                Ok(upload) => return Ok((reached, upload)),
                Err(lost) if lost.unprocessed && tries < STREAMS_TRIED => {}
                Err(lost) => return Err(Missed::Failed(lost.failure)),
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

    /// Opens a connection, unless the client leaves meanwhile.
    async fn unless_gone<C: Client, T>(
        &self,
        client: &mut C,
        exchange: &mut Exchange,
        opening: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        exchange.timing.upstream_start.get_or_insert_with(Instant::now);
        unless_gone(client, opening).await.unwrap_or(Err(Failure::ClientGone))
    }

    fn connect_timeout(&self) -> Duration {
        let timeout = Duration::from_millis(self.service.entity.connect_timeout.into());
        self.timeouts().at_most(Instant::now(), timeout)
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
        let timeouts = self.timeouts();
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
            Ok(()) => Ok(relay.upload),
            Err(failure) => {
                // What was taken from the client cannot be sent again.
                let unprocessed =
                    relay.upload.streamed == 0 && relay.upstream.is_unprocessed(relay.exchange, &failure);
                Err(Lost { failure, unprocessed })
            }
        }
    }

    /// This service's timeouts once connected.
    pub(crate) fn timeouts(&self) -> Timeouts {
        let millis = |ms: u32| Duration::from_millis(ms.into());
        let read = millis(self.service.entity.read_timeout);
        // Either side of a stream of messages may be silent for as long as the service allows.
        let is_grpc = self.service.is_grpc();
        Timeouts {
            write: millis(self.service.entity.write_timeout),
            read,
            client_body: if is_grpc { read } else { self.worker.options.client_body_timeout },
            client_send: self.worker.options.send_timeout,
            ends: self.ends,
        }
    }
}

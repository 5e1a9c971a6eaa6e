//! Proxies a request: forwards it to the upstream and relays the response.

use super::{Outcome, fallback};
use crate::client::{AbortCode, Client};
use crate::error::RelayError;
use crate::error::RequestError;
use crate::exchange::{Exchange, Source};
use crate::limits::NodeLimit;
use crate::observe::recorder::error_response;
use crate::observe::telemetry;
use crate::pipeline::forward::{AnyUpstream, UpstreamCall};
use crate::pipeline::grpc;
use crate::pipeline::relay::{Awaited, Relay, Upload};
use crate::pipeline::request_body;
use crate::pipeline::respond;
use crate::pipeline::response_body;
use crate::pipeline::service_override::ServiceRef;
use crate::snapshot::{CompiledRoute, CompiledService};
use crate::tunnel::{self, Tunnel};
use crate::worker::Worker;
use h2::Reason;
use std::future::poll_fn;
use std::task::Poll;
use tokio::time::Instant;
use weir_http1::{Framing, Known};
use weir_plugin::engine::{self, grpc_status};
use weir_plugin::{LocalResponse, UpstreamOutcome};
use weir_upstream::pool::UpstreamConnection;
use weir_upstream::{Upstream, UpstreamError};

/// A response that an upstream has begun: its head is in the exchange.
pub(super) struct UpstreamResponse<'s> {
    call: UpstreamCall<'s>,
    upstream: Option<AnyUpstream>,
    upload: Option<Upload>,
}

/// Asks the upstream.
pub(super) async fn ask<'s, C: Client>(
    worker: &'s Worker,
    client: &mut C,
    exchange: &mut Exchange,
    (route, service): (&'s CompiledRoute, &'s CompiledService),
) -> Outcome<'s> {
    let framing = match request_body::buffer(worker, client, exchange, route).await {
        Ok(framing) => framing,
        Err(failure) => return Outcome::Local(error_response(exchange, &failure)),
    };
    if framing != Framing::Chunked {
        exchange.request.headers.remove_known(Known::Trailer);
    }
    let method = exchange.request.method;
    exchange.engine.upgrade.take_if(|protocol| !tunnel::is_allowed(&route.entity, method, protocol));
    let mut reached = reach(worker, client, exchange, (route, service), framing).await;
    if engine::may_fall_back(exchange) {
        // Boxed, so that a connection has no room for what few requests need.
        reached = Box::pin(fallback::run(worker, client, exchange, (route, service), reached)).await;
    }
    match reached {
        Ok((call, AnyUpstream::Http1(upstream), _)) if exchange.response.status == 101 => {
            arrived(client, exchange, &call);
            exchange.engine.body = None;
            open_tunnel(&call, client, exchange, upstream).map_or(Outcome::Head, Outcome::Tunnel)
        }
        Ok((call, upstream, upload)) => {
            Outcome::Upstream(UpstreamResponse { call, upstream: Some(upstream), upload: Some(upload) })
        }
        Err(failure) => {
            failure.note(exchange);
            if !matches!(failure, RequestError::Overloaded(_)) || worker.may_warn() {
                telemetry::failed(exchange, &ServiceRef::of(worker, exchange, service), &failure);
            }
            if matches!(
                failure,
                RequestError::ClientGone | RequestError::ClientTimeout | RequestError::Rejected(_)
            ) {
                client.close_after();
            }
            let instead = match &failure {
                RequestError::Upstream(_) => engine::replacement(exchange, UpstreamOutcome::Failed),
                _ => None,
            };
            let own = error_response(exchange, &failure);
            Outcome::Local(instead.unwrap_or(own))
        }
    }
}

/// An upstream that has answered, with the head in the exchange.
pub(super) type Answered<'s> = (UpstreamCall<'s>, AnyUpstream, Upload);

/// Forwards the request to where it leads now.
#[inline]
pub(super) async fn reach<'s, C: Client>(
    worker: &'s Worker,
    client: &mut C,
    exchange: &mut Exchange,
    (route, service): (&'s CompiledRoute, &'s CompiledService),
    framing: Framing,
) -> Result<Answered<'s>, RequestError> {
    let ends = if service.is_grpc() { grpc::ends(exchange) } else { None };
    let service = ServiceRef::of(worker, exchange, service);
    let call = UpstreamCall::new(worker, route, service, framing, ends);
    let (upstream, upload) = call.forward(client, exchange).await?;
    Ok((call, upstream, upload))
}

/// How passing a response on has ended.
#[derive(Default)]
struct Passed {
    /// When the connection to the upstream was done with it, if it can carry another.
    reusable: Option<Instant>,
    /// What is to be sent in its place: nothing of it was sent.
    instead: Option<LocalResponse>,
}

impl Passed {
    fn broken(instead: Option<LocalResponse>) -> Self {
        Self { reusable: None, instead }
    }
}

impl UpstreamResponse<'_> {
    /// Passes the response on. Returns what is to be sent in its place, if a plugin has replaced it, or it broke off
    /// before any of it was sent.
    pub(super) async fn pass_on<C: Client>(
        &mut self,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Option<LocalResponse> {
        let upload = self.upload.take()?;
        match self.upstream.take()? {
            AnyUpstream::Http1(mut upstream) => {
                let passed = pass_on(&self.call, client, exchange, &mut *upstream, upload).await;
                if let Some(end) = passed.reusable {
                    self.call.worker.upstreams.http1.put(upstream, end);
                }
                passed.instead
            }
            AnyUpstream::Http2(mut upstream) => {
                let passing = pass_on(&self.call, client, exchange, &mut *upstream, upload);
                Box::pin(passing).await.instead
            }
        }
    }

    /// Reads the response for its observers alone, as far as they need it.
    pub(super) async fn observe<C: Client>(&mut self, client: &mut C, exchange: &mut Exchange) {
        let Some((upstream, upload)) = self.upstream.take().zip(self.upload.take()) else { return };
        match upstream {
            AnyUpstream::Http1(mut upstream) => {
                if let Some(end) = observe(&self.call, client, exchange, &mut *upstream, upload).await {
                    self.call.worker.upstreams.http1.put(upstream, end);
                }
            }
            AnyUpstream::Http2(mut upstream) => {
                observe(&self.call, client, exchange, &mut *upstream, upload).await;
            }
        }
    }
}

/// Answers the client as the upstream did: 101. None where a plugin makes another response of it: then that is to be
/// sent, and nothing is changed.
fn open_tunnel<C: Client>(
    call: &UpstreamCall<'_>,
    client: &mut C,
    exchange: &mut Exchange,
    upstream: Box<UpstreamConnection>,
) -> Option<Tunnel> {
    exchange.response.headers.remove_hop_by_hop();
    call.route.chain.response(exchange);
    respond::decorate_proxied(call.worker, exchange);
    if exchange.response.status != 101 {
        return None;
    }
    exchange.bytes_out += client.begin_tunnel(exchange);
    Some(Tunnel::new(upstream, call.timeouts, exchange.engine.upgrade.as_deref()))
}

/// The response's head has arrived.
fn arrived<C: Client>(client: &mut C, exchange: &mut Exchange, call: &UpstreamCall<'_>) {
    exchange.source = Source::Service;
    exchange.engine.service_status = Some(exchange.response.status);
    let now = Instant::now();
    exchange.timing.upstream_head = Some(now);
    client.deadline().set(now, call.timeouts.at_most(now, call.timeouts.read));
}

/// Reads a response for its observers. Returns when the connection was done with it, if it can carry another.
async fn observe<C: Client, U: Upstream>(
    call: &UpstreamCall<'_>,
    client: &mut C,
    exchange: &mut Exchange,
    upstream: &mut U,
    upload: Upload,
) -> Option<Instant> {
    arrived(client, exchange, call);
    let reusable = exchange.response.keep_alive && exchange.response.framing != Framing::UntilClose;
    respond::remove_hop_by_hop(exchange);
    if engine::replacement(exchange, UpstreamOutcome::Answered).is_none() {
        engine::upstream_answers(exchange);
    }
    let mut relay = relay(call, client, exchange, upstream, upload);
    let observed = poll_fn(|cx| relay.poll_observed(cx)).await;
    let (is_whole, is_sent) = (relay.upstream.body_is_done(), relay.upload.whole);
    exchange.engine.response_passed(observed.is_ok() && is_whole);
    if let Err(broken) = observed {
        blame(call, exchange, &broken);
        return None;
    }
    (reusable && is_whole && is_sent).then(Instant::now)
}

/// Passes the response on: hooks, head, body.
async fn pass_on<C: Client, U: Upstream>(
    call: &UpstreamCall<'_>,
    client: &mut C,
    exchange: &mut Exchange,
    upstream: &mut U,
    upload: Upload,
) -> Passed {
    arrived(client, exchange, call);
    if upload.whole {
        // It will not be sent again.
        exchange.engine.body = None;
    }
    let framing = exchange.response.framing;
    let reusable = exchange.response.keep_alive && framing != Framing::UntilClose;
    respond::remove_hop_by_hop(exchange);
    if let Some(instead) = engine::replacement(exchange, UpstreamOutcome::Answered) {
        let is_done = reusable && upload.whole && upstream.body_is_done();
        return Passed { reusable: is_done.then(Instant::now), instead: Some(instead) };
    }
    engine::upstream_answers(exchange);
    call.route.chain.response(exchange);
    let changes = response_body::changes(exchange, client.is_head());
    let mut relay = relay(call, client, exchange, upstream, upload);
    let changed = match changes {
        None => None,
        Some(changes) => {
            match Box::pin(response_body::change(&mut relay, &call.route.chain, changes)).await {
                Ok(changed) => Some(changed),
                Err(broken) => {
                    return Passed::broken(Some(reject_unbuffered(call, client, exchange, broken)));
                }
            }
        }
    };
    begin(call.worker, &mut relay, changed.as_ref().map_or(framing, |changed| changed.framing));
    let passed = match changed {
        None => poll_fn(|cx| relay.poll_body(cx)).await,
        Some(changed) => Box::pin(response_body::send(&mut relay, changed)).await,
    };
    relay.exchange.engine.response_passed(passed.is_ok());
    // Some of the response may have been left with the upstream.
    let reusable = reusable && relay.upload.whole && relay.upstream.body_is_done();
    match passed {
        Ok(()) if reusable => {
            exchange.timing.end = Some(Instant::now());
            Passed { reusable: exchange.timing.end, instead: None }
        }
        Ok(()) => Passed::default(),
        Err(broken) => {
            let is_stalled = relay.awaited == Awaited::Send;
            Passed::broken(Box::pin(give_up(call, client, exchange, broken, is_stalled)).await)
        }
    }
}

/// The exchange, the response's head of which has arrived.
fn relay<'a, C, U>(
    call: &'a UpstreamCall<'_>,
    client: &'a mut C,
    exchange: &'a mut Exchange,
    upstream: &'a mut U,
    upload: Upload,
) -> Relay<'a, C, U> {
    let options = &call.worker.options;
    Relay {
        client,
        upstream,
        exchange,
        chain: &call.route.chain,
        timeouts: &call.timeouts,
        limits: &options.limits,
        max_body: options.client_max_body_size,
        read_ahead: call.route.response_buffering,
        upload,
        awaited: Awaited::Response,
        has_interim: false,
        lost: false,
    }
}

/// Sends the response's head.
fn begin<C: Client, U: Upstream>(worker: &Worker, relay: &mut Relay<'_, C, U>, framing: Framing) {
    respond::decorate_proxied(worker, relay.exchange);
    if !relay.upload.whole || worker.draining.get() {
        // The upstream answered before it had the whole request, and may have stopped reading: what is left may never be read.
        relay.client.close_after();
    }
    relay.exchange.bytes_out += relay.client.begin(relay.exchange, framing);
}

/// Says what broke a response off, unless it was the client, its deadline, or the node itself, which has said so.
fn blame(call: &UpstreamCall<'_>, exchange: &mut Exchange, broken: &RelayError) {
    if !matches!(broken, RelayError::Client(_) | RelayError::Deadline | RelayError::BodyMemoryExhausted) {
        telemetry::broken(exchange, &call.service, broken);
    }
}

/// What is sent in the place of a response whose body could not be buffered whole. Nothing of it was sent.
fn reject_unbuffered<C: Client>(
    call: &UpstreamCall<'_>,
    client: &mut C,
    exchange: &mut Exchange,
    broken: RelayError,
) -> LocalResponse {
    blame(call, exchange, &broken);
    client.close_after();
    let failure = failure(broken, false);
    failure.note(exchange);
    error_response(exchange, &failure)
}

/// Ends a response that cannot be completed. As long as nothing of it has left, the client is answered instead; otherwise
/// it gets what has arrived, and then an end that cannot be taken for the message's.
async fn give_up<C: Client>(
    call: &UpstreamCall<'_>,
    client: &mut C,
    exchange: &mut Exchange,
    broken: RelayError,
    is_stalled: bool,
) -> Option<LocalResponse> {
    blame(call, exchange, &broken);
    let call_ends = grpc_status::is_call(exchange).then(|| grpc::broken_off(&broken));
    let code = abort_code(&broken);
    let failure = failure(broken, is_stalled);
    failure.note(exchange);
    exchange.decision.is_by(failure.cause());
    if is_stalled && matches!(failure, RequestError::ClientTimeout) {
        exchange.decision.limit = Some(NodeLimit::SendTime);
    }
    let is_clients = matches!(failure, RequestError::ClientGone | RequestError::ClientTimeout);
    // A message of a call that is cut off shows by its length, and its status says the rest.
    if !is_clients && call_ends.is_some_and(|trailers| client.end(Some(&trailers)).is_ok()) {
        return None;
    }
    if !is_clients && client.retract() {
        exchange.bytes_out = 0;
        return Some(failure.answer());
    }
    if !is_clients {
        hand_over(call, client).await;
    }
    exchange.bytes_out = exchange.bytes_out.saturating_sub(client.unsent());
    if exchange.bytes_out == 0 {
        exchange.response.status = RequestError::ClientGone.answer().status;
    }
    client.abort(code);
    None
}

/// What a response that broke off is reset with. A call that its upstream cancelled, mostly because its time is over there, must
/// not look like a failure of the gateway.
fn abort_code(broken: &RelayError) -> AbortCode {
    match broken {
        RelayError::Reset(Reason::CANCEL) | RelayError::Deadline => AbortCode::Cancelled,
        _ => AbortCode::Failed,
    }
}

/// Sends what waits of a response that is about to be aborted, if the client takes it in time.
async fn hand_over<C: Client>(call: &UpstreamCall<'_>, client: &mut C) {
    client.deadline().set(Instant::now(), call.timeouts.client_send);
    poll_fn(|cx| match client.poll_hand_over(cx) {
        // A client that is gone is aborted as any other.
        Poll::Ready(_) => Poll::Ready(()),
        Poll::Pending => client.deadline().poll(cx),
    })
    .await;
}

/// What a response that broke off means for its request. The client may be what stalled.
fn failure(broken: RelayError, is_stalled: bool) -> RequestError {
    match broken {
        RelayError::Client(_) => RequestError::ClientGone,
        RelayError::Timeout(_) if is_stalled => RequestError::ClientTimeout,
        RelayError::Timeout(_) => UpstreamError::Timeout.into(),
        RelayError::Deadline => RequestError::DeadlineExceeded,
        RelayError::Reset(reason) => UpstreamError::Reset(reason).into(),
        RelayError::Garbage(reject) => UpstreamError::InvalidResponse(reject).into(),
        RelayError::BodyMemoryExhausted => RequestError::NoMemoryForResponse,
        RelayError::Truncated => UpstreamError::Closed(std::io::ErrorKind::UnexpectedEof.into()).into(),
    }
}

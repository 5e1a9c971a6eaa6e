//! The part of a request's story that an upstream has: it is asked, and its response passed on.

use super::answer::{answer, send_whole};
use crate::downstream::client::Client;
use crate::exchange::{Exchange, Source};
use crate::observe::telemetry;
use crate::pipeline::answer::Failure;
use crate::pipeline::forward::{AnyUpstream, UpstreamCall};
use crate::pipeline::grpc;
use crate::pipeline::relay::{Awaited, Broken, Relay, Upload};
use crate::pipeline::request_body;
use crate::pipeline::respond;
use crate::pipeline::response_body;
use crate::runtime::worker::Worker;
use crate::snapshot::{CompiledRoute, CompiledService};
use crate::tunnel::{self, Tunnel};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;
use weir_http1::Framing;
use weir_plugin::engine::{self, grpc_status};
use weir_upstream::{Upstream, UpstreamError};

/// Asks the upstream and passes its response on; where that changes the protocol, what follows is left to the caller.
pub(super) async fn proxy<C: Client>(
    worker: &Rc<Worker>,
    client: &mut C,
    exchange: &mut Exchange,
    route: &CompiledRoute,
    service: &CompiledService,
) -> Option<Tunnel> {
    let framing = match request_body::buffer(worker, client, exchange, route).await {
        Ok(framing) => framing,
        Err(failure) => {
            answer(worker, client, exchange, &route.chain, failure.answer()).await;
            return None;
        }
    };
    let method = exchange.request.method;
    exchange.engine.upgrade.take_if(|protocol| !tunnel::is_allowed(&route.entity, method, protocol));
    let ends = if service.is_grpc() { grpc::ends(exchange) } else { None };
    let call = UpstreamCall::new(worker, route, service, framing, ends);
    match call.forward(client, exchange).await {
        Ok((AnyUpstream::Http1(upstream), _)) if exchange.response.status == 101 => {
            arrived(client, exchange, &call);
            exchange.engine.body = None;
            let tunnel = Tunnel::open(&call, client, exchange, upstream);
            if tunnel.is_none() {
                exchange.bytes_out += client.begin(exchange, Framing::Length(0));
                send_whole(worker, client, exchange, &[]).await;
            }
            return tunnel;
        }
        Ok((AnyUpstream::Http1(mut upstream), upload)) => {
            if let Some(end) = pass_on(&call, client, exchange, &mut *upstream, upload).await {
                worker.upstreams.http1.put(upstream, end);
            }
        }
        Ok((AnyUpstream::Http2(mut upstream), upload)) => {
            Box::pin(pass_on(&call, client, exchange, &mut *upstream, upload)).await;
        }
        Err(failure) => {
            failure.note(exchange);
            telemetry::failed(exchange, service, &failure);
            if matches!(failure, Failure::ClientGone | Failure::ClientTimeout | Failure::Rejected(_)) {
                client.close_after();
            }
            answer(worker, client, exchange, &route.chain, failure.answer()).await;
        }
    }
    None
}

/// The response's head has arrived.
fn arrived<C: Client>(client: &mut C, exchange: &mut Exchange, call: &UpstreamCall<'_>) {
    exchange.source = Source::Service;
    let now = Instant::now();
    exchange.timing.upstream_head = Some(now);
    client.deadline().set(now, call.timeouts.at_most(now, call.timeouts.read));
}

/// Passes the response on: hooks, head, body. Returns when it ended, if the connection to the upstream can carry another.
async fn pass_on<C: Client, U: Upstream>(
    call: &UpstreamCall<'_>,
    client: &mut C,
    exchange: &mut Exchange,
    upstream: &mut U,
    upload: Upload,
) -> Option<Instant> {
    arrived(client, exchange, call);
    if upload.whole {
        // It will not be sent again.
        exchange.engine.body = None;
    }
    let framing = exchange.response.framing;
    let reusable = exchange.response.keep_alive && framing != Framing::UntilClose;
    exchange.response.headers.remove_hop_by_hop();
    engine::upstream_answers(exchange);
    call.route.chain.response(exchange);
    let (replaces, drops) = (exchange.holds_response(), exchange.drops_response());
    if replaces && framing == Framing::None {
        // How long the body of a GET would be is known only once it is replaced.
        exchange.response.headers.remove("Content-Length");
    }
    let holds = replaces || drops;
    let mut relay = relay(call, client, exchange, upstream, upload);
    let held = if holds && framing != Framing::None {
        match Box::pin(response_body::hold(&mut relay, &call.route.chain)).await {
            Ok(held) => Some(held),
            Err(broken) => {
                refuse_held(call, client, exchange, broken).await;
                return None;
            }
        }
    } else {
        None
    };
    let reusable = reusable && held.as_ref().is_none_or(|held| !held.is_cut);
    let framing = held.as_ref().map_or(framing, |held| held.framing);
    begin(call.worker, &mut relay, framing);
    let passed = match held {
        None => poll_fn(|cx| relay.poll_body(cx)).await,
        Some(held) => Box::pin(response_body::send(&mut relay, held)).await,
    };
    relay.exchange.engine.response_passed(passed.is_ok());
    let reusable = reusable && relay.upload.whole;
    match passed {
        Ok(()) if reusable => {
            exchange.timing.end = Some(Instant::now());
            exchange.timing.end
        }
        Ok(()) => None,
        Err(broken) => {
            let is_stalled = relay.awaited == Awaited::Send;
            Box::pin(give_up(call, client, exchange, broken, is_stalled)).await;
            None
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
        timeouts: &call.timeouts,
        limits: &options.limits,
        max_body: options.client_max_body_size,
        read_ahead: call.route.entity.response_buffering,
        upload,
        awaited: Awaited::Response,
        lost: false,
    }
}

/// Sends the response's head.
fn begin<C: Client, U: Upstream>(worker: &Worker, relay: &mut Relay<'_, C, U>, framing: Framing) {
    respond::decorate_proxied(worker, relay.exchange);
    if !relay.upload.done || worker.draining.get() {
        // The upstream answered before it had the whole request: what is left may never be read.
        relay.client.close_after();
    }
    relay.exchange.bytes_out += relay.client.begin(relay.exchange, framing);
}

/// Says what broke a response off, unless it was the client, its deadline, or the node itself, which has said so.
fn blame(call: &UpstreamCall<'_>, exchange: &mut Exchange, broken: &Broken) {
    if !matches!(broken, Broken::Client(_) | Broken::Deadline | Broken::NoRoom) {
        telemetry::broken(exchange, call.service, broken);
    }
}

/// Answers in the place of a response whose body could not be held whole. Nothing of it was sent.
async fn refuse_held<C: Client>(
    call: &UpstreamCall<'_>,
    client: &mut C,
    exchange: &mut Exchange,
    broken: Broken,
) {
    blame(call, exchange, &broken);
    client.close_after();
    let failure = failure(broken, false);
    failure.note(exchange);
    answer(call.worker, client, exchange, &call.route.chain, failure.answer()).await;
}

/// Ends a response that cannot be completed. As long as nothing of it has left, the client is answered instead; otherwise
/// it gets what has arrived, and then an end that cannot be taken for the message's.
async fn give_up<C: Client>(
    call: &UpstreamCall<'_>,
    client: &mut C,
    exchange: &mut Exchange,
    broken: Broken,
    is_stalled: bool,
) {
    blame(call, exchange, &broken);
    let call_ends = grpc_status::is_call(exchange).then(|| grpc::broken_off(&broken));
    let failure = failure(broken, is_stalled);
    failure.note(exchange);
    let is_clients = matches!(failure, Failure::ClientGone | Failure::ClientTimeout);
    // A message of a call that is cut off shows by its length, and its status says the rest.
    if !is_clients && call_ends.is_some_and(|trailers| client.end(Some(&trailers)).is_ok()) {
        return;
    }
    if !is_clients && client.retract() {
        exchange.bytes_out = 0;
        return answer(call.worker, client, exchange, &call.route.chain, failure.answer()).await;
    }
    if !is_clients {
        hand_over(call, client).await;
    }
    exchange.bytes_out = exchange.bytes_out.saturating_sub(client.unsent());
    if exchange.bytes_out == 0 {
        exchange.response.status = Failure::ClientGone.answer().status;
    }
    client.abort();
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
fn failure(broken: Broken, is_stalled: bool) -> Failure {
    match broken {
        Broken::Client(_) => Failure::ClientGone,
        Broken::Timeout if is_stalled => Failure::ClientTimeout,
        Broken::Timeout => UpstreamError::Timeout.into(),
        Broken::Deadline => Failure::DeadlineExceeded,
        Broken::Reset(reason) => UpstreamError::Reset(reason).into(),
        Broken::Garbage(reject) => UpstreamError::InvalidResponse(reject).into(),
        Broken::NoRoom => Failure::NoRoomForResponse,
        Broken::Truncated => UpstreamError::Closed(std::io::ErrorKind::UnexpectedEof.into()).into(),
    }
}

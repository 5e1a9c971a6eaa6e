//! The part of a request's story that an upstream has: it is asked, and its response passed on.

use super::answer::{answer, send_whole};
use crate::answer::Failure;
use crate::client::Client;
use crate::exchange::{Exchange, Source};
use crate::forward::{Ask, Reached};
use crate::plugin::engine::{self, grpc_status};
use crate::relay::{Awaited, Broken, Relay, Upload};
use crate::snapshot::{CompiledRoute, CompiledService};
use crate::tunnel::{self, Tunnel};
use crate::upstream::Upstream;
use crate::worker::Worker;
use crate::{grpc, request_body, respond, response_body, telemetry};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;
use weir_http1::Framing;

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
    let ask = Ask::new(worker, route, service, framing, ends);
    match ask.forward(client, exchange).await {
        Ok((Reached::Http1(upstream), _)) if exchange.response.status == 101 => {
            arrived(client, exchange, &ask);
            exchange.engine.body = None;
            let tunnel = Tunnel::open(&ask, client, exchange, upstream);
            if tunnel.is_none() {
                exchange.bytes_out += client.begin(exchange, Framing::Length(0));
                send_whole(worker, client, exchange, &[]).await;
            }
            return tunnel;
        }
        Ok((Reached::Http1(mut upstream), upload)) => {
            if let Some(end) = pass_on(&ask, client, exchange, &mut *upstream, upload).await {
                worker.pool.put(upstream, end);
            }
        }
        Ok((Reached::Http2(mut upstream), upload)) => {
            Box::pin(pass_on(&ask, client, exchange, &mut *upstream, upload)).await;
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
fn arrived<C: Client>(client: &mut C, exchange: &mut Exchange, ask: &Ask<'_>) {
    exchange.source = Source::Service;
    let now = Instant::now();
    exchange.timing.upstream_head = Some(now);
    client.deadline().set(now, ask.timeouts.at_most(now, ask.timeouts.read));
}

/// Passes the response on: hooks, head, body. Returns when it ended, if the connection to the upstream can carry another.
async fn pass_on<C: Client, U: Upstream>(
    ask: &Ask<'_>,
    client: &mut C,
    exchange: &mut Exchange,
    upstream: &mut U,
    upload: Upload,
) -> Option<Instant> {
    arrived(client, exchange, ask);
    if upload.whole {
        // It will not be sent again.
        exchange.engine.body = None;
    }
    let framing = exchange.response.framing;
    let reusable = exchange.response.keep_alive && framing != Framing::UntilClose;
    exchange.response.headers.remove_hop_by_hop();
    engine::upstream_answers(exchange);
    ask.route.chain.response(exchange);
    let (replaces, drops) = (exchange.holds_response(), exchange.drops_response());
    if replaces && framing == Framing::None {
        // How long the body of a GET would be is known only once it is replaced.
        exchange.response.headers.remove("Content-Length");
    }
    let holds = replaces || drops;
    let mut relay = relay(ask, client, exchange, upstream, upload);
    let held = if holds && framing != Framing::None {
        match Box::pin(response_body::hold(&mut relay, &ask.route.chain)).await {
            Ok(held) => Some(held),
            Err(broken) => {
                refuse_held(ask, client, exchange, broken).await;
                return None;
            }
        }
    } else {
        None
    };
    let reusable = reusable && held.as_ref().is_none_or(|held| !held.is_cut);
    let framing = held.as_ref().map_or(framing, |held| held.framing);
    begin(ask.worker, &mut relay, framing);
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
            Box::pin(give_up(ask, client, exchange, broken, is_stalled)).await;
            None
        }
    }
}

/// The exchange, the response's head of which has arrived.
fn relay<'a, C, U>(
    ask: &'a Ask<'_>,
    client: &'a mut C,
    exchange: &'a mut Exchange,
    upstream: &'a mut U,
    upload: Upload,
) -> Relay<'a, C, U> {
    let options = &ask.worker.options;
    Relay {
        client,
        upstream,
        exchange,
        timeouts: &ask.timeouts,
        limits: &options.limits,
        max_body: options.client_max_body_size,
        read_ahead: ask.route.entity.response_buffering,
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
fn blame(ask: &Ask<'_>, exchange: &mut Exchange, broken: &Broken) {
    if !matches!(broken, Broken::Client(_) | Broken::Deadline | Broken::NoRoom) {
        telemetry::broken(exchange, ask.service, broken);
    }
}

/// Answers in the place of a response whose body could not be held whole. Nothing of it was sent.
async fn refuse_held<C: Client>(ask: &Ask<'_>, client: &mut C, exchange: &mut Exchange, broken: Broken) {
    blame(ask, exchange, &broken);
    client.close_after();
    let failure = failure(broken, false);
    failure.note(exchange);
    answer(ask.worker, client, exchange, &ask.route.chain, failure.answer()).await;
}

/// Ends a response that cannot be completed. As long as nothing of it has left, the client is answered instead; otherwise
/// it gets what has arrived, and then an end that cannot be taken for the message's.
async fn give_up<C: Client>(
    ask: &Ask<'_>,
    client: &mut C,
    exchange: &mut Exchange,
    broken: Broken,
    is_stalled: bool,
) {
    blame(ask, exchange, &broken);
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
        return answer(ask.worker, client, exchange, &ask.route.chain, failure.answer()).await;
    }
    if !is_clients {
        hand_over(ask, client).await;
    }
    exchange.bytes_out = exchange.bytes_out.saturating_sub(client.unsent());
    if exchange.bytes_out == 0 {
        exchange.response.status = Failure::ClientGone.answer().status;
    }
    client.abort();
}

/// Sends what waits of a response that is about to be aborted, if the client takes it in time.
async fn hand_over<C: Client>(ask: &Ask<'_>, client: &mut C) {
    client.deadline().set(Instant::now(), ask.timeouts.client_send);
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
        Broken::Timeout => Failure::UpstreamTimeout,
        Broken::Deadline => Failure::DeadlineExceeded,
        Broken::Reset(reason) => Failure::UpstreamReset(reason),
        Broken::Garbage(reject) => Failure::UpstreamGarbage(reject),
        Broken::NoRoom => Failure::NoRoomForResponse,
        Broken::Truncated => Failure::UpstreamClosed(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

//! The story of one request, top to bottom. Knows messages and bodies, not the HTTP version that carries them; only
//! `next` reads an HTTP/1.1 head.

use crate::answer::{Answer, Failure};
use crate::chain::Chain;
use crate::client::{Client, Http1};
use crate::costs::{self, Waiter, Watch};
use crate::exchange::{Connection, Exchange, NormalPath, Source};
use crate::forward::{Ask, Reached};
use crate::plugin::Flow;
use crate::relay::{Awaited, Broken, Relay, Upload};
use crate::request_body;
use crate::request_debug::{self, RequestDebug};
use crate::respond;
use crate::response_body;
use crate::route::{HeaderLookup, Query, Scheme, normalize_path};
use crate::snapshot::{CompiledRoute, CompiledService, Snapshot};
use crate::tunnel::{self, Tunnel};
use crate::upstream::Upstream;
use crate::worker::Worker;
use crate::{client_ip, grpc, own, telemetry};
use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;
use weir_http1::{Framing, Known, Method, Reject, RequestHead, ResponseHead};

/// Reads the next request of an HTTP/1.1 connection and serves it. Returns when it ended; none, when the connection is to
/// end too.
pub(crate) async fn next(
    worker: &Rc<Worker>,
    client: &mut Http1,
    connection: &Rc<Connection>,
) -> Option<Instant> {
    let (mut request, response) = worker.heads();
    let read = read_head(worker, client, &mut request).await;
    let Some(read) = read else {
        worker.keep_heads(request, response);
        return None;
    };
    if read.is_err() {
        // What it holds was said by an earlier request.
        request = RequestHead::default();
    }
    client.begin_exchange(&request);
    let most = worker.options.keepalive_requests;
    if most != 0 && connection.requests.get() >= most {
        client.close_after();
    }
    let mut exchange = begin(worker, connection, (request, response));
    one(worker, client, &mut exchange, read).await;
    worker.keep_heads(exchange.request, exchange.response);
    exchange.timing.end.filter(|_| client.keep_alive && client.body_is_done())
}

/// An exchange whose request has arrived.
pub(crate) fn begin(
    worker: &Worker,
    connection: &Rc<Connection>,
    heads: (RequestHead, ResponseHead),
) -> Exchange {
    let mut exchange =
        Exchange::new(connection, worker.snapshot(), (worker.index, worker.request_id()), heads);
    exchange.watch = Watch::new(worker.ledger.next(|| worker.random()));
    exchange
}

/// Serves a request whose head took so many bytes, or refuses it.
pub(crate) async fn one<C: Client>(
    worker: &Rc<Worker>,
    client: &mut C,
    exchange: &mut Exchange,
    read: Result<usize, Failure>,
) {
    match read {
        Ok(head_bytes) => {
            exchange.bytes_in = head_bytes as u64;
            guarded(worker, client, exchange).await;
        }
        Err(failure) => {
            client.close_after();
            let snapshot = exchange.snapshot.clone();
            answer(worker, client, exchange, &snapshot.global, failure.answer()).await;
            finish(worker, exchange, &snapshot.global);
        }
    }
}

/// Serves a request such that a panic is this request's failure and nobody else's.
async fn guarded<C: Client>(worker: &Rc<Worker>, client: &mut C, exchange: &mut Exchange) {
    let served = {
        let mut serving = pin!(serve(worker, client, exchange));
        poll_fn(move |cx| match catch_unwind(AssertUnwindSafe(|| serving.as_mut().poll(cx))) {
            Ok(served) => served.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        })
        .await
    };
    if served.is_err() {
        tracing::error!(request_id = exchange.id(), "{}", Failure::Internal);
        if client.has_begun() {
            client.abort();
        } else {
            client.close_after();
            answer(worker, client, exchange, &Chain::default(), Failure::Internal.answer()).await;
        }
        // Without the hooks: one of them may have been what failed.
        finish(worker, exchange, &Chain::default());
    }
}

/// Reads one head. `None`: the client left, or never began. `Some(Err)`: it is owed an answer.
async fn read_head(
    worker: &Worker,
    client: &mut Http1,
    head: &mut RequestHead,
) -> Option<Result<usize, Failure>> {
    let mut begun = false;
    loop {
        if !client.wire.inbox.is_empty() {
            match head.parse(client.wire.inbox.bytes(), &worker.options.limits) {
                Ok(Some(n)) => {
                    client.wire.inbox.consume(n);
                    return Some(Ok(n));
                }
                Ok(None) if client.wire.inbox.is_full() => {
                    return Some(Err(Failure::Rejected(Reject::HeadTooLarge)));
                }
                Ok(None) => {}
                Err(_) if client.finds_preface() => return None,
                Err(reject) => return Some(Err(Failure::Rejected(reject))),
            }
            if !std::mem::replace(&mut begun, true) {
                client.deadline.set(Instant::now(), worker.options.client_header_timeout);
            }
        }
        let filled = poll_fn(|cx| match client.wire.poll_fill(cx) {
            Poll::Ready(filled) => Poll::Ready(Some(filled)),
            Poll::Pending if worker.draining.get() && !begun => Poll::Ready(Some(Ok(0))),
            Poll::Pending => client.deadline.poll(cx).map(|()| None),
        });
        match filled.await {
            Some(Ok(1..)) => {}
            Some(_) => return None,
            None => return begun.then_some(Err(Failure::ClientTimeout)),
        }
    }
}

/// Serves one request whose head is in the exchange.
pub(crate) async fn serve<C: Client>(worker: &Rc<Worker>, client: &mut C, exchange: &mut Exchange) {
    let snapshot = exchange.snapshot.clone();
    if exchange.request.method == Method::Connect {
        // What follows is meant for a tunnel.
        client.close_after();
    }
    if let Some(paths) = worker.options.own.of(exchange) {
        let outcome = Box::pin(own::answer(paths, worker, client, exchange)).await;
        answer(worker, client, exchange, &Chain::default(), outcome).await;
        return finish(worker, exchange, &Chain::default());
    }
    let route = match admit(worker, client, exchange, &snapshot) {
        Ok(route) => route,
        Err(refusal) => {
            answer(worker, client, exchange, &snapshot.global, refusal).await;
            return finish(worker, exchange, &snapshot.global);
        }
    };
    let outcome = match respond::require_protocol(route, exchange) {
        Some(redirect) => Err(redirect),
        None => through_plugins(worker, client, exchange, route).await,
    };
    if let Err(outcome) = outcome {
        answer(worker, client, exchange, &route.chain, outcome).await;
        return finish(worker, exchange, &route.chain);
    }
    let tunnel = match &route.service {
        None => {
            answer(worker, client, exchange, &route.chain, Failure::NoService.answer()).await;
            None
        }
        Some(service) => proxy(worker, client, exchange, route, service).await,
    };
    if let Some(tunnel) = tunnel {
        drop(snapshot);
        // Boxed, so that a connection has no room for what few need.
        return Box::pin(tunnel.run(worker, client, exchange)).await;
    }
    finish(worker, exchange, &route.chain);
}

/// Normalises what routing and plugins look at, and finds the route.
fn admit<'s, C: Client>(
    worker: &Worker,
    client: &C,
    exchange: &mut Exchange,
    snapshot: &'s Snapshot,
) -> Result<&'s CompiledRoute, Answer> {
    if matches!(exchange.request.method, Method::Connect | Method::Trace) {
        return Err(Failure::MethodNotAllowed.answer());
    }
    let limit = worker.options.client_max_body_size;
    if limit > 0 && matches!(client.framing(), Framing::Length(n) if n > limit) {
        return Err(Failure::BodyTooLarge.answer());
    }
    exchange.upgrade = tunnel::asked(&exchange.request, client.framing());
    exchange.request.headers.remove_hop_by_hop();
    if let Some(protocol) = &exchange.upgrade {
        exchange.request.headers.append_known(Known::Upgrade, "Upgrade", protocol.as_bytes());
    }
    client_ip::strip_identity(&mut exchange.request.headers, exchange.connection.trusted);
    client_ip::determine(&worker.options, exchange);
    worker.options.server_timing.watch(exchange);
    let found = match &worker.options.request_debug {
        Some(debug) if RequestDebug::concerns(exchange) => {
            debug.time(exchange, |exchange| route(exchange, snapshot))
        }
        _ => route(exchange, snapshot),
    };
    found.ok_or_else(|| Failure::NoRoute.answer())
}

/// Brings the path into its normal form and finds the route.
pub(crate) fn route<'s>(exchange: &mut Exchange, snapshot: &'s Snapshot) -> Option<&'s CompiledRoute> {
    if let Cow::Owned(path) = normalize_path(exchange.request.path()) {
        exchange.path = NormalPath::Rewritten(path);
    }
    let found = with_query(exchange, |query| snapshot.router.find(query))?;
    exchange.route = Some(found.index);
    exchange.matched_path = found.matched_path;
    exchange.captures = found.captures;
    Some(&snapshot.routes[found.index as usize])
}

/// Calls `f` with what routes look at.
pub(crate) fn with_query<T>(exchange: &Exchange, f: impl FnOnce(&Query<'_>) -> T) -> T {
    let header: &HeaderLookup<'_> =
        &|name: &str, visit: &mut dyn FnMut(&[u8]) -> bool| exchange.request.headers.get_all(name).any(visit);
    f(&Query {
        method: exchange.request.method_str(),
        host: exchange.request.host().unwrap_or_default(),
        path: exchange.path(),
        scheme: if exchange.tls { Scheme::Https } else { Scheme::Http },
        sni: exchange.sni.as_deref(),
        dst_port: exchange.connection.local_port,
        header,
    })
}

/// Runs the access hooks, and collects the body before the first that reads it.
async fn through_plugins<C: Client>(
    worker: &Worker,
    client: &mut C,
    exchange: &mut Exchange,
    route: &CompiledRoute,
) -> Result<(), Answer> {
    let (mut reader, all) = (route.chain.reader, route.chain.steps.len());
    let mut until = reader.map_or(all, |(first, _)| first);
    let (mut flow, mut at, mut plugin) = route.chain.access(exchange, 0, until);
    loop {
        match flow {
            Flow::Continue if at < until => (flow, at, plugin) = route.chain.access(exchange, at, until),
            Flow::Continue => {
                let Some((_, wants)) = reader.take() else { return Ok(()) };
                until = all;
                if client.framing() == Framing::None {
                    exchange.has_empty_body();
                    continue;
                }
                // Boxed, so that a connection has no room for what few requests need.
                let collected = Box::pin(request_body::collect(worker, client, exchange, wants)).await;
                collected.map_err(|failure| failure.answer())?;
            }
            Flow::Respond(answer) => {
                costs::answered(exchange, plugin, &answer);
                return Err(answer);
            }
            Flow::Wait(future) => {
                let waiter = Waiter::new(exchange, plugin);
                match unless_gone(client, future).await {
                    Some(resume) => flow = resume(exchange),
                    None => return Err(Failure::ClientGone.answer()),
                }
                drop(waiter);
            }
        }
    }
}

/// Waits for the future; none, when the client left before.
pub(crate) async fn unless_gone<C: Client, T>(client: &mut C, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if client.body_is_done() => client.poll_gone(cx).map(|()| None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Asks the upstream and passes its response on; where that changes the protocol, what follows is left to the caller.
async fn proxy<C: Client>(
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
    exchange.upgrade.take_if(|protocol| !tunnel::is_allowed(&route.entity, method, protocol));
    let ends = if service.is_grpc() { grpc::ends(exchange) } else { None };
    let ask = Ask::new(worker, route, service, framing, ends);
    match ask.forward(client, exchange).await {
        Ok((Reached::Http1(upstream), _)) if exchange.response.status == 101 => {
            arrived(client, exchange, &ask);
            exchange.body = None;
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
    let worker = ask.worker;
    arrived(client, exchange, ask);
    if upload.whole {
        // It will not be sent again.
        exchange.body = None;
    }
    let framing = exchange.response.framing;
    let reusable = exchange.response.keep_alive && framing != Framing::UntilClose;
    exchange.response.headers.remove_hop_by_hop();
    exchange.upstream_answers();
    ask.route.chain.response(exchange);
    let mut relay = Relay {
        client,
        upstream,
        exchange,
        timeouts: &ask.timeouts,
        limits: &worker.options.limits,
        max_body: worker.options.client_max_body_size,
        read_ahead: ask.route.entity.response_buffering,
        upload,
        awaited: Awaited::Response,
        lost: false,
    };
    let holds = relay.exchange.holds_response() || relay.exchange.drops_response();
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
    respond::decorate_proxied(worker, relay.exchange);
    if !relay.upload.done || worker.draining.get() {
        // The upstream answered before it had the whole request: what is left may never be read.
        relay.client.close_after();
    }
    relay.exchange.bytes_out += relay.client.begin(relay.exchange, framing);
    let passed = match held {
        None => poll_fn(|cx| relay.poll_body(cx)).await,
        Some(held) => Box::pin(response_body::send(&mut relay, held)).await,
    };
    relay.exchange.response_passed(passed.is_ok());
    let whole_request = relay.upload.whole;
    match passed {
        Ok(()) if reusable && whole_request => {
            exchange.timing.end = Some(Instant::now());
            exchange.timing.end
        }
        Ok(()) => None,
        Err(broken) => {
            break_off(client, exchange, &broken);
            if !matches!(broken, Broken::Client(_)) {
                telemetry::broken(exchange, ask.service, &broken);
            }
            None
        }
    }
}

/// Answers in the place of a response whose body could not be held whole. Nothing of it was sent.
async fn refuse_held<C: Client>(ask: &Ask<'_>, client: &mut C, exchange: &mut Exchange, broken: Broken) {
    if !matches!(broken, Broken::Client(_) | Broken::NoRoom) {
        telemetry::broken(exchange, ask.service, &broken);
    }
    client.close_after();
    let failure = match broken {
        Broken::Client(_) => Failure::ClientGone,
        Broken::Timeout => Failure::UpstreamTimeout,
        Broken::Garbage(reject) => Failure::UpstreamGarbage(reject),
        Broken::NoRoom => Failure::NoRoomForResponse,
        Broken::Truncated => Failure::UpstreamClosed(std::io::ErrorKind::UnexpectedEof.into()),
    };
    answer(ask.worker, client, exchange, &ask.route.chain, failure.answer()).await;
}

/// Ends a response that cannot be completed. To a gRPC call its status says so: a message that is cut off shows by its
/// length.
fn break_off<C: Client>(client: &mut C, exchange: &Exchange, broken: &Broken) {
    let said = !matches!(broken, Broken::Client(_)) && grpc::is_call(exchange) && {
        client.end(Some(&grpc::broken_off(matches!(broken, Broken::Timeout)))).is_ok()
    };
    if !said {
        client.abort();
    }
}

/// Answers from the gateway itself. The body of a request that nobody read is read away if it is short; otherwise the
/// connection ends, so that it can't be taken for the next request.
async fn answer<C: Client>(
    worker: &Worker,
    client: &mut C,
    exchange: &mut Exchange,
    chain: &Chain,
    answer: Answer,
) {
    exchange.failed = answer.failed;
    if answer.unheard {
        exchange.response.status = answer.status;
        return client.abort();
    }
    // What was kept tells its own length, if it is known.
    let is_kept = answer.kept_headers.is_some();
    let mut body = answer.write(exchange);
    chain.response(exchange);
    let mut room = None;
    if exchange.holds_response() {
        (body, room) = response_body::replace_own(exchange, chain, body, is_kept);
    }
    respond::decorate_own(worker, exchange);
    skip_request_body(client);
    if client.is_head() && !is_kept {
        exchange.response.headers.append("Content-Length", body.len().to_string().as_bytes());
    }
    if worker.draining.get() {
        client.close_after();
    }
    exchange.bytes_out += begin_own(client, exchange, body.len());
    let is_bodiless = client.is_head() || matches!(exchange.response.status, 204 | 304);
    send_whole(worker, client, exchange, if is_bodiless { &[] } else { &body }).await;
    drop(room);
}

/// Sends a body whose head is on its way, and ends the response.
async fn send_whole<C: Client>(worker: &Worker, client: &mut C, exchange: &mut Exchange, mut left: &[u8]) {
    client.deadline().set(Instant::now(), worker.options.send_timeout);
    let sent = poll_fn(|cx| {
        let sent = send(client, exchange, &mut left, cx);
        if sent.is_pending() {
            client.deadline().poll(cx).map(|()| Err(std::io::ErrorKind::TimedOut.into()))
        } else {
            sent
        }
    });
    if sent.await.is_err() {
        client.abort();
    }
}

/// Sends the head of the gateway's own response. To a gRPC call that is 200 with gRPC's own status; the hooks and the log
/// see what it stands for.
fn begin_own<C: Client>(client: &mut C, exchange: &mut Exchange, length: usize) -> u64 {
    if !grpc::is_call(exchange) {
        return client.begin(exchange, Framing::Length(length as u64));
    }
    let status = std::mem::replace(&mut exchange.response.status, 200);
    let bytes = client.begin(exchange, Framing::None);
    exchange.response.status = status;
    bytes
}

fn skip_request_body<C: Client>(client: &mut C) {
    while let Ok(n @ 1..) = client.body().map(<[u8]>::len) {
        client.consume(n);
    }
    if !client.body_is_done() {
        client.close_after();
    }
}

fn send<C: Client>(
    client: &mut C,
    exchange: &mut Exchange,
    left: &mut &[u8],
    cx: &mut std::task::Context<'_>,
) -> Poll<std::io::Result<()>> {
    while !left.is_empty() {
        match client.poll_send(cx, left)? {
            Poll::Ready(n) => {
                exchange.bytes_out += n as u64;
                *left = &left[n..];
            }
            Poll::Pending => return Poll::Pending,
        }
    }
    client.end(None)?;
    client.poll_flush(cx)
}

/// After the last byte: logs and counts.
pub(crate) fn finish(worker: &Worker, exchange: &mut Exchange, chain: &Chain) {
    exchange.timing.end.get_or_insert_with(Instant::now);
    worker.count_request(exchange.request.version);
    costs::finished(exchange);
    chain.log(exchange);
    request_debug::log(exchange);
    telemetry::log_access(worker, exchange);
}

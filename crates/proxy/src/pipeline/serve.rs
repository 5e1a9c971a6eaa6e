//! The story of one request, top to bottom. Knows messages and bodies, not the HTTP version that carries them; only
//! `next` reads an HTTP/1.1 head.

mod answer;
mod next;
mod proxy;

pub(crate) use next::next;

use crate::costs::{self, Waiter, Watch};
use crate::downstream::client::Client;
use crate::downstream::client_ip;
use crate::exchange::{Connection, Exchange, NormalPath};
use crate::observe::request_debug::{self, RequestDebug};
use crate::observe::telemetry;
use crate::pipeline::answer::Failure;
use crate::pipeline::chain::Chain;
use crate::pipeline::request_body;
use crate::pipeline::respond;
use crate::runtime::own;
use crate::runtime::worker::Worker;
use crate::snapshot::{CompiledRoute, Snapshot};
use crate::tunnel;
use answer::answer;
use proxy::proxy;
use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;
use weir_http1::{Framing, Known, Method, RequestHead, ResponseHead};
use weir_plugin::Answer;
use weir_plugin::Flow;
use weir_router::{HeaderLookup, Query, Scheme, normalize_path};

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
    exchange.engine.upgrade = tunnel::asked(&exchange.request, client.framing());
    exchange.request.headers.remove_hop_by_hop();
    let public = &mut exchange.public;
    if let Some(protocol) = &public.engine.upgrade {
        public.request.headers.append_known(Known::Upgrade, "Upgrade", protocol.as_bytes());
    }
    client_ip::strip_identity(exchange);
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
        exchange.engine.path = NormalPath::Rewritten(path);
    }
    let found = with_query(exchange, |query| snapshot.router.find(query))?;
    exchange.engine.route = Some(found.index);
    exchange.engine.matched_path = found.matched_path;
    exchange.engine.captures = found.captures;
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
        dst_port: exchange.engine.connection.local_port,
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
                    exchange.engine.has_empty_body();
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
                    Some(resume) => flow = costs::resume(exchange, resume),
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
        Poll::Pending if client.body_is_whole() => client.poll_gone(cx).map(|()| None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Whether the client has left, as far as that can be known before its body is here.
pub(crate) async fn is_gone<C: Client>(client: &mut C) -> bool {
    poll_fn(|cx| Poll::Ready(client.body_is_whole() && client.poll_gone(cx).is_ready())).await
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

//! The story of one request, top to bottom. Knows messages and bodies, not the HTTP version that carries them; only
//! `next` reads an HTTP/1.1 head.

mod background;
mod fallback;
mod local_response;
mod proxy;

use crate::client::{AbortCode, Client, unless_gone};
use crate::error::{Overload, RequestError};
use crate::exchange::{Connection, Exchange, Heads, NormalPath, Sampler};
use crate::limits::NodeLimit;
use crate::observe::hooks::{self, Waiter};
use crate::observe::recorder::{Recorder, error_response};
use crate::observe::request_debug::{self, RequestDebug};
use crate::observe::telemetry;
use crate::pipeline::client_ip;
use crate::pipeline::internal;
use crate::pipeline::request_body;
use crate::pipeline::respond;
use crate::pipeline::rewrite;
use crate::pipeline::service_override::ServiceRef;
use crate::snapshot::chain::Chain;
use crate::snapshot::{CompiledRoute, Snapshot};
use crate::tunnel::{self, Tunnel};
use crate::worker::{RequestInFlight, Worker};
use proxy::UpstreamResponse;
use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use tokio::time::Instant;
use weir_analytics::cause::Cause;
use weir_http1::{Framing, Known, Method, Version};
use weir_model::tags::Priority;
use weir_plugin::Flow;
use weir_plugin::Instrumentations;
use weir_plugin::LocalResponse;
use weir_router::{HeaderLookup, Query, Scheme, normalize_path};

/// An exchange whose request has arrived.
#[inline(always)] // It is too large to be moved for each request.
pub(crate) fn begin(worker: &Worker, connection: &Rc<Connection>, heads: Heads) -> Exchange {
    let watch = Sampler::new(worker.ledger.next(|| worker.random()));
    Exchange::new(connection, worker.snapshot(), (worker.index, worker.request_id()), heads, watch)
}

/// What a request comes to.
enum Outcome<'s> {
    /// The gateway responds itself: a plugin, an error, or what the node has paths of its own for.
    Local(LocalResponse),
    /// The upstream has responded: the head is in the exchange.
    Upstream(UpstreamResponse<'s>),
    /// The head that is in the exchange, whose hooks have run, and nothing else.
    Head,
    /// The client got the response that switches protocols.
    Tunnel(Tunnel),
    /// Nothing more can be sent.
    Over,
}

impl Outcome<'_> {
    /// Takes the gateway's own response, if it is one.
    fn take_local(&mut self) -> Option<LocalResponse> {
        match std::mem::replace(self, Outcome::Over) {
            Outcome::Local(answer) => Some(answer),
            _ => None,
        }
    }
}

/// Serves a request whose head took so many bytes, or refuses it.
pub(crate) async fn one<C: Client>(
    worker: &Rc<Worker>,
    client: &mut C,
    exchange: &mut Exchange,
    read: Result<usize, RequestError>,
) {
    match read {
        Ok(head_bytes) => {
            exchange.bytes_in = head_bytes as u64;
            guarded(worker, client, exchange).await;
        }
        Err(failure) => {
            client.close_after();
            let snapshot = exchange.snapshot.clone();
            let mut outcome = Outcome::Local(error_response(exchange, &failure));
            if matches!(failure, RequestError::ClientTimeout) {
                exchange.decision.limit = Some(NodeLimit::HeadTime);
            }
            leave(worker, client, exchange, (Some(&snapshot.global), &mut outcome)).await;
        }
    }
}

/// Serves a request, and catches panics, so that a panic fails this request alone.
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
        tracing::error!(request_id = exchange.id(), "{}", RequestError::Internal);
        let mut outcome = if client.has_begun() {
            client.abort(AbortCode::Failed);
            Outcome::Over
        } else {
            client.close_after();
            Outcome::Local(error_response(exchange, &RequestError::Internal))
        };
        // Without the hooks: one of them may have been what failed.
        Box::pin(leave(worker, client, exchange, (None, &mut outcome))).await;
    }
}

/// Serves one request whose head is in the exchange.
pub(crate) async fn serve<C: Client>(worker: &Rc<Worker>, client: &mut C, exchange: &mut Exchange) {
    let snapshot = exchange.snapshot.clone();
    if exchange.request.method == Method::Connect {
        // What follows is meant for a tunnel.
        client.close_after();
    }
    let in_flight = RequestInFlight::new(worker);
    let (chain, mut outcome) = decide(worker, client, exchange, &snapshot).await;
    if let Outcome::Tunnel(tunnel) = outcome {
        drop((snapshot, in_flight));
        // Boxed, so that a connection has no room for what few need.
        return Box::pin(through(tunnel, worker, client, exchange)).await;
    }
    leave(worker, client, exchange, (chain, &mut outcome)).await;
    background::start(worker, exchange);
}

/// What the request comes to, and whose hooks see it.
async fn decide<'s, C: Client>(
    worker: &'s Worker,
    client: &mut C,
    exchange: &mut Exchange,
    snapshot: &'s Snapshot,
) -> (Option<&'s Chain>, Outcome<'s>) {
    if let Some(paths) = worker.options.internal.of(exchange) {
        let answer = Box::pin(internal::answer(paths, worker, client, exchange)).await;
        return (None, Outcome::Local(answer));
    }
    let ready = match admit(worker, client, exchange) {
        // Boxed, so that a connection has no room for what few requests need.
        Ok(()) if snapshot.global.rewrites() => {
            Box::pin(rewrite::run(client, exchange, &snapshot.global)).await
        }
        admitted => admitted,
    };
    let route = match ready.and_then(|()| routed(exchange, snapshot)) {
        Ok(route) => route,
        Err(refusal) => return (Some(&snapshot.global), Outcome::Local(refusal)),
    };
    if let Some(overload) = worker.overload(|| Priority::of(&route.entity.tags)) {
        return (Some(&route.chain), Outcome::Local(shed(worker, client, exchange, overload)));
    }
    let passed = match respond::require_protocol(route, exchange) {
        Some(redirect) => Err(redirect),
        None => through_plugins(worker, client, exchange, route).await,
    };
    let outcome = match (passed, &route.service) {
        (Err(answer), _) => Outcome::Local(answer),
        (Ok(()), None) => Outcome::Local(error_response(exchange, &RequestError::NoService)),
        (Ok(()), Some(service)) => proxy::ask(worker, client, exchange, (route, service)).await,
    };
    (Some(&route.chain), outcome)
}

/// Refuses a request, because there are too many.
#[cold]
fn shed<C: Client>(
    worker: &Worker,
    client: &mut C,
    exchange: &mut Exchange,
    overload: Overload,
) -> LocalResponse {
    let failure = RequestError::Overloaded(overload);
    if overload == Overload::Memory {
        client.close_after();
    } else if worker.may_warn() {
        tracing::warn!(request_id = exchange.id(), "{failure}");
    }
    failure.note(exchange);
    error_response(exchange, &failure)
}

/// The end of every request: response hooks, head and body, then the log. Every response passes here, whether it comes
/// from the upstream, a plugin or the gateway.
async fn leave<C: Client>(
    worker: &Worker,
    client: &mut C,
    exchange: &mut Exchange,
    (chain, outcome): (Option<&Chain>, &mut Outcome<'_>),
) {
    let instead = match outcome {
        Outcome::Local(_) => outcome.take_local(),
        // Where it is, because it is too large to be moved for each request.
        Outcome::Upstream(response) => {
            let instead = response.pass_on(client, exchange).await;
            *outcome = Outcome::Over;
            instead
        }
        Outcome::Head => {
            exchange.bytes_out += client.begin(exchange, Framing::Length(0));
            local_response::send_whole(worker, client, exchange, &[]).await;
            None
        }
        Outcome::Tunnel(_) | Outcome::Over => None,
    };
    if let Some(answer) = instead {
        local_response::send(worker, client, exchange, chain, answer).await;
    }
    finish(worker, exchange, chain);
}

/// Relays a tunnel until it ends. Its log hooks use the configuration that is active at the end.
async fn through<C: Client>(tunnel: Tunnel, worker: &Worker, client: &mut C, exchange: &mut Exchange) {
    let ended = tunnel.run(worker, client, exchange).await;
    let snapshot = exchange.snapshot.clone();
    let route = exchange.engine.route.map(|index| &snapshot.routes[index as usize]);
    if let Err(broken) = ended {
        // What a TCP connection shows by RST: RFC 8441 5, RFC 9220 3.
        client.abort(AbortCode::Cancelled);
        let service = route.and_then(|route| route.service.as_deref());
        if let (tunnel::Broken::Upstream(error), Some(service)) = (broken, service) {
            exchange.decision.is_by(Cause::Reset);
            telemetry::cut(exchange, &ServiceRef::of(worker, exchange, service), &error);
        }
    }
    let chain = route.map_or(&snapshot.global, |route| &route.chain);
    leave(worker, client, exchange, (Some(chain), &mut Outcome::Over)).await;
}

/// Normalises what routing and plugins look at.
fn admit<C: Client>(worker: &Worker, client: &C, exchange: &mut Exchange) -> Result<(), LocalResponse> {
    if matches!(exchange.request.method, Method::Connect | Method::Trace) {
        return Err(error_response(exchange, &RequestError::MethodNotAllowed));
    }
    let limit = worker.options.client_max_body_size;
    if limit > 0 && matches!(client.framing(), Framing::Length(n) if n > limit) {
        return Err(error_response(exchange, &RequestError::BodyTooLarge));
    }
    if exchange.request.method == Method::Options
        && let Some(answer) = respond::to_options(exchange)
    {
        return Err(answer);
    }
    exchange.engine.upgrade = tunnel::asked(&exchange.request, client.framing());
    remove_hop_by_hop(exchange, client.framing());
    let public = &mut exchange.public;
    if let Some(protocol) = &public.engine.upgrade {
        public.request.headers.append_known(Known::Upgrade, "Upgrade", protocol.as_bytes());
    }
    client_ip::strip_identity(exchange);
    client_ip::determine(&worker.options, exchange);
    worker.options.server_timing.watch(exchange);
    if worker.recorder.as_ref().is_some_and(Recorder::is_watched) {
        exchange.watch.keep();
    }
    if let Some(debug) = &worker.options.request_debug
        && RequestDebug::concerns(exchange)
    {
        debug.watch(exchange);
    }
    if worker.options.instrumentations.has_steps() {
        trace(worker.options.instrumentations, exchange);
    }
    normalize(exchange);
    Ok(())
}

/// Removes what concerns the client's connection alone. What it says of trailers concerns the upstream too.
fn remove_hop_by_hop(exchange: &mut Exchange, framing: Framing) {
    let public = &mut exchange.public;
    let headers = &mut public.request.headers;
    public.engine.takes_trailers = public.request.version != Version::Http10 && headers.accept_trailers();
    let trailer = if framing == Framing::Chunked { headers.announced_trailers() } else { None };
    headers.remove_hop_by_hop();
    if let Some(names) = trailer {
        headers.append_known(Known::Trailer, "Trailer", &names);
    }
}

/// Records the steps of a request for tracing plugins.
#[cold]
fn trace(instrumentations: Instrumentations, exchange: &mut Exchange) {
    exchange.engine.trace_steps(instrumentations);
    if instrumentations.has_plugins() {
        exchange.watch.begin();
    }
}

/// The route, found by what rewrite hooks have left.
fn routed<'s>(exchange: &mut Exchange, snapshot: &'s Snapshot) -> Result<&'s CompiledRoute, LocalResponse> {
    let start = exchange.engine.instrumentations().filter(|on| on.router).map(|_| Instant::now());
    let found = if exchange.times().is_some() {
        request_debug::time_router(exchange, |exchange| route(exchange, snapshot))
    } else {
        route(exchange, snapshot)
    };
    if let Some(start) = start {
        exchange.engine.step_done("kong.router", start, Instant::now());
    }
    found.ok_or_else(|| error_response(exchange, &RequestError::NoRoute))
}

/// Brings the path into its normal form.
pub(crate) fn normalize(exchange: &mut Exchange) {
    if let Cow::Owned(path) = normalize_path(exchange.request.path()) {
        exchange.engine.path = NormalPath::Rewritten(path);
    }
}

/// Finds the route.
pub(crate) fn route<'s>(exchange: &mut Exchange, snapshot: &'s Snapshot) -> Option<&'s CompiledRoute> {
    let found = with_query(exchange, |query| snapshot.router.find(query))?;
    exchange.engine.route = Some(found.index);
    exchange.engine.matched_path = found.matched_path;
    exchange.engine.captures = found.captures;
    let route = &snapshot.routes[found.index as usize];
    exchange.engine.path_handling = route.path_handling;
    Some(route)
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
        query: exchange.query().unwrap_or_default(),
        source: SocketAddr::new(exchange.client_ip, exchange.client_port().unwrap_or_default()),
        destination: exchange.engine.connection.local_ip,
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
) -> Result<(), LocalResponse> {
    let (mut reader, all) = (route.chain.reader, route.chain.access_hooks());
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
                collected.map_err(|failure| error_response(exchange, &failure))?;
            }
            Flow::Respond(answer) => {
                hooks::answered(exchange, plugin, &answer);
                return Err(answer);
            }
            Flow::Wait(future) => {
                let waiter = Waiter::new(exchange, plugin);
                match unless_gone(client, future).await {
                    Some(resume) => flow = hooks::resume(exchange, resume),
                    None => return Err(error_response(exchange, &RequestError::ClientGone)),
                }
                drop(waiter);
            }
        }
    }
}

/// After the last byte: logs and counts.
fn finish(worker: &Worker, exchange: &mut Exchange, chain: Option<&Chain>) {
    let end = *exchange.timing.end.get_or_insert_with(Instant::now);
    worker.count_request(exchange.request.version);
    if let Some(limit) = exchange.decision.limit {
        worker.limit_acted(limit);
    }
    hooks::finished(exchange);
    if let Some(recorder) = &worker.recorder {
        recorder.record(exchange, end);
    }
    if let Some(chain) = chain {
        chain.log(exchange);
    }
    request_debug::log(exchange);
    telemetry::log_access(&worker.access_log, exchange, || worker.options.internal.has_path(exchange));
}

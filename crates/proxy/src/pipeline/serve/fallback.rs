//! Requests that a plugin sends elsewhere because the upstream failed, as long as the client has got nothing.

use super::proxy::{Answered, reach};
use crate::client::Client;
use crate::error::RequestError;
use crate::exchange::{Exchange, FailedTry};
use crate::pipeline::forward::AnyUpstream;
use crate::pipeline::request_body;
use crate::snapshot::{CompiledRoute, CompiledService};
use crate::worker::Worker;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;
use weir_plugin::{BodyBegin, UpstreamOutcome, engine};
use weir_upstream::{Upstream, UpstreamError};

/// Sends the request on, for as often as the plugin leads it elsewhere.
pub(super) async fn run<'s, C: Client>(
    worker: &'s Worker,
    client: &mut C,
    exchange: &mut Exchange,
    target: (&'s CompiledRoute, &'s CompiledService),
    mut reached: Result<Answered<'s>, RequestError>,
) -> Result<Answered<'s>, RequestError> {
    let mut start = exchange.timing.upstream_start.unwrap_or(exchange.timing.start);
    loop {
        reached = begun(client, exchange, reached).await;
        let (outcome, begin) = match &mut reached {
            Ok((_, upstream, _)) => (UpstreamOutcome::Answered, body_here(upstream)),
            Err(RequestError::Upstream(_)) => {
                (UpstreamOutcome::Failed, BodyBegin { bytes: &[], is_whole: false })
            }
            Err(_) => return reached,
        };
        let status = exchange.response.status;
        if !engine::falls_back(exchange, outcome, begin) {
            return reached;
        }
        pass_over(worker, exchange, (start, status), reached.err());
        start = Instant::now();
        let framing = request_body::buffer(worker, client, exchange, target.0).await?;
        reached = reach(worker, client, exchange, target, framing).await;
    }
}

/// Waits for the first bytes of a success: one that ends before them is a failure of the upstream.
async fn begun<'s, C: Client>(
    client: &mut C,
    exchange: &mut Exchange,
    reached: Result<Answered<'s>, RequestError>,
) -> Result<Answered<'s>, RequestError> {
    let (call, mut upstream, upload) = reached?;
    if !upload.whole || !(200..300).contains(&exchange.response.status) {
        return Ok((call, upstream, upload));
    }
    let now = Instant::now();
    client.deadline().set(now, call.timeouts.at_most(now, call.timeouts.read));
    let begins = poll_fn(|cx| match &mut upstream {
        AnyUpstream::Http1(upstream) => poll_begin(client, &mut **upstream, cx),
        AnyUpstream::Http2(upstream) => poll_begin(client, &mut **upstream, cx),
    });
    match begins.await {
        Ok(()) => Ok((call, upstream, upload)),
        Err(failure) => {
            exchange.response.clear();
            Err(failure)
        }
    }
}

/// What is here of the body.
fn body_here(upstream: &mut AnyUpstream) -> BodyBegin<'_> {
    let (is_whole, body) = match upstream {
        AnyUpstream::Http1(upstream) => (upstream.body_is_done(), upstream.body()),
        AnyUpstream::Http2(upstream) => (upstream.body_is_done(), upstream.body()),
    };
    // What is wrong with it shows when it is passed on.
    BodyBegin { bytes: body.unwrap_or_default(), is_whole }
}

fn poll_begin<C: Client, U: Upstream>(
    client: &mut C,
    upstream: &mut U,
    cx: &mut Context<'_>,
) -> Poll<Result<(), RequestError>> {
    loop {
        let has_begun = !upstream.body().map_err(UpstreamError::InvalidResponse)?.is_empty();
        if has_begun || upstream.body_is_done() {
            return Poll::Ready(Ok(()));
        }
        match upstream.poll_more(cx) {
            Poll::Ready(more) => more.map_err(UpstreamError::Closed)?,
            Poll::Pending => break,
        }
    }
    if client.poll_gone(cx).is_ready() {
        return Poll::Ready(Err(RequestError::ClientGone));
    }
    ready!(client.deadline().poll(cx));
    Poll::Ready(Err(UpstreamError::Timeout.into()))
}

/// Notes an attempt after which the request goes elsewhere.
fn pass_over(
    worker: &Worker,
    exchange: &mut Exchange,
    (start, status): (Instant, u16),
    failure: Option<RequestError>,
) {
    let code = match &failure {
        None => status,
        Some(RequestError::Upstream(error)) if error.is_timeout() => 504,
        Some(_) => 502,
    };
    let address = exchange.engine.upstream_addr.take();
    if worker.may_warn() {
        let (address, why) = (address.map(|of| of.to_string()), failure.map(|of| of.to_string()));
        tracing::warn!(
            request_id = exchange.id(),
            address = address.as_deref(),
            status = code,
            "the request is sent elsewhere{}",
            why.map(|why| format!(": {why}")).unwrap_or_default()
        );
    }
    if let Some(address) = address {
        let (port, end) = (address.port(), Instant::now());
        exchange.engine.try_failed(FailedTry { address: Some(address), port, start, end, code });
    }
    exchange.response.clear();
}

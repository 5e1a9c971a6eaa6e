//! Changes a response's body as plugins have asked: leaves it out, buffers it until they have replaced it, or has it go
//! through their filters.

use crate::client::{Client, unless_gone};
use crate::error::RelayError;
use crate::error::RequestError;
use crate::exchange::Exchange;
use crate::observe::recorder::error_response;
use crate::pipeline::filtered_body::FilteredBody;
use crate::pipeline::relay::Relay;
use crate::snapshot::chain::Chain;
use crate::worker::Worker;
use bytes::Bytes;
use std::future::poll_fn;
use tokio::time::Instant;
use weir_http1::{Framing, ResponseHead};
use weir_plugin::BufferedBody;
use weir_plugin::engine::{BodyChanges, BodyFilters, BodyReservation, ReplaceLater};
use weir_upstream::Upstream;

/// The most that is buffered; a longer body passes as it is.
const MAX_BUFFERED_LEN: usize = 8 * 1024 * 1024;

/// The most that is read of a body that is left out, so that the connection can be used again.
const MAX_DISCARDED_LEN: usize = 64 * 1024;

/// How a response's body goes on that plugins change.
pub(crate) struct ChangedBody {
    /// What was buffered of it.
    buffered: BufferedBody,
    filtered: Option<FilteredBody>,
    pub(crate) framing: Framing,
    /// Some of the body is left out with the upstream, whose connection is of no more use.
    is_cut: bool,
}

/// What the response hooks have asked for the body, if it has one.
pub(crate) fn changes(exchange: &mut Exchange, is_head: bool) -> Option<BodyChanges> {
    let ResponseHead { status, framing, .. } = *exchange.response;
    let is_bodiless = is_head || matches!(status, 204 | 304);
    let Some(mut changes) = exchange.take_body_changes() else {
        // A plugin has changed the status, or the method that the upstream was asked with.
        let drops = is_bodiless && framing != Framing::None;
        return drops.then(|| BodyChanges { drops, ..BodyChanges::default() });
    };
    if !changes.filters.is_empty() || (changes.buffers && framing == Framing::None) {
        // How long the body of a GET would be is known only once it is changed.
        exchange.response.headers.remove("Content-Length");
    }
    changes.buffers |= changes.runs_without_body;
    if is_bodiless {
        (changes.filters, changes.drops) = (BodyFilters::default(), !changes.runs_without_body);
    }
    (framing != Framing::None || changes.runs_without_body).then_some(changes)
}

/// Whether the response may have no body.
fn may_have_none<C: Client, U: Upstream>(relay: &Relay<'_, C, U>) -> bool {
    relay.client.is_head() || matches!(relay.exchange.response.status, 204 | 304)
}

/// How long a body is that was buffered, in the head of its response; it is left out where the response may have none.
fn buffered_framing<C: Client, U: Upstream>(relay: &Relay<'_, C, U>, buffered: &mut BufferedBody) -> Framing {
    if may_have_none(relay) {
        buffered.replace(|_| Vec::new());
        return Framing::None;
    }
    Framing::Length(buffered.len() as u64)
}

/// Takes the body into memory and has the plugins replace it, if they have asked for that, and says how it goes on.
pub(crate) async fn change<C: Client, U: Upstream>(
    relay: &mut Relay<'_, C, U>,
    chain: &Chain,
    mut changes: BodyChanges,
) -> Result<Box<ChangedBody>, RelayError> {
    let framing = relay.exchange.response.framing;
    let (buffered, is_cut, filtered) = (BufferedBody::default(), false, None);
    let mut changed = Box::new(ChangedBody { buffered, filtered, framing, is_cut });
    if changes.drops {
        discard(relay, &mut changed).await?;
        return Ok(changed);
    }
    if changes.buffers {
        let is_known = buffer(relay, chain, &mut changed, &mut changes).await?;
        if let Some(later) = changes.later {
            let buffered = changed.buffered.take();
            let body = replace_later(relay, later, is_known.then_some(buffered)).await?;
            changed.buffered.replace(|_| body);
            changed.framing = buffered_framing(relay, &mut changed.buffered);
        }
    }
    if !changes.filters.is_empty() {
        changed.framing = Framing::Chunked;
        let mut filtered = FilteredBody::new(changes.filters);
        if !changes.buffers {
            poll_fn(|cx| relay.poll_held(cx, &mut filtered)).await?;
        }
        changed.filtered = Some(filtered);
    }
    Ok(changed)
}

async fn discard<C: Client, U: Upstream>(
    relay: &mut Relay<'_, C, U>,
    changed: &mut ChangedBody,
) -> Result<(), RelayError> {
    let mut body = BufferedBody::default();
    changed.framing = Framing::Length(0);
    // What is not here yet is not waited for, and how it ends does not matter: the client gets none of it.
    let mut whole = |cx: &mut std::task::Context<'_>| {
        matches!(relay.poll_buffer(cx, &mut body, MAX_DISCARDED_LEN), std::task::Poll::Ready(Ok(true)))
    };
    changed.is_cut = !poll_fn(|cx| std::task::Poll::Ready(whole(cx))).await;
    if changed.is_cut {
        relay.exchange.engine.upstream_is_cut();
    }
    Ok(())
}

/// Takes the body into memory and has the plugins replace it. Returns whether all of it is known; otherwise it passes as it
/// is, unless it is replaced in any case.
async fn buffer<C: Client, U: Upstream>(
    relay: &mut Relay<'_, C, U>,
    chain: &Chain,
    changed: &mut ChangedBody,
    changes: &mut BodyChanges,
) -> Result<bool, RelayError> {
    let is_too_long = matches!(changed.framing, Framing::Length(n) if n > MAX_BUFFERED_LEN as u64);
    changed.buffered = BufferedBody::within(relay.exchange.engine.reserve_body(false));
    let is_whole =
        !is_too_long && poll_fn(|cx| relay.poll_buffer(cx, &mut changed.buffered, MAX_BUFFERED_LEN)).await?;
    let mut replacement = changes.replacement.take();
    if !is_whole && replacement.is_none() {
        replacement = changes.refuse_too_long(&mut relay.exchange.public);
    }
    let is_known = is_whole || replacement.is_some();
    if !is_known && changes.later.is_none() {
        if may_have_none(relay) {
            changed.is_cut = true;
            relay.exchange.engine.upstream_is_cut();
            changed.framing = buffered_framing(relay, &mut changed.buffered);
        }
        return Ok(false);
    }
    if !is_whole {
        changed.is_cut = true;
        relay.exchange.engine.upstream_is_cut();
    }
    if is_known {
        replace(relay, chain, (&mut changed.buffered, replacement)).await?;
    }
    changed.framing = buffered_framing(relay, &mut changed.buffered);
    Ok(is_known)
}

/// Has the plugins replace a body that is whole, one after another, also those that wait before they do.
async fn replace<C: Client, U: Upstream>(
    relay: &mut Relay<'_, C, U>,
    chain: &Chain,
    (buffered, replacement): (&mut BufferedBody, Option<Vec<u8>>),
) -> Result<(), RelayError> {
    let body = buffered.take();
    let (mut body, mut waiting) = chain.response_body(relay.exchange, replacement.unwrap_or(body), 0);
    while let Some((later, next)) = waiting {
        body = replace_later(relay, later, Some(body)).await?;
        (body, waiting) = chain.response_body(relay.exchange, body, next);
    }
    buffered.replace(|_| body);
    Ok(())
}

/// Has a plugin replace a body, and waits until it has, however often, unless the client leaves.
async fn replace_later<C: Client, U: Upstream>(
    relay: &mut Relay<'_, C, U>,
    later: ReplaceLater,
    body: Option<Vec<u8>>,
) -> Result<Vec<u8>, RelayError> {
    let gone = || RelayError::Client(std::io::ErrorKind::ConnectionAborted.into());
    let mut waiting = later(&mut relay.exchange.public, body);
    loop {
        let resume = unless_gone(relay.client, waiting).await.ok_or_else(gone)?;
        let body = resume(&mut relay.exchange.public);
        let Some(again) = relay.exchange.engine.take_later() else { return Ok(body) };
        waiting = again(&mut relay.exchange.public, Some(body));
    }
}

/// A body of the gateway's own that plugins have changed.
pub(crate) struct OwnBody {
    pub(crate) bytes: Bytes,
    /// What it takes of the node's memory.
    pub(crate) reservation: Option<BodyReservation>,
    pub(crate) filtered: Option<Box<FilteredBody>>,
}

impl OwnBody {
    /// One that is sent as it is.
    pub(crate) fn unchanged(bytes: Bytes) -> Self {
        Self { bytes, reservation: None, filtered: None }
    }
}

/// Has the plugins change the body of a response of the gateway's own, as they have asked. One that is to be left out is
/// sent all the same: it is the answer.
pub(crate) fn change_own(
    worker: &Worker,
    exchange: &mut Exchange,
    chain: &Chain,
    (body, is_cached): (Bytes, bool),
) -> OwnBody {
    let mut own = OwnBody::unchanged(body);
    let Some(changes) = exchange.take_body_changes() else { return own };
    if changes.drops && is_cached {
        // It is the upstream's, if an earlier one.
        exchange.response.headers.remove("Content-Length");
        return OwnBody::unchanged(Bytes::new());
    }
    if changes.buffers {
        let body = changes.replacement.map_or((own.bytes, is_cached), |body| (body.into(), false));
        (own.bytes, own.reservation) = replace_own(worker, exchange, chain, body);
        if own.reservation.is_none() {
            return own;
        }
    }
    if !changes.filters.is_empty() {
        exchange.response.headers.remove("Content-Length");
        own.filtered = Some(Box::new(FilteredBody::new(changes.filters)));
    }
    own
}

/// Has the plugins replace the body of a response of the gateway's own. They are given a copy of a cached one.
fn replace_own(
    worker: &Worker,
    exchange: &mut Exchange,
    chain: &Chain,
    (body, is_cached): (Bytes, bool),
) -> (Bytes, Option<BodyReservation>) {
    let mut reservation = exchange.engine.reserve_body(false);
    if is_cached && reservation.grow_to(body.len()).is_err() {
        exchange.engine.failed = true;
        let error = error_response(exchange, &RequestError::NoMemoryForResponse);
        return (error.write(exchange, &worker.options.error_templates), None);
    }
    // What waits is for the upstream's responses alone.
    let (body, _) = chain.response_body(exchange, body.into(), 0);
    reservation.fit(body.capacity());
    (body.into(), Some(reservation))
}

/// Sends what was buffered, and passes on what was not.
pub(crate) async fn send<C: Client, U: Upstream>(
    relay: &mut Relay<'_, C, U>,
    changed: Box<ChangedBody>,
) -> Result<(), RelayError> {
    let ChangedBody { buffered, filtered, is_cut, .. } = *changed;
    let (since, mut sent) = (Instant::now(), 0);
    let Some(mut filtered) = filtered else {
        poll_fn(|cx| relay.poll_send_buffered(cx, &buffered, (since, &mut sent))).await?;
        drop(buffered);
        return poll_fn(|cx| if is_cut { relay.poll_end(cx) } else { relay.poll_body(cx) }).await;
    };
    poll_fn(|cx| relay.poll_filter_buffered(cx, (&buffered, &mut filtered), (since, &mut sent))).await?;
    drop(buffered);
    if !is_cut {
        return poll_fn(|cx| relay.poll_filtered(cx, &mut filtered)).await;
    }
    if filtered.end(relay.exchange) {
        let rest = BufferedBody::default();
        poll_fn(|cx| relay.poll_filter_buffered(cx, (&rest, &mut filtered), (since, &mut 0))).await?;
    }
    poll_fn(|cx| relay.poll_end(cx)).await
}

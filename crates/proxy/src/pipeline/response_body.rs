//! Buffers a response's body that plugins replace, then sends it with its new length.

use crate::client::Client;
use crate::error::RelayError;
use crate::error::RequestError;
use crate::exchange::Exchange;
use crate::pipeline::relay::Relay;
use crate::snapshot::chain::Chain;
use bytes::Bytes;
use std::future::poll_fn;
use std::time::Instant;
use weir_http1::Framing;
use weir_plugin::{HeldBody, engine::Room};
use weir_upstream::Upstream;

/// The most that is held; a longer body passes as it is.
const HELD: usize = 8 * 1024 * 1024;

/// The most that is read of a body that is left out, so that the connection can be used again.
const LEFT_OUT: usize = 64 * 1024;

/// What was held, and how the body goes on.
pub(crate) struct Held {
    body: HeldBody,
    pub(crate) framing: Framing,
    /// Some of the body is left out with the upstream, whose connection is of no more use.
    pub(crate) is_cut: bool,
}

/// Takes the body into memory and has the plugins replace it.
pub(crate) async fn hold<C: Client, U: Upstream>(
    relay: &mut Relay<'_, C, U>,
    chain: &Chain,
) -> Result<Held, RelayError> {
    let framing = relay.exchange.response.framing;
    if relay.exchange.drops_response() {
        let mut body = HeldBody::default();
        let is_whole = poll_fn(|cx| relay.poll_hold(cx, &mut body, LEFT_OUT)).await?;
        if !is_whole {
            relay.exchange.engine.upstream_is_cut();
        }
        return Ok(Held { body: HeldBody::default(), framing: Framing::Length(0), is_cut: !is_whole });
    }
    let mut body = HeldBody::within(relay.exchange.engine.room(false));
    let is_too_long = matches!(framing, Framing::Length(n) if n > HELD as u64);
    if is_too_long || !poll_fn(|cx| relay.poll_hold(cx, &mut body, HELD)).await? {
        return Ok(Held { body, framing, is_cut: false });
    }
    body.replace(|body| chain.response_body(relay.exchange, body));
    let framing = Framing::Length(body.len() as u64);
    Ok(Held { body, framing, is_cut: false })
}

/// Has the plugins replace the body of a response of the gateway's own. They are given a copy of one that is kept.
pub(crate) fn replace_own(
    exchange: &mut Exchange,
    chain: &Chain,
    body: Bytes,
    is_kept: bool,
) -> (Bytes, Option<Room>) {
    let mut room = exchange.engine.room(false);
    if is_kept && room.grow_to(body.len()).is_err() {
        exchange.engine.failed = true;
        return (RequestError::NoRoomForResponse.answer().write(exchange), None);
    }
    let body = chain.response_body(exchange, body.into());
    room.fit(body.capacity());
    (body.into(), Some(room))
}

/// Sends what was held, and passes on what was not.
pub(crate) async fn send<C: Client, U: Upstream>(
    relay: &mut Relay<'_, C, U>,
    held: Held,
) -> Result<(), RelayError> {
    if held.is_cut {
        return poll_fn(|cx| relay.poll_end(cx)).await;
    }
    let (since, mut sent) = (Instant::now(), 0);
    poll_fn(|cx| relay.poll_send_held(cx, &held.body, (since, &mut sent))).await?;
    drop(held);
    poll_fn(|cx| relay.poll_body(cx)).await
}

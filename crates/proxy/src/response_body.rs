//! A response's body that plugins replace: held until it is whole, then sent with its new length.

use crate::chain::Chain;
use crate::client::Client;
use crate::relay::{Broken, Relay};
use crate::upstream::Upstream;
use std::future::poll_fn;
use weir_http1::Framing;

/// The most that is held; a longer body passes as it is.
const HELD: usize = 8 * 1024 * 1024;

/// The most that is read of a body that is left out, so that the connection can be used again.
const LEFT_OUT: usize = 64 * 1024;

/// What was held, and how the body goes on.
pub(crate) struct Held {
    body: Vec<u8>,
    pub(crate) framing: Framing,
    /// Some of the body is left out with the upstream, whose connection is of no more use.
    pub(crate) is_cut: bool,
}

/// Takes the body into memory and has the plugins replace it.
pub(crate) async fn hold<C: Client, U: Upstream>(
    relay: &mut Relay<'_, C, U>,
    chain: &Chain,
) -> Result<Held, Broken> {
    let mut body = Vec::new();
    let drops = relay.exchange.drops_response();
    let most = if drops { LEFT_OUT } else { HELD };
    let is_whole = poll_fn(|cx| relay.poll_hold(cx, &mut body, most)).await?;
    if drops {
        return Ok(Held { body: Vec::new(), framing: Framing::Length(0), is_cut: !is_whole });
    }
    if !is_whole {
        return Ok(Held { body, framing: relay.exchange.response.framing, is_cut: false });
    }
    let body = chain.response_body(relay.exchange, body);
    let framing = Framing::Length(body.len() as u64);
    Ok(Held { body, framing, is_cut: false })
}

/// Sends what was held, and passes on what was not.
pub(crate) async fn send<C: Client, U: Upstream>(
    relay: &mut Relay<'_, C, U>,
    held: Held,
) -> Result<(), Broken> {
    if held.is_cut {
        return poll_fn(|cx| relay.poll_end(cx)).await;
    }
    let mut left = &*held.body;
    poll_fn(|cx| relay.poll_send_held(cx, &mut left)).await?;
    poll_fn(|cx| relay.poll_body(cx)).await
}

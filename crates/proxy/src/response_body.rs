//! A response's body that plugins replace: held until it is whole, then sent with its new length.

use crate::chain::Chain;
use crate::client::Client;
use crate::relay::{Broken, Relay};
use crate::upstream::Upstream;
use std::future::poll_fn;
use weir_http1::Framing;

/// The most that is held; a longer body passes as it is.
const HELD: usize = 8 * 1024 * 1024;

/// What was held, and how the body goes on.
pub(crate) struct Held {
    body: Vec<u8>,
    pub(crate) framing: Framing,
}

/// Takes the body into memory and has the plugins replace it.
pub(crate) async fn hold<C: Client, U: Upstream>(
    relay: &mut Relay<'_, C, U>,
    chain: &Chain,
) -> Result<Held, Broken> {
    let mut body = Vec::new();
    if !poll_fn(|cx| relay.poll_hold(cx, &mut body, HELD)).await? {
        return Ok(Held { body, framing: relay.exchange.response.framing });
    }
    let body = chain.response_body(relay.exchange, body);
    let framing = Framing::Length(body.len() as u64);
    Ok(Held { body, framing })
}

/// Sends what was held, and passes on what was not.
pub(crate) async fn send<C: Client, U: Upstream>(
    relay: &mut Relay<'_, C, U>,
    held: Held,
) -> Result<(), Broken> {
    let mut left = &*held.body;
    poll_fn(|cx| relay.poll_send_held(cx, &mut left)).await?;
    poll_fn(|cx| relay.poll_body(cx)).await
}

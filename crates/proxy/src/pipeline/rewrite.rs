//! The rewrite hooks of global plugins, before the route is found.

use crate::client::{Client, unless_gone};
use crate::error::RequestError;
use crate::exchange::Exchange;
use crate::observe::hooks::{self, Waiter};
use crate::observe::recorder::error_response;
use crate::snapshot::chain::Chain;
use weir_plugin::{Flow, LocalResponse};

/// Runs the hooks. An error is what the client gets.
pub(crate) async fn run<C: Client>(
    client: &mut C,
    exchange: &mut Exchange,
    global: &Chain,
) -> Result<(), LocalResponse> {
    let (mut flow, mut at, mut plugin) = global.rewrite(exchange, 0);
    loop {
        match flow {
            Flow::Continue if plugin.is_none() => return Ok(()),
            Flow::Continue => (flow, at, plugin) = global.rewrite(exchange, at),
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

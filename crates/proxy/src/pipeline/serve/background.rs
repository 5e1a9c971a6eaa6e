//! Requests that plugins have sent to the upstream although the client has its response already.

use super::Outcome;
use super::proxy;
use crate::client::{AbortCode, Client};
use crate::error::RequestError;
use crate::exchange::{Exchange, Sampler};
use crate::worker::Worker;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::task::spawn_local;
use weir_http1::{Framing, Headers, ParseError, ResponseHead};
use weir_net::deadline::Deadline;
use weir_plugin::engine;

/// Sends the request that a plugin has asked for, if one has.
#[inline]
pub(super) fn start(worker: &Rc<Worker>, exchange: &mut Exchange) {
    if let Some(prepare) = engine::take_background(exchange) {
        let mut copy = copy(worker, exchange);
        prepare(&mut copy);
        spawn_local(send(worker.clone(), copy));
    }
}

fn copy(worker: &Worker, exchange: &mut Exchange) -> Exchange {
    let heads = (exchange.request.clone(), Box::default());
    let connection = exchange.engine.connection.clone();
    let origin = (worker.index, exchange.id);
    let mut copy = Exchange::new(&connection, exchange.snapshot.clone(), origin, heads, Sampler::default());
    // As a trusted proxy or a plugin has said.
    copy.client_ip = exchange.client_ip;
    engine::ask_the_same(exchange, &mut copy);
    copy
}

/// Asks the upstream, and reads its response as far as plugins need it.
async fn send(worker: Rc<Worker>, mut exchange: Exchange) {
    let snapshot = exchange.snapshot.clone();
    let Some(route) = exchange.engine.route.map(|index| &snapshot.routes[index as usize]) else { return };
    let Some(service) = &route.service else { return };
    let mut client = NoClient::default();
    if let Outcome::Upstream(mut response) =
        proxy::ask(&worker, &mut client, &mut exchange, (route, service)).await
    {
        response.observe(&mut client, &mut exchange).await;
    }
}

/// Stands for a client that has sent a request without a body, and takes whatever it gets.
#[derive(Default)]
struct NoClient {
    deadline: Deadline,
}

impl Client for NoClient {
    fn is_head(&self) -> bool {
        false
    }

    fn framing(&self) -> Framing {
        Framing::None
    }

    fn body(&mut self) -> Result<&[u8], ParseError> {
        Ok(&[])
    }

    fn consume(&mut self, _: usize) {}

    fn body_is_done(&self) -> bool {
        true
    }

    fn body_has_ended(&self) -> bool {
        true
    }

    fn body_is_whole(&self) -> bool {
        true
    }

    fn buffered(&self) -> usize {
        0
    }

    fn body_is_buffered(&self) -> bool {
        true
    }

    fn poll_more(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RequestError>> {
        Poll::Ready(Ok(()))
    }

    fn trailers(&self) -> Option<&Headers> {
        None
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn send_interim(&mut self, _: &ResponseHead) {}

    fn begin(&mut self, _: &weir_plugin::Exchange, _: Framing) -> u64 {
        0
    }

    fn poll_send(&mut self, _: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(data.len()))
    }

    fn end(&mut self, _: Option<&Headers>) -> io::Result<()> {
        Ok(())
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn deadline(&mut self) -> &mut Deadline {
        &mut self.deadline
    }

    fn has_begun(&self) -> bool {
        true
    }

    fn close_after(&mut self) {}

    fn retract(&mut self) -> bool {
        false
    }

    fn unsent(&self) -> u64 {
        0
    }

    fn abort(&mut self, _: AbortCode) {}
}

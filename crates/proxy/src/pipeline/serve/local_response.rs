//! Sends responses that the gateway generates itself.

use crate::client::Client;
use crate::exchange::Exchange;
use crate::pipeline::respond;
use crate::pipeline::response_body;
use crate::snapshot::chain::Chain;
use crate::worker::Worker;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Instant;
use weir_http1::Framing;
use weir_plugin::LocalResponse;
use weir_plugin::engine::grpc_status;

/// Sends a response of the gateway itself. Discards an unread request body if it is short; otherwise closes the
/// connection, so that the body can't be parsed as the next request.
pub(super) async fn send<C: Client>(
    worker: &Worker,
    client: &mut C,
    exchange: &mut Exchange,
    chain: Option<&Chain>,
    answer: LocalResponse,
) {
    exchange.engine.failed = answer.failed;
    if answer.client_gone {
        exchange.response.status = answer.status;
        return client.abort();
    }
    // A kept response carries its own length, if it is known.
    let is_kept = answer.kept_headers.is_some();
    let mut body = answer.write(exchange);
    let mut room = None;
    if let Some(chain) = chain {
        chain.response(exchange);
        if exchange.holds_response() {
            (body, room) = response_body::replace_own(exchange, chain, body, is_kept);
        }
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
pub(super) async fn send_whole<C: Client>(
    worker: &Worker,
    client: &mut C,
    exchange: &mut Exchange,
    mut left: &[u8],
) {
    client.deadline().set(Instant::now(), worker.options.send_timeout);
    let sent = poll_fn(|cx| {
        let sent = poll_send(client, exchange, &mut left, cx);
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
    if !grpc_status::is_call(exchange) {
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

fn poll_send<C: Client>(
    client: &mut C,
    exchange: &mut Exchange,
    left: &mut &[u8],
    cx: &mut Context<'_>,
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

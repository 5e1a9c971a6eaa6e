//! Sends responses that the gateway generates itself.

use crate::client::{AbortCode, Client};
use crate::exchange::Exchange;
use crate::pipeline::filtered_body::FilteredBody;
use crate::pipeline::respond;
use crate::pipeline::response_body::{self, OwnBody};
use crate::snapshot::chain::Chain;
use crate::worker::Worker;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;
use weir_http1::Framing;
use weir_plugin::LocalResponse;
use weir_plugin::engine::grpc_status;

/// Sends a response of the gateway itself. Behind a plugin's response, discards an unread request body if it is not too
/// long; otherwise closes the connection, so that the body can't be parsed as the next request.
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
        return client.abort(AbortCode::Failed);
    }
    // A cached response carries its own length, if it is known.
    let is_cached = answer.cached_headers.is_some();
    exchange.decision.cached = is_cached;
    let relayed = answer.relayed;
    let body = answer.write(exchange, &worker.options.error_templates);
    let own = match chain {
        None => OwnBody::unchanged(body),
        Some(chain) => {
            chain.response(exchange);
            response_body::change_own(worker, exchange, chain, (body, is_cached))
        }
    };
    match is_cached {
        true => respond::decorate_cached(worker, exchange),
        false => respond::decorate_own(worker, exchange, relayed),
    }
    skip_request_body(client, exchange.engine.failed);
    if client.is_head() && !is_cached && own.filtered.is_none() {
        exchange.response.headers.append("Content-Length", own.bytes.len().to_string().as_bytes());
    }
    if worker.draining.get() {
        client.close_after();
    }
    send_own(worker, client, exchange, own).await;
}

/// Sends head and body of the gateway's own response.
async fn send_own<C: Client>(worker: &Worker, client: &mut C, exchange: &mut Exchange, own: OwnBody) {
    let (is_call, length) = (grpc_status::is_call(exchange), own.bytes.len() as u64);
    let is_bodiless = is_call || client.is_head() || matches!(exchange.response.status, 204 | 304);
    let filtered = own.filtered.filter(|_| !is_bodiless);
    let framing = match filtered {
        _ if is_call => Framing::None,
        Some(_) => Framing::Chunked,
        None => Framing::Length(length),
    };
    exchange.bytes_out += begin_own(client, exchange, framing);
    match filtered {
        Some(filtered) => Box::pin(send_filtered(worker, client, exchange, (filtered, &own.bytes))).await,
        None => send_whole(worker, client, exchange, if is_bodiless { &[] } else { &own.bytes }).await,
    }
    drop(own.reservation);
}

/// Sends a body whose head is on its way, and ends the response.
pub(super) async fn send_whole<C: Client>(
    worker: &Worker,
    client: &mut C,
    exchange: &mut Exchange,
    mut left: &[u8],
) {
    in_time(worker, client, |client, cx| {
        while !left.is_empty() {
            let n = ready!(client.poll_send(cx, left))?;
            exchange.bytes_out += n as u64;
            left = &left[n..];
        }
        poll_end(client, cx)
    })
    .await;
}

/// The same for what the filters of plugins make of a body.
async fn send_filtered<C: Client>(
    worker: &Worker,
    client: &mut C,
    exchange: &mut Exchange,
    (mut filtered, mut left): (Box<FilteredBody>, &[u8]),
) {
    in_time(worker, client, |client, cx| {
        loop {
            while !filtered.unsent().is_empty() {
                let n = ready!(client.poll_send(cx, filtered.unsent()))?;
                exchange.bytes_out += n as u64;
                filtered.advance(n);
            }
            left = &left[filtered.push_from(exchange, left)..];
            if left.is_empty() && filtered.unsent().is_empty() && !filtered.end(exchange) {
                return poll_end(client, cx);
            }
        }
    })
    .await;
}

/// Sends all of a response within `send_timeout`; aborts it otherwise.
async fn in_time<C: Client>(
    worker: &Worker,
    client: &mut C,
    mut poll_send: impl FnMut(&mut C, &mut Context<'_>) -> Poll<std::io::Result<()>>,
) {
    client.deadline().set(Instant::now(), worker.options.send_timeout);
    let sent = poll_fn(|cx| {
        let sent = poll_send(client, cx);
        if sent.is_pending() {
            client.deadline().poll(cx).map(|()| Err(std::io::ErrorKind::TimedOut.into()))
        } else {
            sent
        }
    });
    if sent.await.is_err() {
        client.abort(AbortCode::Failed);
    }
}

fn poll_end<C: Client>(client: &mut C, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
    client.end(None)?;
    client.poll_flush(cx)
}

/// Sends the head of the gateway's own response. To a gRPC call that is 200 with gRPC's own status; the hooks and the log
/// see what it stands for.
fn begin_own<C: Client>(client: &mut C, exchange: &mut Exchange, framing: Framing) -> u64 {
    if framing != Framing::None {
        return client.begin(exchange, framing);
    }
    let status = std::mem::replace(&mut exchange.response.status, 200);
    let bytes = client.begin(exchange, framing);
    exchange.response.status = status;
    bytes
}

fn skip_request_body<C: Client>(client: &mut C, has_failed: bool) {
    let is_well_framed = loop {
        match client.body().map(<[u8]>::len) {
            Ok(0) => break true,
            Ok(n) => client.consume(n),
            Err(_) => break false,
        }
    };
    if !client.body_is_done() && (has_failed || !is_well_framed || !client.discard_body()) {
        client.close_after();
    }
}

//! Buffers a request's body before it is forwarded, for plugins that read it and for `request_buffering`.

use crate::client::Client;
use crate::error::RequestError;
use crate::exchange::Exchange;
use crate::snapshot::{CompiledRoute, CompiledService};
use crate::worker::{Options, Worker};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;
use weir_http1::{Framing, Known};
use weir_plugin::{BufferedBody, WantsBody};

/// The most that `request_buffering` holds of a body before the upstream is asked; a longer body streams.
const BUFFERED: usize = 64 * 1024;

/// Takes the body into the exchange for plugins that read it. One that is longer than `client_body_buffer_size` streams
/// past them.
pub(crate) async fn collect<C: Client>(
    worker: &Worker,
    client: &mut C,
    exchange: &mut Exchange,
    wants: WantsBody,
) -> Result<(), RequestError> {
    let most = worker.options.client_body_buffer_size;
    let is_too_long = matches!(client.framing(), Framing::Length(n) if n > most as u64);
    let is_unread = match wants {
        WantsBody::Form => !is_form(exchange),
        WantsBody::Translated => is_binary_grpc_web(exchange),
        _ => false,
    };
    if is_too_long || is_unread || exchange.engine.body.is_some() {
        return Ok(());
    }
    let reservation = exchange.engine.reserve_body(wants < WantsBody::Translated);
    take(worker, client, exchange, BufferedBody::within(reservation), most).await
}

/// Whether the body has parameters that plugins read.
fn is_form(exchange: &Exchange) -> bool {
    const FORMS: [&[u8]; 3] =
        [b"application/x-www-form-urlencoded", b"application/json", b"multipart/form-data"];
    let content_type = exchange.header(Known::ContentType).unwrap_or_default();
    let is = |form: &&[u8]| content_type.get(..form.len()).is_some_and(|it| it.eq_ignore_ascii_case(form));
    FORMS.iter().any(is)
}

/// Whether the body has binary messages of gRPC-Web.
fn is_binary_grpc_web(exchange: &Exchange) -> bool {
    let content_type = exchange.header(Known::ContentType).unwrap_or_default();
    let name = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    is("application/grpc-web") || is("application/grpc-web+proto")
}

/// Takes the body from the client into the exchange, until its end or until `most` bytes are here.
async fn take<C: Client>(
    worker: &Worker,
    client: &mut C,
    exchange: &mut Exchange,
    mut buffered: BufferedBody,
    most: usize,
) -> Result<(), RequestError> {
    let (limit, mut since) = (worker.options.client_max_body_size, None);
    let length = match client.framing() {
        Framing::Length(n) => n as usize,
        _ => most,
    };
    loop {
        let data = client.body().map_err(RequestError::Rejected)?;
        let n = data.len();
        let has_memory = buffered.push(data, length).is_ok();
        if !has_memory && !buffered.is_optional() {
            return Err(RequestError::NoMemoryForRequest);
        }
        if has_memory {
            exchange.engine.request_passes(data)?;
            client.consume(n);
        }
        if limit > 0 && buffered.len() as u64 > limit {
            return Err(RequestError::BodyTooLarge);
        }
        if client.body_is_done() || buffered.len() >= most || !has_memory {
            exchange.bytes_in += buffered.len() as u64;
            exchange.engine.body_is_whole = client.body_is_done();
            exchange.engine.body = Some(buffered);
            exchange.engine.is_collected();
            return Ok(());
        }
        if n == 0 {
            let since = *since.get_or_insert_with(Instant::now);
            let due = buffered.due(since, worker.options.client_body_timeout, buffered.len());
            more(worker, client, due).await?;
        }
    }
}

/// Takes what is here of the body into the exchange without waiting for more: over HTTP/2 an upstream may refuse a
/// request, which then can be sent again.
pub(crate) async fn gather<C: Client>(
    worker: &Worker,
    client: &mut C,
    exchange: &mut Exchange,
) -> Result<(), RequestError> {
    if exchange.engine.body.is_some() || client.framing() == Framing::None {
        return Ok(());
    }
    let mut gathered = BufferedBody::default();
    poll_fn(|cx| {
        loop {
            let data = client.body().map_err(RequestError::Rejected)?;
            let n = data.len();
            let pushed = gathered.push(data, BUFFERED);
            client.consume(n);
            let enough = pushed.is_err() || client.body_is_done() || gathered.len() >= BUFFERED;
            if enough || !matches!(client.poll_more(cx), Poll::Ready(Ok(()))) {
                return Poll::Ready(Ok::<(), RequestError>(()));
            }
        }
    })
    .await?;
    let limit = worker.options.client_max_body_size;
    if limit > 0 && gathered.len() as u64 > limit {
        return Err(RequestError::BodyTooLarge);
    }
    exchange.bytes_in += gathered.len() as u64;
    exchange.engine.body_is_whole = client.body_is_done();
    exchange.engine.body = Some(gathered);
    Ok(exchange.engine.collected_passes()?)
}

/// Waits for more of the request's body, which is due by then at the latest.
async fn more<C: Client>(worker: &Worker, client: &mut C, due: Option<Instant>) -> Result<(), RequestError> {
    client.deadline().set(Instant::now(), worker.options.client_body_timeout);
    if let Some(due) = due {
        client.deadline().at_latest(due);
    }
    poll_fn(|cx| match client.poll_more(cx) {
        Poll::Ready(more) => Poll::Ready(more),
        Poll::Pending => client.deadline().poll(cx).map(|()| Err(RequestError::ClientTimeout)),
    })
    .await
}

/// When more of a body must have come, of which so many bytes have since the client is waited for; none if it may take its
/// time.
fn due(worker: &Worker, since: Instant, arrived: usize) -> Option<Instant> {
    let Options { client_body_min_rate: rate, client_body_timeout: timeout, .. } = worker.options;
    (rate > 0).then(|| since + timeout + Duration::from_secs_f64(arrived as f64 / f64::from(rate)))
}

/// Holds a short body until it is whole (`request_buffering`), so that a slow client does not hold the upstream.
/// Returns how the body goes on.
pub(crate) async fn buffer<C: Client>(
    worker: &Worker,
    client: &mut C,
    exchange: &mut Exchange,
    route: &CompiledRoute,
) -> Result<Framing, RequestError> {
    let framing = client.framing();
    // Messages of a gRPC call are for the upstream one by one.
    let is_grpc = route.service.as_deref().is_some_and(CompiledService::is_grpc);
    if exchange.engine.body.is_none() && route.request_buffering && !is_grpc {
        match framing {
            Framing::Chunked => take(worker, client, exchange, BufferedBody::default(), BUFFERED).await?,
            _ => {
                let mut since = None;
                while !client.body_is_buffered() {
                    let since = *since.get_or_insert_with(Instant::now);
                    more(worker, client, due(worker, since, client.buffered())).await?;
                }
            }
        }
    }
    exchange.engine.collected_passes()?;
    match &exchange.engine.body {
        Some(body) if exchange.engine.body_is_whole && (framing != Framing::None || !body.is_empty()) => {
            // Trailers stand behind chunks alone.
            Ok(client.trailers().map_or(Framing::Length(body.len() as u64), |_| Framing::Chunked))
        }
        _ => Ok(framing),
    }
}

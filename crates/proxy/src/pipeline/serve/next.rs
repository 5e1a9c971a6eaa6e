//! The next request of an HTTP/1.1 connection.

use super::{begin, one};
use crate::downstream::client::{Client, Http1};
use crate::exchange::Connection;
use crate::pipeline::answer::Failure;
use crate::runtime::worker::Worker;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;
use weir_http1::{ParseError, RequestHead};

/// Reads the next request of an HTTP/1.1 connection and serves it. Returns when it ended; none, when the connection is to
/// end too.
pub(crate) async fn next(
    worker: &Rc<Worker>,
    client: &mut Http1,
    connection: &Rc<Connection>,
) -> Option<Instant> {
    let (mut request, response) = worker.heads();
    let read = read_head(worker, client, &mut request).await;
    let Some(read) = read else {
        worker.keep_heads(request, response);
        return None;
    };
    if read.is_err() {
        // What it holds was said by an earlier request.
        request = RequestHead::default();
    }
    client.begin_exchange(&request);
    let most = worker.options.keepalive_requests;
    if most != 0 && connection.requests.get() >= most {
        client.close_after();
    }
    let mut exchange = begin(worker, connection, (request, response));
    one(worker, client, &mut exchange, read).await;
    let end = exchange.timing.end;
    let heads = exchange.public;
    worker.keep_heads(heads.request, heads.response);
    end.filter(|_| client.keep_alive && client.body_is_done())
}

/// Reads one head. `None`: the client left, or never began. `Some(Err)`: it is owed an answer.
async fn read_head(
    worker: &Worker,
    client: &mut Http1,
    head: &mut RequestHead,
) -> Option<Result<usize, Failure>> {
    let mut begun = false;
    loop {
        if !client.wire.inbox.is_empty() {
            match head.parse(client.wire.inbox.bytes(), &worker.options.request_limits) {
                Ok(Some(n)) => {
                    client.wire.inbox.consume(n);
                    return Some(Ok(n));
                }
                Ok(None) if client.wire.inbox.is_full() => {
                    let most = worker.options.request_limits.max_head_bytes;
                    if !client.wire.inbox.grow(most) {
                        return Some(Err(Failure::Rejected(ParseError::HeadTooLarge)));
                    }
                }
                Ok(None) => {}
                Err(_) if client.finds_preface() => return None,
                Err(reject) => return Some(Err(Failure::Rejected(reject))),
            }
            if !std::mem::replace(&mut begun, true) {
                client.deadline.set(Instant::now(), worker.options.client_header_timeout);
            }
        }
        let filled = poll_fn(|cx| match client.wire.poll_fill(cx) {
            Poll::Ready(filled) => Poll::Ready(Some(filled)),
            Poll::Pending if worker.draining.get() && !begun => Poll::Ready(Some(Ok(0))),
            Poll::Pending => client.deadline.poll(cx).map(|()| None),
        });
        match filled.await {
            Some(Ok(1..)) => {}
            Some(_) => return None,
            None => return begun.then_some(Err(Failure::ClientTimeout)),
        }
    }
}

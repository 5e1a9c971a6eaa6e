//! Requests that the node answers itself.

use super::request_body;
use crate::client::{Client, unless_gone};
use crate::error::RequestError;
use crate::exchange::Exchange;
use crate::worker::{InternalHandler, InternalRequest, Worker};
use weir_plugin::{LocalResponse, WantsBody};

/// The answer to a request to the node itself.
pub(crate) async fn answer<C: Client>(
    own: &dyn InternalHandler,
    worker: &Worker,
    client: &mut C,
    exchange: &mut Exchange,
) -> LocalResponse {
    let collected = request_body::collect(worker, client, exchange, WantsBody::Yes).await;
    let body = collected.and_then(|()| exchange.body().map(<[u8]>::to_vec).ok_or(RequestError::BodyTooLarge));
    let request = &exchange.request;
    let body = match body {
        Ok(body) => body,
        Err(failure) => {
            if matches!(failure, RequestError::BodyTooLarge) {
                own.too_long(exchange.peer, request.method_str(), request.path());
            }
            return failure.answer();
        }
    };
    let target = match request.query() {
        Some(query) => format!("{}?{query}", request.path()),
        None => request.path().to_owned(),
    };
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let headers = request.headers.iter().map(|field| (text(field.name), field.value.to_vec()));
    let (peer, method) = (exchange.peer, request.method_str().to_owned());
    let request = InternalRequest { peer, method, target, headers: headers.collect(), body };
    match unless_gone(client, own.answer(request)).await {
        Some(answer) => answer,
        None => RequestError::ClientGone.answer(),
    }
}

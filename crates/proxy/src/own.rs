//! Requests that the node answers itself, on paths of its own, before any route is looked for.

use crate::answer::{Answer, Failure};
use crate::client::Client;
use crate::exchange::Exchange;
use crate::request_body::{self, COLLECTED};
use crate::serve::unless_gone;
use crate::worker::Worker;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

/// A request to the node itself.
#[derive(Clone, PartialEq, Eq)]
pub struct OwnRequest {
    /// The method.
    pub method: String,
    /// The path and the query, as sent.
    pub target: String,
    /// Names and values of the headers.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Who answers requests to the node itself.
pub trait OwnPaths: Send + Sync + 'static {
    /// Whether a request is to the node itself: by the peer, the address that it connected to, and the path as sent.
    fn owns(&self, peer: SocketAddr, local: SocketAddr, path: &str) -> bool;
    /// Answers it. Runs on a worker: what takes long is to be done elsewhere.
    fn answer(&self, request: OwnRequest) -> Pin<Box<dyn Future<Output = Answer> + Send>>;
}

/// The paths that the node answers itself; by default none.
#[derive(Clone, Default)]
pub struct Own(pub Option<Arc<dyn OwnPaths>>);

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Own(…)" } else { "Own(none)" })
    }
}

impl Own {
    /// Who answers this request, if it is to the node itself.
    pub(crate) fn of(&self, exchange: &Exchange) -> Option<&dyn OwnPaths> {
        let own = self.0.as_deref()?;
        own.owns(exchange.peer, exchange.local(), exchange.request.path()).then_some(own)
    }
}

/// The answer to a request to the node itself.
pub(crate) async fn answer<C: Client>(
    own: &dyn OwnPaths,
    worker: &Worker,
    client: &mut C,
    exchange: &mut Exchange,
) -> Answer {
    if let Err(failure) = request_body::collect(worker, client, exchange, COLLECTED).await {
        return failure.answer();
    }
    let Some(body) = exchange.body().map(<[u8]>::to_vec) else { return Failure::BodyTooLarge.answer() };
    let request = &exchange.request;
    let target = match request.query() {
        Some(query) => format!("{}?{query}", request.path()),
        None => request.path().to_owned(),
    };
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let headers = request.headers.iter().map(|field| (text(field.name), field.value.to_vec()));
    let request =
        OwnRequest { method: request.method_str().to_owned(), target, headers: headers.collect(), body };
    match unless_gone(client, own.answer(request)).await {
        Some(answer) => answer,
        None => Failure::ClientGone.answer(),
    }
}

//! The state of HTTP/1.1 requests in flight, apart from their connections.

use crate::downstream::http1::{Http1, next};
use crate::exchange::Connection;
use crate::worker::Worker;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use tokio::time::Instant;

/// Slots kept for reuse by each worker.
const KEPT: usize = 256;

thread_local! {
    static FREE: RefCell<Vec<RequestSlot>> = const { RefCell::new(Vec::new()) };
}

/// A future that serves one request after the other, of whichever connection of the worker has one. The state of a
/// request is several times that of a connection, so idle connections hold none of it, and the few slots in use stay warm
/// in the cache. Because the future goes on with the next request, its memory is reused without being allocated anew.
struct RequestSlot {
    serving: Pin<Box<dyn Future<Output = Infallible>>>,
    handover: Rc<Handover>,
}

/// How a connection gives its client to a slot, and gets it back.
#[derive(Default)]
struct Handover {
    waiting: Cell<Option<Waiting>>,
    served: Cell<Option<Served>>,
}

/// A client whose next request is to be served.
type Waiting = (Rc<Worker>, Box<Http1>, Rc<Connection>);

/// The client whose request was served, and when that ended; none, if the connection is to end too.
type Served = (Box<Http1>, Option<Instant>);

impl RequestSlot {
    fn new() -> Self {
        let handover = Rc::new(Handover::default());
        Self { serving: Box::pin(serve_all(handover.clone())), handover }
    }
}

/// Reads the next request of a connection, and serves it, in a slot.
pub(crate) async fn serve_next(
    worker: &Rc<Worker>,
    client: Box<Http1>,
    connection: &Rc<Connection>,
) -> Served {
    let mut slot = FREE.with_borrow_mut(Vec::pop).unwrap_or_else(RequestSlot::new);
    slot.handover.waiting.set(Some((worker.clone(), client, connection.clone())));
    let served = poll_fn(|cx| {
        let Poll::Pending = slot.serving.as_mut().poll(cx);
        slot.handover.served.take().map_or(Poll::Pending, Poll::Ready)
    })
    .await;
    FREE.with_borrow_mut(|free| {
        if free.len() < KEPT {
            free.push(slot);
        }
    });
    served
}

async fn serve_all(handover: Rc<Handover>) -> Infallible {
    loop {
        // Nothing has to wake it: the task that hands a client over polls it.
        let waiting = || handover.waiting.take().map_or(Poll::Pending, Poll::Ready);
        let (worker, mut client, connection) = poll_fn(|_| waiting()).await;
        let end = next(&worker, &mut client, &connection).await;
        handover.served.set(Some((client, end)));
    }
}

//! One client's connection: accepted, TLS, then one exchange after the other.

use crate::client::Http1;
use crate::exchange::{Connection, Tls};
use crate::io::Io;
use crate::listen::Accepted;
use crate::options::RealIp;
use crate::proxy_protocol;
use crate::serve;
use crate::wire::Wire;
use crate::worker::Worker;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio_rustls::TlsAcceptor;

/// How long a client may go on sending after the last response, so that the response is not lost to a reset, and how long
/// it may pause; nginx's `lingering_time` and `lingering_timeout`.
const LINGER_TIME: Duration = Duration::from_secs(30);
const LINGER_PAUSE: Duration = Duration::from_secs(5);

/// Serves a connection to its end.
pub(crate) async fn run(worker: Rc<Worker>, accepted: Accepted) {
    let _leave = Leave::enlisted(&worker).await;
    let number = worker.count_connection();
    let (peer, local, tls) = (accepted.peer, accepted.local, accepted.listener.tls);
    let announced = accepted.listener.proxy_protocol;
    let trusted = worker.options.trusts(&accepted);
    let Ok((socket, client)) = proxy_protocol::open(&worker, accepted).await else { return };
    let client = client.filter(|_| worker.options.real_ip == RealIp::ProxyProtocol);
    let timeout = worker.options.client_header_timeout;
    let (io, tls) = if tls {
        let accepted = Box::pin(TlsAcceptor::from(worker.node.tls.config.clone()).accept(socket));
        let Ok(Ok(stream)) = tokio::time::timeout(timeout, accepted).await else { return };
        let tls = agreed(stream.get_ref().1);
        (Io::TlsServer(Box::new(stream)), Some(tls))
    } else {
        (Io::Plain(socket), None)
    };
    let connection = Connection::new(peer, local, number, tls, trusted);
    let connection = Rc::new(if announced { connection.on_behalf_of(client) } else { connection });
    exchanges(&worker, Http1::new(Wire::new(io)), connection).await;
}

fn agreed(session: &rustls::ServerConnection) -> Tls {
    let cipher =
        session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or_default();
    Tls {
        sni: session.server_name().map(|name| name.to_ascii_lowercase().into()),
        version: match session.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "TLSv1.2",
        },
        cipher: cipher.replacen("TLS13_", "TLS_", 1),
    }
}

/// Leaves the worker's books when the connection ends, however it ends.
pub(crate) struct Leave<'w> {
    worker: &'w Worker,
    place: usize,
}

impl<'w> Leave<'w> {
    /// Enters the running task into the books, so that a drain wakes it.
    pub(crate) async fn enlisted(worker: &'w Worker) -> Self {
        let place = poll_fn(|cx| Poll::Ready(worker.enlist(cx.waker().clone()))).await;
        Self { worker, place }
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.worker.discharge(self.place);
        self.worker.load().connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One exchange after the other, for as long as both sides want.
pub(crate) async fn exchanges(worker: &Rc<Worker>, mut client: Http1, connection: Rc<Connection>) {
    let mut served = 0;
    let mut idle_since = Instant::now();
    loop {
        if client.wire.inbox.is_empty() {
            let timeout = if served == 0 {
                worker.options.client_header_timeout
            } else {
                worker.options.keepalive_timeout
            };
            client.wire.release_buffers();
            client.deadline.set(idle_since, timeout);
            if !poll_fn(|cx| poll_idle(worker, &mut client, cx)).await {
                return;
            }
        }
        served += 1;
        connection.requests.set(served);
        match serve::next(worker, &mut client, &connection).await {
            Some(end) => idle_since = end,
            None => break,
        }
    }
    if !client.aborted {
        linger(&mut client).await;
    }
}

/// Waits without a buffer; false when the connection is to end instead.
fn poll_idle(worker: &Worker, client: &mut Http1, cx: &mut Context<'_>) -> Poll<bool> {
    match client.wire.io.poll_readable(cx) {
        // A request that is here already is served, even in a drain.
        Poll::Ready(ready) => Poll::Ready(ready.is_ok()),
        Poll::Pending if worker.draining.get() => Poll::Ready(false),
        Poll::Pending => client.deadline.poll(cx).map(|()| false),
    }
}

/// Closes so that the client can still read its last response: says that nothing more comes, then waits a little for
/// the client to close too (RFC 9112 9.6).
async fn linger(client: &mut Http1) {
    let end = Instant::now() + LINGER_TIME;
    client.deadline.set(Instant::now(), LINGER_PAUSE);
    // Over TLS even this is a write, which a client that reads nothing can hold up.
    let shut_down = poll_fn(|cx| match client.wire.io.poll_shutdown(cx) {
        Poll::Ready(result) => Poll::Ready(result.is_ok()),
        Poll::Pending => client.deadline.poll(cx).map(|()| false),
    });
    if !shut_down.await {
        return;
    }
    poll_fn(|cx| {
        loop {
            client.wire.inbox.consume(client.wire.inbox.len());
            match client.wire.poll_fill(cx) {
                Poll::Ready(Ok(1..)) if Instant::now() < end => {
                    client.deadline.set(Instant::now(), LINGER_PAUSE)
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return client.deadline.poll(cx),
            }
        }
    })
    .await;
}

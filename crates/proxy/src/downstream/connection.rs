//! A client's connection: PROXY header, TLS handshake, then its exchanges.

use crate::downstream::handshake::{self, Ends};
use crate::downstream::http1::{Http1, Preface};
use crate::downstream::http2;
use crate::downstream::proxy_protocol;
use crate::downstream::request_slot::serve_next;
use crate::exchange::{Connection, Tls};
use crate::limits::NodeLimit;
use crate::listen::Accepted;
use crate::worker::{Closing, ConnectionGuard, RealIp, Worker};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;
use weir_net::io::Io;
use weir_net::socket::Socket;
use weir_net::tls::{ClientCertificate, HTTP1, HTTP2, negotiated};
use weir_net::wire::Wire;

/// How long a client may go on sending after the last response, so that the response is not lost to a reset, and how long
/// it may pause; nginx's `lingering_time` and `lingering_timeout`.
const LINGER_TIME: Duration = Duration::from_secs(30);
const LINGER_PAUSE: Duration = Duration::from_secs(5);

/// The response to a request, whatever it is, that comes in clear where TLS is spoken.
const PLAIN_TO_TLS: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json; charset=utf-8\r\n\
     Content-Length: 59\r\nConnection: close\r\n\r\n{\"message\":\"The plain HTTP request was sent to HTTPS port\"}";

/// Serves a connection to its end.
pub(crate) async fn run(worker: Rc<Worker>, mut accepted: Accepted) {
    let _guard = ConnectionGuard::register(&worker).await;
    let _permit = accepted.permit.take();
    let number = worker.count_connection();
    let (peer, local, listener) = (accepted.peer, accepted.local, accepted.listener);
    let trusted = worker.options.trusts(&accepted);
    let Ok((socket, client)) = proxy_protocol::open(&worker, accepted).await else { return };
    let (io, tls, http2) = if listener.tls {
        let named = client.filter(|_| worker.options.real_ip == RealIp::ProxyProtocol);
        let ends = Ends { peer, client: named.unwrap_or(peer), local };
        match Box::pin(secured(&worker, socket, listener.http2, ends)).await {
            Some((io, tls, http2)) => (io, Some(tls), http2),
            None => return,
        }
    } else {
        (Io::Plain(socket), None, false)
    };
    let local = worker.options.port_maps.public_address(local);
    let mut connection = Connection::new(peer, local, number, tls, trusted);
    if listener.proxy_protocol {
        let client = client.filter(|_| worker.options.real_ip == RealIp::ProxyProtocol);
        connection = connection.on_behalf_of(client);
    }
    let connection = Rc::new(connection);
    if http2 {
        return Box::pin(http2::serve(&worker, io.into(), connection)).await;
    }
    let mut client = Box::new(Http1::new(Wire::new(io)));
    if listener.http2 && !listener.tls {
        client.preface = Preface::Allowed;
    }
    exchanges(&worker, client, connection).await;
}

/// The first byte of a handshake; no HTTP request begins with it.
const HANDSHAKE: u8 = 22;

/// Ends the client's TLS: the session, what was agreed on, and whether that is HTTP/2. None where there is nothing to
/// serve.
async fn secured(worker: &Worker, socket: Socket, http2: bool, ends: Ends) -> Option<(Io, Tls, bool)> {
    let peer = ends.peer;
    let timeout = worker.options.client_header_timeout;
    match tokio::time::timeout(timeout, accept(worker, socket, http2, ends)).await {
        Ok(Ok(Spoken::Tls(mut stream, asked))) => {
            if !is_http(stream.get_ref().1.alpn_protocol()) {
                let _ = tokio::time::timeout(timeout, stream.shutdown()).await;
                return None;
            }
            let session = stream.get_ref().1;
            let (tls, http2) = (agreed(session, asked), session.alpn_protocol() == Some(HTTP2));
            Some((Io::TlsServer(stream), tls, http2))
        }
        Ok(Ok(Spoken::Plain(socket))) => {
            refuse(socket, timeout).await;
            None
        }
        Ok(Err(error)) => {
            tracing::debug!(%peer, "the TLS handshake failed: {error}");
            None
        }
        Err(_) => {
            worker.limit_acted(NodeLimit::HandshakeTime);
            tracing::debug!(%peer, "the TLS handshake took too long");
            None
        }
    }
}

/// What a client speaks where TLS is spoken.
enum Spoken {
    /// TLS, and whether it was asked for a certificate.
    Tls(Box<TlsStream<Socket>>, bool),
    Plain(Socket),
}

/// Whether requests follow the handshake, rather than nothing: plugins may agree on a protocol that is one of handshakes.
fn is_http(protocol: Option<&[u8]>) -> bool {
    matches!(protocol, None | Some(HTTP1 | HTTP2))
}

async fn accept(worker: &Worker, socket: Socket, http2: bool, ends: Ends) -> io::Result<Spoken> {
    let mut first = [HANDSHAKE];
    socket.peek_beyond(0, &mut first).await?;
    if first[0] != HANDSHAKE {
        return Ok(Spoken::Plain(socket));
    }
    let (stream, asked) = handshake::accept(worker, socket, http2, ends).await?;
    Ok(Spoken::Tls(Box::new(stream), asked))
}

/// Rejects a plaintext request on a TLS listener.
async fn refuse(mut socket: Socket, timeout: Duration) {
    if let Ok(Ok(())) = tokio::time::timeout(timeout, socket.write_all(PLAIN_TO_TLS.as_bytes())).await {
        linger(&mut Http1::new(Wire::new(Io::Plain(socket)))).await;
    }
}

fn agreed(session: &rustls::ServerConnection, asked: bool) -> Tls {
    let (version, cipher) = negotiated(session);
    Tls {
        sni: session.server_name().map(|name| name.to_ascii_lowercase().into()),
        version,
        cipher,
        asked,
        client: session.peer_certificates().and_then(ClientCertificate::read).map(Rc::new),
    }
}

/// One exchange after the other, for as long as both sides want.
pub(crate) async fn exchanges(worker: &Rc<Worker>, mut client: Box<Http1>, connection: Rc<Connection>) {
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
        let end;
        (client, end) = serve_next(worker, client, &connection).await;
        match end {
            Some(end) => idle_since = end,
            None => break,
        }
        // A client that pipelines lets the worker's other connections have their turn.
        tokio::task::consume_budget().await;
    }
    if client.preface == Preface::Found {
        connection.requests.set(0);
        return Box::pin(http2::serve(worker, client.wire.into(), connection)).await;
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
        Poll::Pending if worker.closing.get() >= Closing::Idle => Poll::Ready(false),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, B, F: Future>(_: impl Fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_holds_nothing_of_a_request() {
        assert!(size(run) <= 1024, "{} bytes", size(run));
    }
}

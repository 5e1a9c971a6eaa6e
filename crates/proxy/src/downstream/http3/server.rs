//! A client's HTTP/3 connection: accepts requests, and decides when the connection ends.

use super::code::{Code, close};
use super::endpoint::Arriving;
use super::quic::{Accepted, Http3Connection};
use super::receiving::Receiving;
use super::request::{read, resolve};
use super::sending::SendStream;
use super::stream::Http3;
use crate::downstream::handshake::{self, Ends};
use crate::downstream::multiplex::{InFlightGuard, Standing, StreamStats, is_misdirected};
use crate::error::RequestError;
use crate::exchange::{Connection, Tls};
use crate::limits::NodeLimit;
use crate::pipeline::serve;
use crate::worker::{Closing, ConnectionGuard, Worker};
use quinn::ConnectionError;
use quinn::crypto::rustls::HandshakeData;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::spawn_local;
use tokio::time::Instant;
use weir_net::buffer;
use weir_net::deadline::Deadline;
use weir_plugin::Admission;

/// How long a client without requests has to take note that its connection ends: three round trips, within these.
const NOTICE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Why a connection is closed whose client gave up too many requests.
const GIVEN_UP: &[u8] = b"too many requests were given up";

/// Serves a connection to its end.
pub(super) async fn serve(worker: Rc<Worker>, mut arriving: Arriving) {
    let _guard = ConnectionGuard::register(&worker).await;
    let _permit = arriving.take_permit();
    let number = worker.count_connection();
    let (peer, local) = (arriving.peer(), arriving.local());
    let shaking = tokio::time::timeout(worker.options.client_header_timeout, arriving.handshake());
    let mut shaking = pin!(shaking);
    let shaken = poll_fn(|cx| match shaking.as_mut().poll(cx) {
        Poll::Ready(Ok(shaken)) => Poll::Ready(Some(shaken)),
        Poll::Ready(Err(_)) => Poll::Ready(Some(Err(ConnectionError::TimedOut))),
        Poll::Pending if worker.closing.get() >= Closing::Idle => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    });
    let quic = match shaken.await {
        Some(Ok(quic)) => quic,
        Some(Err(error)) => {
            if error == ConnectionError::TimedOut {
                worker.limit_acted(NodeLimit::HandshakeTime);
            }
            return tracing::debug!(client = %peer, "no connection over QUIC: {error}");
        }
        None => return,
    };
    let trusted = worker.options.trusts_address(peer.ip());
    let (tls, ends) = (agreed(&quic), Ends { peer, client: peer, local });
    let admitted = handshake::admit(&worker, tls.sni.as_deref(), ends);
    let admitted = tokio::time::timeout(worker.options.client_header_timeout, admitted).await;
    if admitted.is_err() {
        worker.limit_acted(NodeLimit::HandshakeTime);
    }
    if admitted != Ok(Admission::Admit) {
        return close(&quic, Code::H3_REQUEST_REJECTED, b"refused");
    }
    let local = worker.options.port_maps.public_address(local);
    let connection = Connection::new(peer, local, number, Some(tls), trusted);
    exchanges(&worker, quic, Rc::new(connection)).await;
}

/// The TLS parameters. The crates report no cipher suite; client certificates are not requested over QUIC.
fn agreed(quic: &quinn::Connection) -> Tls {
    let data = quic.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    let sni = data.and_then(|data| data.server_name);
    Tls {
        sni: sni.map(|name| name.to_ascii_lowercase().into()),
        version: "TLSv1.3",
        cipher: String::new(),
        asked: false,
        client: None,
    }
}

async fn exchanges(worker: &Rc<Worker>, quic: quinn::Connection, connection: Rc<Connection>) {
    let options = &worker.options.http3;
    let timeout = worker.options.client_header_timeout;
    let opening = Http3Connection::open(quic.clone(), options.max_header_list_size);
    let http3 = match tokio::time::timeout(timeout, opening).await {
        Ok(Ok(http3)) => http3,
        Ok(Err(_)) => return,
        Err(_) => return worker.limit_acted(NodeLimit::HandshakeTime),
    };
    let mut deadline = Deadline::default();
    deadline.set(Instant::now(), timeout);
    let stats = StreamStats::new(connection, options.max_resets);
    let worker = worker.clone();
    let mut served = Served { worker, quic, http3, stats, deadline, idle: true, stage: Stage::Open };
    poll_fn(|cx| served.poll(cx)).await;
    // One that has ended otherwise stays so.
    close(&served.quic, Code::H3_NO_ERROR, b"");
}

/// One connection.
struct Served {
    worker: Rc<Worker>,
    quic: quinn::Connection,
    http3: Http3Connection,
    stats: Rc<StreamStats>,
    /// The idle timeout of a client without requests in flight.
    deadline: Deadline,
    idle: bool,
    stage: Stage,
}

/// How far a connection has come to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    /// The client knows that it ends, and what it sent before is still served until then.
    Announced,
    /// No further request is taken.
    Closing,
}

impl Served {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.poll_requests(cx);
        if polled.is_ready() && self.stats.resets.standing() > Standing::Good {
            close(&self.quic, Code::H3_EXCESSIVE_LOAD, GIVEN_UP);
        }
        polled
    }

    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.worker.draining.get() {
            self.announce();
        }
        self.judge();
        loop {
            match self.http3.poll_accept(cx) {
                Poll::Ready(Ok(accepted)) => self.accept(accepted),
                Poll::Ready(Err(error)) => {
                    let client = self.stats.connection.peer;
                    tracing::debug!(%client, "a connection over HTTP/3 ended: {error}");
                    return Poll::Ready(());
                }
                Poll::Pending => {
                    if self.http3.client_leaves() {
                        self.close();
                    }
                    return self.watch(cx);
                }
            }
        }
    }

    /// Takes no further request of a client that gave up too many, and ends the connection of one that goes on.
    fn judge(&mut self) {
        let client = self.stats.connection.peer;
        match self.stats.resets.standing() {
            Standing::Good => {}
            Standing::Excessive if self.stage == Stage::Closing => {}
            Standing::Excessive => {
                tracing::debug!(%client, "a client gave up too many requests over HTTP/3: no more are taken");
                self.worker.limit_acted(NodeLimit::Resets);
                self.close();
            }
            Standing::Abusive => {
                if std::mem::replace(&mut self.stage, Stage::Closing) != Stage::Closing {
                    self.worker.limit_acted(NodeLimit::Resets);
                }
                tracing::debug!(%client, "a client gave up too many requests over HTTP/3: it is closed");
                close(&self.quic, Code::H3_EXCESSIVE_LOAD, GIVEN_UP);
            }
        }
    }

    fn accept(&mut self, (mut receiving, send_stream): Accepted) {
        if self.stage == Stage::Closing {
            if self.stats.resets.standing() > Standing::Good {
                self.stats.resets.broken(1);
            }
            // GOAWAY has announced that later requests are not processed, so the client may retry them elsewhere.
            receiving.stop(Code::H3_REQUEST_REJECTED);
            return send_stream.reset(Code::H3_REQUEST_REJECTED);
        }
        let (in_flight, requests) = self.stats.enter(0);
        let most = self.worker.options.keepalive_requests;
        spawn_local(Box::pin(exchange(self.worker.clone(), in_flight, receiving, send_stream)));
        if most != 0 && requests >= most {
            self.worker.limit_acted(NodeLimit::RequestsPerConnection);
            self.close();
        }
    }

    /// Sends a GOAWAY that takes no request back, and the final one once what the client sent before has arrived.
    fn announce(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Announced;
            self.http3.announce_goaway();
            self.deadline.set(Instant::now(), self.notice());
        }
    }

    /// How long what client and server say to each other takes.
    fn notice(&self) -> Duration {
        (3 * self.quic.rtt()).clamp(NOTICE.0, NOTICE.1)
    }

    /// Sends GOAWAY, and lets the requests in flight end.
    fn close(&mut self) {
        if std::mem::replace(&mut self.stage, Stage::Closing) == Stage::Closing {
            return;
        }
        self.http3.say_goaway();
        self.idle = false;
    }

    /// Ready when the client was silent for too long, or has had its last response.
    fn watch(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Registers for the counters, because the crate does not report streams that never became a request.
        self.stats.wait(cx);
        self.stats.resets.watch(cx);
        if self.stage == Stage::Announced {
            if self.deadline.poll(cx).is_ready() {
                self.close();
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        let idle = self.stats.live() == 0;
        if idle && !self.idle {
            let is_closing = self.stage == Stage::Closing;
            let timeout = if is_closing { self.notice() } else { self.worker.options.keepalive_timeout };
            self.deadline.set(Instant::now(), timeout);
        }
        self.idle = idle;
        if idle && self.deadline.poll(cx).is_ready() {
            if self.stage == Stage::Closing {
                return Poll::Ready(());
            }
            self.close();
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// Serves one request.
async fn exchange(
    worker: Rc<Worker>,
    mut in_flight: InFlightGuard,
    mut receiving: Receiving,
    send_stream: Rc<SendStream>,
) {
    let resolved = resolve(&worker, &mut in_flight, &mut receiving, &send_stream).await;
    let Some((request, has_fragment)) = resolved else { return };
    let options = &worker.options;
    let (parts, ()) = request.into_parts();
    let (mut head, response) = worker.heads();
    let held = (options.http3.body_preread_size as usize).min(buffer::SIZE);
    let mut client = Http3::new(receiving, send_stream, held, options.client_header_timeout);
    let read = read(&mut head, (&parts, has_fragment), &mut client, &options.request_limits).await;
    let bytes: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let bytes = bytes + head.method_str().len() + head.target().len();
    drop(parts);
    let mut exchange = serve::begin(&worker, &in_flight.stats.connection, (head, response));
    let read = read.and_then(|()| {
        let snapshot = exchange.snapshot.clone();
        if is_misdirected(&mut exchange, &snapshot) { Err(RequestError::Misdirected) } else { Ok(bytes) }
    });
    serve::one(&worker, &mut client, &mut exchange, read).await;
    let start = exchange.timing.start;
    worker.keep_heads((exchange.public.request, exchange.public.response));
    in_flight.leave_head();
    if client.cancelled {
        in_flight.stats.resets.given_up(start.elapsed());
    }
    client.linger(options.send_timeout).await;
}

//! A client's HTTP/2 connection: accepts streams, and decides when the connection ends.

use super::fields::read_request;
use super::stream::Http2;
use crate::client::Client;
use crate::downstream::multiplex::{InFlightGuard, LINGER, Standing, StreamStats, is_misdirected};
use crate::error::RequestError;
use crate::exchange::Connection;
use crate::limits::NodeLimit;
use crate::pipeline::serve;
use crate::worker::{Http2Options, Worker};
use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use std::error::Error;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::task::spawn_local;
use tokio::time::Instant;
use weir_http1::ParseError;
use weir_net::buffer;
use weir_net::deadline::Deadline;
use weir_net::http2::{Failure, KeepAlivePing, Sender, Transport};
use weir_net::multiplex::size;

/// What is queued of one response that its client does not take.
const SEND_BUFFER: usize = 64 * 1024;

/// What pieces of requests, each of which weighs more than its bytes, may weigh until they are used: as much as messages
/// of 50 bytes that fill a connection's window.
const PIECES: usize = 4 * 1024 * 1024;

/// Serves a connection to its end.
pub(crate) async fn serve(worker: &Rc<Worker>, transport: Transport, connection: Rc<Connection>) {
    let options = &worker.options.http2;
    let transport = transport.guarded(options.max_concurrent_streams, options.max_header_list_size);
    let sender = transport.sender();
    let handshake = sender.with(builder(options).handshake(transport));
    let timeout = worker.options.client_header_timeout;
    let mut http2 = match tokio::time::timeout(timeout, handshake).await {
        Ok(Ok(Ok(http2))) => http2,
        Ok(_) => return,
        Err(_) => return worker.limit_acted(NodeLimit::HandshakeTime),
    };
    let Some(pings) = http2.ping_pong() else { return };
    let mut deadline = Deadline::default();
    deadline.set(Instant::now(), timeout);
    let worker = worker.clone();
    let keep_alive = KeepAlivePing::new(pings, worker.options.http2.ping_interval);
    let stats = StreamStats::new(connection, worker.options.http2.max_resets);
    let (driver, stage) = (sender.clone(), Stage::Open);
    let head_deadline = Deadline::default();
    let mut served =
        Served { worker, http2, sender, keep_alive, stats, deadline, head_deadline, idle: true, stage };
    if let Err(error) = driver.with(poll_fn(|cx| served.poll(cx))).await {
        served.ended(&error);
    }
}

/// What a client has met whose bytes are not read further.
fn limit_of(failure: Failure) -> NodeLimit {
    match failure {
        Failure::EndlessHead => NodeLimit::HeadSize,
        Failure::LateHead => NodeLimit::HeadTime,
        Failure::Broken(_) => NodeLimit::ProtocolErrors,
    }
}

fn builder(options: &Http2Options) -> server::Builder {
    let mut builder = server::Builder::new();
    let streams = options.max_concurrent_streams as usize;
    builder
        // How many requests a client gives up is bounded in `multiplex`, by their rate. What the crate counts over the
        // life of a connection ends those of honest clients.
        .max_local_error_reset_streams(None)
        .max_concurrent_reset_streams(streams)
        .max_pending_accept_reset_streams(streams.saturating_add(1))
        .max_concurrent_streams(options.max_concurrent_streams)
        .max_header_list_size(options.max_header_list_size)
        .initial_window_size(options.body_preread_size)
        .initial_connection_window_size(options.connection_window_size)
        .max_send_buffer_size(SEND_BUFFER)
        .data_frame_budget(PIECES)
        .enable_connect_protocol();
    builder
}

/// How far a connection has come to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    /// No further request is taken.
    Closing,
    /// The same, because the client gave up too many requests.
    Calming,
    /// It ends at once.
    Ending,
}

/// One connection.
struct Served {
    worker: Rc<Worker>,
    http2: server::Connection<Transport, Bytes>,
    sender: Sender,
    keep_alive: KeepAlivePing,
    stats: Rc<StreamStats>,
    /// The idle timeout of a client without requests in flight.
    deadline: Deadline,
    /// By when a head that has begun has to be there.
    head_deadline: Deadline,
    idle: bool,
    stage: Stage,
}

impl Served {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.worker.draining.get() {
            self.close();
        }
        loop {
            match self.http2.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => self.accept(request, respond),
                Poll::Ready(Some(Err(error))) => {
                    if error.is_go_away() && error.is_library() {
                        self.worker.limit_acted(NodeLimit::ProtocolErrors);
                    }
                    self.ended(&error);
                    return Poll::Ready(());
                }
                Poll::Ready(None) => {
                    self.count_refused();
                    return Poll::Ready(());
                }
                Poll::Pending if self.judge() || self.gives_up_head(cx) => {}
                Poll::Pending => break,
            }
        }
        self.watch(cx)
    }

    /// Ends the connection if the client broke the rules of it, or gives up too many requests. Whether it has said so
    /// just now.
    fn judge(&mut self) -> bool {
        self.stats.resets.broken(self.sender.faults());
        self.count_refused();
        let reason = match (self.sender.failure(), self.stats.resets.standing()) {
            (Some(failure), _) => {
                if self.stage < Stage::Ending {
                    self.worker.limit_acted(limit_of(failure));
                }
                failure.reason()
            }
            (None, Standing::Abusive) => {
                // What is counted when it takes no more requests is not counted again.
                if self.stage < Stage::Calming {
                    self.worker.limit_acted(NodeLimit::Resets);
                }
                Reason::ENHANCE_YOUR_CALM
            }
            (None, Standing::Excessive) => return self.calm(),
            (None, Standing::Good) => return false,
        };
        if std::mem::replace(&mut self.stage, Stage::Ending) == Stage::Ending {
            return false;
        }
        let client = self.stats.connection.peer;
        tracing::debug!(%client, "a connection over HTTP/2 is closed: {reason}");
        self.http2.abrupt_shutdown(reason);
        true
    }

    /// Refuses further requests of a client that cancelled too many. Those in flight get their responses.
    fn calm(&mut self) -> bool {
        if self.stage >= Stage::Calming {
            return false;
        }
        let client = self.stats.connection.peer;
        tracing::debug!(%client, "a client gave up too many requests over HTTP/2: no more are taken");
        self.worker.limit_acted(NodeLimit::Resets);
        self.sender.say_calm();
        self.close();
        (self.stage, self.idle) = (Stage::Calming, false);
        true
    }

    /// The crate answers requests whose heads are too large, refuses those that are too many, and reports neither.
    fn count_refused(&self) {
        (0..self.sender.large_heads()).for_each(|_| self.worker.limit_acted(NodeLimit::HeadSize));
        (0..self.sender.refused()).for_each(|_| self.worker.limit_acted(NodeLimit::Streams));
    }

    /// Whether a head just now turned out to be late: nothing can follow on the connection before its end.
    fn gives_up_head(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(begun) = self.sender.head_begun() else { return false };
        self.head_deadline.set(begun, self.worker.options.client_header_timeout);
        let is_late = self.head_deadline.poll(cx).is_ready();
        if is_late {
            self.sender.give_up_head();
        }
        is_late
    }

    fn ended(&self, error: &dyn Error) {
        self.count_refused();
        let client = self.stats.connection.peer;
        tracing::debug!(%client, "a connection over HTTP/2 ended: {error}");
    }

    fn accept(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let options = &self.worker.options;
        let head = size(&request);
        let has_fragment = self.sender.has_fragment(|| respond.stream_id().into());
        // A stream that the client reset no longer counts as open, while its exchange may still be ending.
        // A client that cancels requests and sends others at once breaks no rule; what it cancels is counted already.
        let is_refused = self.stage >= Stage::Calming;
        let is_beyond = self.stats.live() >= options.http2.max_concurrent_streams;
        self.stats.resets.broken(is_refused.into());
        let is_too_much = self.stats.is_too_much(head, options.http2.connection_header_list_size);
        if is_refused || is_beyond || is_too_much {
            // What is refused because there are too many is counted when it leaves, like what the crate refuses.
            if is_refused || !is_beyond {
                self.sender.refuses_otherwise(respond.stream_id().into());
            }
            // A client that gave up too many is counted already.
            if !is_refused && !is_beyond {
                self.worker.limit_acted(NodeLimit::HeadsSize);
            }
            return respond.send_reset(Reason::REFUSED_STREAM);
        }
        let (in_flight, requests) = self.stats.enter(head);
        let most = options.keepalive_requests;
        // Boxed, as a task moves what it runs about.
        spawn_local(Box::pin(exchange(self.worker.clone(), in_flight, (request, has_fragment), respond)));
        if most != 0 && requests >= most {
            self.worker.limit_acted(NodeLimit::RequestsPerConnection);
            self.close();
        }
    }

    /// Sends GOAWAY, and lets the requests in flight end.
    fn close(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Closing;
            self.http2.graceful_shutdown();
        }
    }

    /// Ready when the client was silent for too long.
    fn watch(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stats.resets.watch(cx);
        let idle = self.stats.live() == 0;
        if idle && !self.idle {
            let timeout = match self.stage {
                Stage::Open | Stage::Closing => self.worker.options.keepalive_timeout,
                Stage::Calming | Stage::Ending => LINGER,
            };
            self.deadline.set(Instant::now(), timeout);
        }
        self.idle = idle;
        if self.keep_alive.poll(cx, !idle).is_ready() {
            return Poll::Ready(());
        }
        // A head that has begun has a deadline of its own.
        let waits = idle && self.sender.head_begun().is_none();
        while waits && self.deadline.poll(cx).is_ready() {
            if self.stage > Stage::Open {
                return Poll::Ready(());
            }
            self.close();
            self.deadline.set(Instant::now(), self.worker.options.send_timeout);
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// Serves one stream, whose path may have had a `#`.
async fn exchange(
    worker: Rc<Worker>,
    mut in_flight: InFlightGuard,
    (request, has_fragment): (Request<RecvStream>, bool),
    respond: SendResponse<Bytes>,
) {
    let (parts, body) = request.into_parts();
    let (mut head, response) = worker.heads();
    let read = read_request(&mut head, &parts, body.is_end_stream(), &worker.options.request_limits);
    let bytes: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let bytes = bytes + head.method_str().len() + head.target().len();
    drop(parts);
    let held = (worker.options.http2.body_preread_size as usize).min(buffer::SIZE);
    let mut client = Http2::new(&head, body, respond, held);
    let connection = &in_flight.stats.connection;
    let mut exchange = serve::begin(&worker, connection, (head, response));
    let read = match read {
        // Drops a request that was cancelled before it was read, so that it costs other requests nothing.
        _ if poll_fn(|cx| Poll::Ready(client.poll_gone(cx).is_ready())).await => {
            Err(RequestError::ClientGone)
        }
        Err(reject) => Err(RequestError::Rejected(reject)),
        Ok(()) if has_fragment => Err(RequestError::Rejected(ParseError::TargetFragment)),
        Ok(()) => {
            let snapshot = exchange.snapshot.clone();
            if is_misdirected(&mut exchange, &snapshot) { Err(RequestError::Misdirected) } else { Ok(bytes) }
        }
    };
    serve::one(&worker, &mut client, &mut exchange, read).await;
    let start = exchange.timing.start;
    worker.keep_heads((exchange.public.request, exchange.public.response));
    in_flight.leave_head();
    if client.cancelled {
        in_flight.stats.resets.given_up(start.elapsed());
    }
    client.linger().await;
}

//! Tunnels, after a protocol switch: relays bytes both ways with backpressure, until both sides have ended or an idle
//! timeout expires.

mod frames;

use crate::client::{Client, Timeouts};
use crate::exchange::{ConsumerIndex, Exchange, WorkerSnapshot};
use crate::worker::{Closing, WakerGuard, Worker};
use frames::FrameCursor;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;
use weir_http1::{Framing, Known, Method, RequestHead};
use weir_model::Uuid;
use weir_model::entity::Route;
use weir_net::wire::Ends;
use weir_upstream::pool::UpstreamConnection;

/// The protocol that a request asks to change to. A request with a body asks for none: whether its bytes are the body's
/// or the new protocol's, both sides would have to agree on.
pub(crate) fn asked(request: &RequestHead, framing: Framing) -> Option<Box<str>> {
    if !request.upgrade || !matches!(framing, Framing::None | Framing::Length(0)) {
        return None;
    }
    let mut values = request.headers.get_all_known(Known::Upgrade);
    let protocol = std::str::from_utf8(values.next()?).ok()?;
    let one = values.next().is_none() && protocol.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    (one && !is_http(protocol)).then(|| protocol.into())
}

/// Whether the route lets this protocol through: WebSocket always, as in Kong, and another one where the route asks for
/// it by its `headers`.
pub(crate) fn is_allowed(route: &Route, method: Method, protocol: &str) -> bool {
    if protocol.eq_ignore_ascii_case("websocket") {
        return method == Method::Get;
    }
    let names = |(name, values): (&String, &Vec<String>)| {
        name.eq_ignore_ascii_case("upgrade")
            && values.iter().any(|value| value.eq_ignore_ascii_case(protocol))
    };
    route.headers.iter().flatten().any(names)
}

/// How the end of what a protocol says is known: WebSocket says it by a frame.
pub(crate) fn ends(protocol: Option<&str>) -> Ends {
    if is_websocket(protocol) { Ends::Within } else { Ends::ByClose }
}

fn is_websocket(protocol: Option<&str>) -> bool {
    protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"))
}

/// HTTP itself, perhaps over TLS: requests in such a tunnel would pass no route and no plugin.
fn is_http(protocol: &str) -> bool {
    let protocol = protocol.to_ascii_lowercase();
    matches!(protocol.as_str(), "h2c" | "h2" | "h3")
        || protocol.starts_with("http/")
        || protocol.starts_with("tls/")
}

/// A connection to an upstream that has changed protocol.
pub(crate) struct Tunnel {
    upstream: Box<UpstreamConnection>,
    timeouts: Timeouts,
    is_websocket: bool,
}

impl Tunnel {
    /// A tunnel to this upstream, whose client has received the switch of protocols.
    pub(crate) fn new(
        mut upstream: Box<UpstreamConnection>,
        timeouts: Timeouts,
        protocol: Option<&str>,
    ) -> Self {
        upstream.wire.begin_tunnel(ends(protocol));
        Self { upstream, timeouts, is_websocket: is_websocket(protocol) }
    }

    /// Passes bytes on until the end. Holds no configuration meanwhile, so that tunnels that stay open for days do not
    /// keep old configurations in memory.
    pub(crate) async fn run<C: Client>(
        mut self,
        worker: &Worker,
        client: &mut C,
        exchange: &mut Exchange,
    ) -> Result<(), Broken> {
        let released = Released::new(worker, exchange);
        let _woken_by_drain = WakerGuard::register(worker).await;
        client.deadline().set(Instant::now(), self.timeouts.read);
        let frames = || self.is_websocket.then(FrameCursor::default);
        let mut pipe = Pipe {
            worker,
            frames: Frames { up: frames(), down: frames(), farewell: None },
            client,
            upstream: &mut self.upstream,
            exchange,
            timeouts: self.timeouts,
            up: Half::Open,
            down: Half::Open,
            waiting: Waiting::Bytes,
        };
        let ended = poll_fn(|cx| pipe.poll(cx)).await;
        if ended.is_err() {
            // What was cut off must not look complete to the upstream either.
            self.upstream.wire.abort();
        }
        released.restore(worker, exchange);
        ended
    }
}

/// What an exchange takes from the configuration, by the ids of the entities.
struct Released {
    route: Option<(u32, Uuid)>,
    consumers: Vec<(i32, Option<(u32, Uuid)>)>,
}

impl Released {
    fn new(worker: &Worker, exchange: &mut Exchange) -> Self {
        let route = exchange.engine.route.zip(exchange.route().map(|route| route.entity.id));
        let named = exchange.engine.take_consumers().into_iter();
        let id = |ConsumerIndex(index): ConsumerIndex| {
            (index, exchange.snapshot.consumers[index as usize].entity.id)
        };
        let with_id = |(priority, named): (i32, Option<ConsumerIndex>)| (priority, named.map(id));
        let consumers = named.map(with_id).collect();
        exchange.set_snapshot(worker.no_routes());
        exchange.engine.route = None;
        Self { route, consumers }
    }

    /// Restores the route from the active configuration, whose log hooks run if the route still exists.
    fn restore(self, worker: &Worker, exchange: &mut Exchange) {
        let snapshot: Rc<WorkerSnapshot> = worker.snapshot();
        exchange.engine.route =
            self.route.and_then(|(at, id)| find(&snapshot.routes, at, |route| route.entity.id == id));
        exchange.set_snapshot(snapshot.clone());
        for (priority, named) in self.consumers {
            exchange.engine.running = priority;
            let Some((at, id)) = named else {
                exchange.engine.forget_consumer();
                continue;
            };
            if let Some(index) = find(&snapshot.consumers, at, |consumer| consumer.entity.id == id) {
                exchange.engine.identify(ConsumerIndex(index));
            }
        }
    }
}

/// Where an item is that was at a place before: most often there, otherwise near.
fn find<T>(items: &[T], at: u32, is_it: impl Fn(&T) -> bool) -> Option<u32> {
    let farthest = at.max(items.len() as u32);
    let mut places = (0..=farthest).flat_map(|far| [at.checked_sub(far), at.checked_add(far)]).flatten();
    places.find(|&place| items.get(place as usize).is_some_and(&is_it))
}

/// Why a tunnel ended otherwise than by both sides' ends.
#[derive(Debug)]
pub(crate) enum Broken {
    Client,
    Upstream(io::Error),
    Idle,
}

/// Whether a frame of the gateway's own can be sent next.
fn is_between(frames: &Option<FrameCursor>) -> bool {
    frames.as_ref().is_some_and(FrameCursor::is_between_frames)
}

/// Where one direction stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Open,
    /// Its sender has ended; the end or some bytes were not yet passed to the receiver.
    Ending,
    Ended,
}

/// What a tunnel waits for, which decides how long.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// Either side, to send something.
    Bytes,
    /// The upstream, to take something.
    Upstream,
    /// The client, to take something.
    Client,
}

/// The frames of a WebSocket; none of another protocol.
struct Frames {
    up: Option<FrameCursor>,
    down: Option<FrameCursor>,
    /// What is left to send of the last frames, once the tunnel is to end.
    farewell: Option<Farewell>,
}

/// Close frames, to the upstream and to the client.
struct Farewell {
    up: Vec<u8>,
    down: Vec<u8>,
}

impl Frames {
    /// Both sides get a close frame, except for one that has got one already.
    fn say_farewell(&mut self, key: [u8; 4]) {
        if let (Some(up), Some(down), None) = (&self.up, &self.down, &self.farewell) {
            let unless_closed = |frames: &FrameCursor, bytes: &[u8]| match frames.closed {
                true => Vec::new(),
                false => bytes.to_vec(),
            };
            self.farewell = Some(Farewell {
                up: unless_closed(up, &frames::to_upstream(key)),
                down: unless_closed(down, &frames::TO_CLIENT),
            });
        }
    }
}

/// Both directions.
struct Pipe<'a, C> {
    worker: &'a Worker,
    frames: Frames,
    client: &'a mut C,
    upstream: &'a mut UpstreamConnection,
    exchange: &'a mut Exchange,
    timeouts: Timeouts,
    up: Half,
    down: Half,
    waiting: Waiting,
}

impl<C: Client> Pipe<'_, C> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let before = (self.exchange.bytes_in, self.exchange.bytes_out, self.up, self.down);
        if self.worker.closing.get() >= Closing::Tunnels && self.frames.farewell.is_none() {
            self.frames.say_farewell((self.worker.random() as u32).to_be_bytes());
        }
        let up = self.poll_up(cx)?;
        let down = self.poll_down(cx)?;
        if self.up == Half::Ended && self.down == Half::Ended {
            return Poll::Ready(Ok(()));
        }
        let waiting = if up == Waiting::Bytes { down } else { up };
        let now = (self.exchange.bytes_in, self.exchange.bytes_out, self.up, self.down);
        if now != before || waiting != self.waiting {
            self.waiting = waiting;
            let timeout = self.timeout();
            self.client.deadline().set(Instant::now(), timeout);
        }
        ready!(self.client.deadline().poll(cx));
        Poll::Ready(Err(Broken::Idle))
    }

    fn timeout(&self) -> Duration {
        match self.waiting {
            Waiting::Bytes => self.timeouts.read,
            Waiting::Upstream => self.timeouts.write,
            Waiting::Client => self.timeouts.client_send,
        }
    }

    /// Passes on what the client sends, as far as both sides allow.
    fn poll_up(&mut self, cx: &mut Context<'_>) -> Result<Waiting, Broken> {
        while self.up == Half::Open {
            let wire = &mut self.upstream.wire;
            let Frames { up: frames, farewell, .. } = &mut self.frames;
            let farewell = farewell.as_mut().map(|farewell| &mut farewell.up);
            if let Some(farewell) = farewell.filter(|_| is_between(frames)) {
                if farewell.is_empty() {
                    self.up = Half::Ending;
                    break;
                }
                let Poll::Ready(sent) = wire.poll_send(cx, farewell).map_err(Broken::Upstream)? else {
                    return Ok(Waiting::Upstream);
                };
                farewell.drain(..sent);
                continue;
            }
            let mut data = self.client.body().map_err(|_| Broken::Client)?;
            if let (Some(_), Some(frames)) = (&self.frames.farewell, &self.frames.up) {
                data = &data[..frames.rest_of_frame(data)];
            }
            if !data.is_empty() {
                let Poll::Ready(sent) = wire.poll_send(cx, data).map_err(Broken::Upstream)? else {
                    return Ok(Waiting::Upstream);
                };
                if let Some(frames) = &mut self.frames.up {
                    frames.advance(&data[..sent]);
                }
                self.client.consume(sent);
                self.exchange.bytes_in += sent as u64;
            } else if self.client.body_is_done() {
                self.up = Half::Ending;
            } else if let Poll::Ready(more) = self.client.poll_more(cx) {
                more.map_err(|_| Broken::Client)?;
            } else {
                let flushed = wire.poll_flush(cx).map_err(Broken::Upstream)?;
                return Ok(if flushed.is_pending() { Waiting::Upstream } else { Waiting::Bytes });
            }
        }
        if self.up == Half::Ending {
            if self.upstream.wire.poll_finish(cx).map_err(Broken::Upstream)?.is_pending() {
                return Ok(Waiting::Upstream);
            }
            self.up = Half::Ended;
        }
        Ok(Waiting::Bytes)
    }

    /// Passes on what the upstream sends, as far as both sides allow.
    fn poll_down(&mut self, cx: &mut Context<'_>) -> Result<Waiting, Broken> {
        while self.down == Half::Open {
            let wire = &mut self.upstream.wire;
            let Frames { down: frames, farewell, .. } = &mut self.frames;
            let farewell = farewell.as_mut().map(|farewell| &mut farewell.down);
            if let Some(farewell) = farewell.filter(|_| is_between(frames)) {
                if farewell.is_empty() {
                    self.down = Half::Ending;
                    break;
                }
                let sent = self.client.poll_send(cx, farewell).map_err(|_| Broken::Client)?;
                let Poll::Ready(sent) = sent else { return Ok(Waiting::Client) };
                farewell.drain(..sent);
                continue;
            }
            let mut data = wire.inbox.bytes();
            if let (Some(_), Some(frames)) = (&self.frames.farewell, &self.frames.down) {
                data = &data[..frames.rest_of_frame(data)];
            }
            if !data.is_empty() {
                let Poll::Ready(sent) = self.client.poll_send(cx, data).map_err(|_| Broken::Client)? else {
                    return Ok(Waiting::Client);
                };
                if let Some(frames) = &mut self.frames.down {
                    frames.advance(&data[..sent]);
                }
                wire.inbox.consume(sent);
                self.exchange.bytes_out += sent as u64;
            } else if let Poll::Ready(read) = wire.poll_fill(cx).map_err(Broken::Upstream)? {
                if read == 0 {
                    self.down = Half::Ending;
                }
            } else {
                let flushed = self.client.poll_flush(cx).map_err(|_| Broken::Client)?;
                return Ok(if flushed.is_pending() { Waiting::Client } else { Waiting::Bytes });
            }
        }
        if self.down == Half::Ending {
            if self.client.poll_finish(cx).map_err(|_| Broken::Client)?.is_pending() {
                return Ok(Waiting::Client);
            }
            self.down = Half::Ended;
        }
        Ok(Waiting::Bytes)
    }
}

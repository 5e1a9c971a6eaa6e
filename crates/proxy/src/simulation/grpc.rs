//! Calls of gRPC with deadlines, over HTTP/2 on both sides: the client, and the servers.

use super::body::body_of;
use super::history::{Attempt, History};
use super::plan::{Mode, Service};
use super::server::Server;
use super::stream::Stream;
use super::world::World;
use bytes::Bytes;
use fastrand::Rng;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{sleep, timeout};

/// What a server does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Answer,
    /// It says that it did not process the call.
    Refuse,
    Reset,
    /// The connection ends, with everything on it.
    Close,
    /// No further calls on this connection.
    GoAway,
    HalfBody,
    Silence,
}

const MISTAKES: [Action; 6] =
    [Action::Refuse, Action::Reset, Action::Close, Action::GoAway, Action::HalfBody, Action::Silence];

/// The message of a call, in its frame.
fn message(call: usize, length: usize) -> Bytes {
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
    frame.extend(body_of(call, length));
    frame.into()
}

/// The statuses that something here leads to: a server has answered, cancelled the call, was too slow, broke off, or could not be asked.
const STATUSES: [&str; 5] = ["0", "1", DEADLINE_EXCEEDED, "13", "14"];

/// The status of a call whose time is over.
const DEADLINE_EXCEEDED: &str = "4";

/// The longest that a server that answers takes before it reads a call, in milliseconds.
pub(super) const MAX_PAUSE: u64 = 200;

/// A shorter message is sent whole, without asking for room.
pub(super) const SENT_AHEAD: usize = 16 * 1024;

/// How much earlier than the gateway's a server's clock may be.
const CLOCKS_DIFFER: u64 = 10;

/// Serves a connection to its end.
pub(super) async fn serve(server: Rc<Server>, target: usize, stream: Stream, mut random: Rng) {
    let mut builder = h2::server::Builder::new();
    if let Some(most) = server.history.plan.streams {
        builder.max_concurrent_streams(most);
    }
    let Ok(mut http2) = builder.handshake(stream).await else { return };
    let served = Rc::new(Cell::new(0));
    // Not before its first call: until then it may be a probe's.
    let mut open = None;
    while let Some(Ok((request, respond))) = http2.accept().await {
        open.get_or_insert_with(|| Open::new(&server.history.http2_connections));
        let action = choose(server.mode.get(), &mut random);
        let call = Call::begin(&server.history, target, &request, &served);
        server.history.note(format_args!("call {} was read by target {target}: {action:?}", call.request));
        match action {
            Action::Close => return,
            Action::GoAway => http2.graceful_shutdown(),
            _ => {}
        }
        spawn_local(handle(call, action, request.into_body(), respond, random.fork()));
    }
}

fn choose(mode: Mode, random: &mut Rng) -> Action {
    match mode {
        Mode::Healthy => Action::Answer,
        Mode::Flaky if random.u8(..3) > 0 => Action::Answer,
        Mode::Silent => Action::Silence,
        _ => random.choice(MISTAKES).unwrap(),
    }
}

/// Counts a connection while it is open.
struct Open<'c>(&'c Cell<usize>);

impl<'c> Open<'c> {
    fn new(count: &'c Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A call at a server, until it ends there.
struct Call {
    history: Rc<History>,
    request: usize,
    attempt: usize,
}

impl Call {
    fn begin(
        history: &Rc<History>,
        target: usize,
        request: &Request<RecvStream>,
        served: &Cell<usize>,
    ) -> Call {
        let number = |name| request.headers().get(name)?.to_str().ok()?.parse().ok();
        let (request, version) = (number("x-id").unwrap(), number("x-version").unwrap());
        let is_reused = served.replace(served.get() + 1) > 0;
        Call {
            history: history.clone(),
            request,
            attempt: history.attempt(request, target, version, is_reused),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Attempt)) {
        change(&mut self.history.attempts.borrow_mut()[self.attempt]);
    }

    fn message(&self) -> Bytes {
        message(self.request, self.history.plan.message)
    }

    /// What the gateway sends as a whole call is the client's.
    fn check_body(&self, read: &[u8]) {
        let message = self.message();
        if read != message {
            self.history.breaks(
                "an upstream gets the whole body of its request",
                format_args!("call {}: {} bytes of {}", self.request, read.len(), message.len()),
            );
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let now = self.history.now();
        self.change(|attempt| attempt.ended = Some(now));
    }
}

async fn handle(
    call: Call,
    action: Action,
    body: RecvStream,
    mut respond: SendResponse<Bytes>,
    mut random: Rng,
) -> Option<()> {
    sleep(Duration::from_millis(random.u64(..MAX_PAUSE))).await;
    match action {
        Action::Refuse => {
            call.change(|attempt| attempt.is_refused = true);
            respond.send_reset(Reason::REFUSED_STREAM);
            return None;
        }
        Action::Reset => {
            respond.send_reset(random.choice([Reason::INTERNAL_ERROR, Reason::CANCEL]).unwrap());
            return None;
        }
        Action::Silence => {
            // Until the gateway gives up.
            std::future::poll_fn(|cx| respond.poll_reset(cx)).await.ok()?;
            return None;
        }
        _ => {}
    }
    answer(call, action, body, respond, random).await
}

/// Answers a call once it is here, as far as the action goes.
async fn answer(
    call: Call,
    action: Action,
    mut body: RecvStream,
    mut respond: SendResponse<Bytes>,
    mut random: Rng,
) -> Option<()> {
    let mut read = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.ok()?;
        body.flow_control().release_capacity(data.len()).ok()?;
        call.change(|attempt| attempt.read += data.len() as u64);
        read.extend_from_slice(&data);
    }
    call.check_body(&read);
    let (id, messages) = (call.request.to_string(), random.usize(..4));
    let response = Response::builder().header("content-type", "application/grpc").header("x-id", &id);
    let response = response.header("x-messages", messages.to_string());
    let mut sending = respond.send_response(response.body(()).ok()?, false).ok()?;
    call.change(|attempt| attempt.has_head = true);
    for _ in 0..messages {
        sending.send_data(call.message(), false).ok()?;
        sleep(Duration::from_millis(random.u64(..400))).await;
    }
    if action == Action::HalfBody {
        sending.send_reset(Reason::INTERNAL_ERROR);
        return None;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().ok()?);
    sending.send_trailers(trailers).ok()
}

/// Makes a call, on a connection of its own.
pub(super) async fn call(world: &World, (is_calm, random): (bool, &mut Rng)) {
    let history = &world.history;
    let deadline = random.u64(1..4_000);
    let patience = Duration::from_millis(if is_calm { 3_600_000 } else { deadline });
    let id = history.request(false, false);
    history.note(format_args!("client makes call {id}, which has {patience:?}"));
    let stream = world.connect_client(random);
    let leaves_after = if !is_calm && random.u8(..10) == 0 { random.u64(..2_000) } else { u64::MAX / 2 };
    // The way to the gateway and back, and what timers round.
    let most = patience.as_millis() as u64 + 2 + 2 * super::invariants::ROUNDING;
    let called = exchange(history, stream, (id, patience, is_calm), random);
    let called = timeout(Duration::from_millis(most.min(leaves_after)), called).await;
    history.note(format_args!("call {id} has ended: {called:?}"));
    history.requests.borrow_mut()[id].ended = Some(history.now());
    match called {
        Ok(status) => check(history, (id, patience), status.as_deref()),
        Err(_) if leaves_after > most => {
            history.breaks("a deadline ends every call", format_args!("call {id} after {most} ms"));
        }
        Err(_) => {}
    }
}

/// Whether a call has the status that is due to it.
fn check(history: &History, (id, patience): (usize, Duration), status: Option<&str>) {
    let mut requests = history.requests.borrow_mut();
    requests[id].status = (status == Some("0")).then_some(200);
    let took = history.now() - requests[id].sent;
    drop(requests);
    match status {
        None => history.breaks("every call gets a status", format_args!("call {id} has none")),
        Some(status) if !STATUSES.contains(&status) => {
            history.breaks("a call has a status that something led to", format_args!("call {id}: {status}"));
        }
        Some(_) => {}
    }
    let is_early = took + CLOCKS_DIFFER < patience.as_millis() as u64;
    // A timeout of the service has the same status.
    let Service { connect_timeout, read_timeout, write_timeout, .. } = history.plan.service;
    // What is sent without asking for room never waits for it.
    let for_room = if history.plan.message > SENT_AHEAD { write_timeout } else { u64::MAX };
    let has_timed_out = took >= connect_timeout.min(read_timeout).min(for_room);
    if status == Some(DEADLINE_EXCEEDED) && is_early && !has_timed_out {
        history.breaks("no call ends before its time", format_args!("call {id} after {took} ms"));
    }
}

/// The status of a call, from its headers or its trailers; none if it broke off.
async fn exchange(
    history: &History,
    stream: Stream,
    (id, patience, is_calm): (usize, Duration, bool),
    random: &mut Rng,
) -> Option<String> {
    let (sender, connection) = h2::client::handshake(stream).await.ok()?;
    let _connection = AbortOnDrop(spawn_local(connection).abort_handle());
    let request = Request::builder()
        .method("POST")
        .uri("http://a.test/service/method")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", format!("{}m", patience.as_millis()))
        .header("x-id", id.to_string());
    let mut sender = sender.ready().await.ok()?;
    let (response, mut sending) = sender.send_request(request.body(()).ok()?, false).ok()?;
    // Some clients send their message late, or not before their time is over.
    let late = Duration::from_millis(if !is_calm && random.u8(..4) == 0 { random.u64(..5_000) } else { 0 });
    let message = message(id, history.plan.message);
    let message = spawn_local(async move {
        sleep(late).await;
        let _ = sending.send_data(message, true);
    });
    let _message = AbortOnDrop(message.abort_handle());
    read(history, id, response.await.ok()?).await
}

/// Reads the response to a call, as far as its status.
async fn read(history: &History, id: usize, response: Response<RecvStream>) -> Option<String> {
    let (head, mut body) = response.into_parts();
    let number = |name: &str| head.headers.get(name)?.to_str().ok()?.parse::<usize>().ok();
    if let Some(answered) = number("x-id").filter(|answered| *answered != id) {
        history.breaks("a client gets the response to its request", format_args!("{answered} for call {id}"));
    }
    let status = |headers: &HeaderMap| Some(headers.get("grpc-status")?.to_str().ok()?.to_owned());
    let mut received = Vec::new();
    let status = match status(&head.headers) {
        Some(status) => status,
        None => {
            while let Some(data) = body.data().await {
                let data = data.ok()?;
                body.flow_control().release_capacity(data.len()).ok()?;
                received.extend_from_slice(&data);
            }
            status(&body.trailers().await.ok()??)?
        }
    };
    let whole = number("x-messages").map(|count| message(id, history.plan.message).repeat(count));
    if status == "0" && whole.as_ref() != Some(&received) {
        let (length, whole) = (received.len(), whole.map(|whole| whole.len()));
        history
            .breaks("a call that ends well is whole", format_args!("call {id}: {length} bytes of {whole:?}"));
    }
    Some(status)
}

/// Ends a task with the call.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

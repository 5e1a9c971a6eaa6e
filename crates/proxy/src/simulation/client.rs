//! The clients: each has a connection, sends one request after the other, and checks what it gets.

use super::body::{body_of, decoded};
use super::grpc;
use super::history::History;
use super::stream::Stream;
use super::world::World;
use fastrand::Rng;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};
use weir_simulation::random;

/// A response as a client read it.
struct Response {
    status: u16,
    head: String,
    body: Vec<u8>,
    /// Whether its end was the one that its head announced.
    is_whole: bool,
}

impl Response {
    fn number(&self, name: &str) -> Option<usize> {
        let line = self.head.lines().find(|line| line.starts_with(name))?;
        line[name.len()..].trim().parse().ok()
    }
}

/// What the gateway answers by itself here: a target gave no response, there was none to ask, or too many requests were in flight.
const OWN_STATUSES: [u16; 3] = [502, 503, 504];

const METHODS: [&str; 8] = ["GET", "GET", "HEAD", "PUT", "DELETE", "POST", "POST", "PATCH"];

/// Sends a request when all is calm.
pub(super) async fn last(world: &World) {
    let mut random = random(world.history.plan.seed, 99);
    if world.history.plan.is_grpc {
        return grpc::call(world, (true, &mut random)).await;
    }
    let stream = world.connect_client(&mut random);
    exchange(world, stream, ("GET", false), &mut random).await;
}

/// Runs a client to its end.
pub(super) async fn run(world: Rc<World>, number: usize) {
    let mut random = random(world.history.plan.seed, 100 + number as u64);
    let plan = world.history.plan.clients[number].clone();
    sleep(Duration::from_millis(plan.begins)).await;
    let mut stream = None;
    for _ in 0..plan.requests {
        if world.history.plan.is_grpc {
            grpc::call(&world, (false, &mut random)).await;
            continue;
        }
        let open = stream.take().unwrap_or_else(|| world.connect_client(&mut random));
        let method = random.choice(METHODS).unwrap();
        stream = exchange(&world, open, (method, true), &mut random).await;
        let pause = if random.bool() { 20 } else { 1_500 };
        sleep(Duration::from_millis(random.u64(..pause))).await;
    }
    // The connection stays open: an idle one must hold nothing.
    world.idle.borrow_mut().extend(stream);
}

/// Sends a request and reads its response. Returns the connection if it can carry another.
async fn exchange(
    world: &World,
    mut stream: Stream,
    (method, may_leave): (&str, bool),
    random: &mut Rng,
) -> Option<Stream> {
    let history = &world.history;
    let id =
        history.request(!matches!(method, "POST" | "PATCH"), matches!(method, "GET" | "HEAD" | "DELETE"));
    history.note(format_args!("client sends request {id}: {method}"));
    let request = request(id, method, random);
    let patience = Duration::from_millis(history.plan.longest_request());
    let leaves_after =
        (may_leave && random.u8(..10) == 0).then(|| Duration::from_millis(random.u64(..2_000)));
    let exchanging = async {
        for piece in request.chunks(random.usize(100..100_000)) {
            // A gateway that answers before it has the whole request closes the connection.
            if stream.write_all(piece).await.is_err() {
                break;
            }
            sleep(Duration::from_millis(random.u64(..3))).await;
        }
        read(&mut stream, method == "HEAD").await
    };
    let read = timeout(leaves_after.unwrap_or(patience), exchanging).await;
    let mut requests = history.requests.borrow_mut();
    requests[id].ended = Some(history.now());
    requests[id].has_left = read.is_err();
    drop(requests);
    match read {
        Ok(response) => {
            let can_go_on = response
                .as_ref()
                .is_some_and(|response| response.is_whole && !response.head.contains("Connection: close"));
            check(history, id, method, response);
            can_go_on.then_some(stream)
        }
        Err(_) => {
            history.note(format_args!("client leaves request {id}"));
            if leaves_after.is_none() {
                history.breaks("every request ends in time", format_args!("request {id} has no end"));
            }
            None
        }
    }
}

fn request(id: usize, method: &str, random: &mut Rng) -> Vec<u8> {
    let mut head = format!("{method} /p HTTP/1.1\r\nHost: a.test\r\nX-Id: {id}\r\n");
    if matches!(method, "GET" | "HEAD" | "DELETE") {
        return (head + "\r\n").into_bytes();
    }
    let length = if random.u8(..4) == 0 { random.usize(..80_000) } else { random.usize(..500) };
    let body = body_of(id, length);
    head += &format!("X-Body: {length}\r\n");
    if random.u8(..4) > 0 || length == 0 {
        head += &format!("Content-Length: {length}\r\n\r\n");
        return [head.as_bytes(), &body].concat();
    }
    head += "Transfer-Encoding: chunked\r\n\r\n";
    [head.as_bytes(), format!("{length:x}\r\n").as_bytes(), &body, b"\r\n0\r\n\r\n"].concat()
}

/// Reads a response, past interim ones; none if the connection ends before its head.
async fn read(stream: &mut Stream, is_head: bool) -> Option<Response> {
    let mut buffer = Vec::new();
    loop {
        let at = loop {
            if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut buffer).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8(buffer.drain(..at).collect()).ok()?;
        let status: u16 = head.split(' ').nth(1)?.parse().ok()?;
        if status >= 200 {
            let response = Response { status, head, body: Vec::new(), is_whole: true };
            return Some(read_body(stream, buffer, response, is_head).await);
        }
    }
}

async fn read_body(
    stream: &mut Stream,
    mut buffer: Vec<u8>,
    mut response: Response,
    is_head: bool,
) -> Response {
    if is_head {
        return response;
    }
    let is_chunked = response.head.contains("Transfer-Encoding: chunked");
    let length = response.number("Content-Length:");
    let is_complete = |buffer: &[u8]| match length {
        Some(length) => buffer.len() >= length,
        None => is_chunked && buffer.ends_with(b"0\r\n\r\n") && decoded(buffer).is_some(),
    };
    while !is_complete(&buffer) {
        if !stream.read_buf(&mut buffer).await.is_ok_and(|n| n > 0) {
            response.is_whole = false;
            break;
        }
    }
    response.body = if is_chunked { decoded(&buffer).unwrap_or_default() } else { buffer };
    response
}

/// Whether a request has the response that is due to it.
fn check(history: &History, id: usize, method: &str, response: Option<Response>) {
    let Some(response) = response else { return check_none(history, id) };
    let Response { status, is_whole, .. } = response;
    history.note(format_args!("request {id} is answered {status}, whole: {is_whole}"));
    let version = response.number("X-Own-Version:");
    let mut requests = history.requests.borrow_mut();
    let answered = response.number("X-Id:");
    (requests[id].status, requests[id].version) = (Some(status), version);
    (requests[id].is_by_gateway, requests[id].is_whole) = (answered.is_none(), is_whole);
    drop(requests);
    match answered {
        None => check_own(history, id, &response),
        Some(answered) => check_passed_on(history, (id, method), answered, &response),
    }
}

/// A connection may end without a response only where a target had begun one and broken off while the client was still sending: what the
/// gateway has not read by then resets the connection. No connection ends because it is idle: clients pause for less than that takes.
fn check_none(history: &History, id: usize) {
    history.note(format_args!("request {id} has no response"));
    let is_bodiless = history.requests.borrow()[id].is_bodiless;
    let attempts = history.attempts.borrow();
    let has_begun = attempts.iter().any(|attempt| attempt.request == id && attempt.read > 0);
    if is_bodiless || !has_begun {
        history.breaks("every request gets a response", format_args!("request {id} has none"));
    }
}

/// Whether a response of the gateway's own is one that something here leads to.
fn check_own(history: &History, id: usize, Response { status, is_whole, .. }: &Response) {
    if !OWN_STATUSES.contains(status) {
        history.breaks(
            "the gateway fails requests by itself with 502, 503 and 504 alone",
            format_args!("request {id} with {status}"),
        );
    }
    if !is_whole {
        history.breaks("a response of the gateway's own is whole", format_args!("request {id}, {status}"));
    }
}

/// Whether a response of a target is the one to its request, and whole if it looks so.
fn check_passed_on(history: &History, (id, method): (usize, &str), answered: usize, response: &Response) {
    if answered != id {
        history.breaks("a client gets the response to its request", format_args!("{answered} for {id}"));
    }
    let (seen, own) = (response.number("X-Seen-Version:"), response.number("X-Own-Version:"));
    if seen != own {
        history.breaks(
            "one version of the configuration serves a request",
            format_args!("request {id}: {seen:?} sent it, {own:?} answered"),
        );
    }
    let length = response.number("X-Length:").unwrap_or_default();
    if response.is_whole && method != "HEAD" && response.body != body_of(id, length) {
        history.breaks(
            "a response that looks whole is whole",
            format_args!("request {id}: {} bytes of {length}", response.body.len()),
        );
    }
}

//! The targets: servers that answer, fail, or misbehave, as their mode and chance have it.

use super::body::{body_of, decoded};
use super::history::{History, Link};
use super::plan::Mode;
use super::stream::Stream;
use fastrand::Rng;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

/// The longest that a server takes for a response that it gives, in milliseconds.
pub(super) const MAX_RESPONSE_TIME: u64 = 4_000;

/// A server.
pub(super) struct Server {
    pub(super) history: Rc<History>,
    pub(super) mode: Cell<Mode>,
}

/// What a server does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Answer,
    /// Answers, and closes the connection soon after, without saying so.
    AnswerAndClose,
    /// Answers before it has read the body.
    AnswerEarly,
    /// Sends a response that nothing has asked for behind its own.
    AnswerTwice,
    Error,
    Close,
    Reset,
    HalfHead,
    HalfBody,
    Garbage,
    Silence,
}

/// What is broken about a broken server.
const MISTAKES: [Action; 9] = [
    Action::AnswerEarly,
    Action::AnswerTwice,
    Action::Error,
    Action::Close,
    Action::Reset,
    Action::HalfHead,
    Action::HalfBody,
    Action::Garbage,
    Action::Silence,
];

/// A response to no request.
const UNASKED: &[u8] = b"HTTP/1.1 200 X\r\nX-Id: 1000000\r\nContent-Length: 0\r\n\r\n";

/// A request that a server has read so far.
struct Request {
    /// None of a probe.
    id: Option<usize>,
    is_head: bool,
    version: usize,
    /// The length that frames the body; none where it is in chunks.
    body: Option<usize>,
    /// How long the client's body is.
    announced: usize,
}

/// Serves a connection to its end.
pub(super) async fn serve(server: Rc<Server>, mut stream: Stream, link: Option<Rc<Link>>, mut random: Rng) {
    let mut buffer = Vec::new();
    while let Some(request) = read_head(&mut stream, &mut buffer).await {
        let action = choose(server.mode.get(), &mut random);
        if let Some(id) = request.id {
            server.history.note(format_args!("request {id} was read: {action:?}"));
        }
        pause(&mut random, 5, 200).await;
        if action != Action::AnswerEarly && !server.read_body(&mut stream, &mut buffer, &request).await {
            return;
        }
        match action {
            Action::Close => return,
            Action::Reset => return stream.reset(),
            Action::Silence => {
                // Until the gateway gives up.
                while stream.read(&mut [0; 1024]).await.is_ok_and(|n| n > 0) {}
                return;
            }
            _ => {}
        }
        if !answer(&mut stream, (&request, action, link.as_deref()), &mut random).await {
            return;
        }
        if action == Action::AnswerEarly && !server.read_body(&mut stream, &mut buffer, &request).await {
            return;
        }
    }
}

fn choose(mode: Mode, random: &mut Rng) -> Action {
    let fails = match mode {
        Mode::Healthy => false,
        Mode::Flaky => random.u8(..3) == 0,
        Mode::Broken | Mode::Refusing => true,
        Mode::Silent => return Action::Silence,
    };
    match fails {
        true => random.choice(MISTAKES).unwrap(),
        false if random.u8(..6) == 0 => Action::AnswerAndClose,
        false => Action::Answer,
    }
}

/// Waits for a while; now and then for long.
async fn pause(random: &mut Rng, short: u64, long: u64) {
    let most = if random.u8(..8) == 0 { long } else { short };
    sleep(Duration::from_millis(random.u64(..=most))).await;
}

async fn read_head(stream: &mut Stream, buffer: &mut Vec<u8>) -> Option<Request> {
    let length = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer.drain(..length).collect()).ok()?;
    let number = |name: &str| {
        let line = head
            .lines()
            .find(|line| line.len() > name.len() && line[..name.len()].eq_ignore_ascii_case(name))?;
        line[name.len()..].trim().parse().ok()
    };
    let is_chunked = head.contains("Transfer-Encoding: chunked");
    Some(Request {
        id: number("X-Id:"),
        is_head: head.starts_with("HEAD "),
        version: number("X-Version:").unwrap_or_default(),
        body: if is_chunked { None } else { Some(number("Content-Length:").unwrap_or(0)) },
        announced: number("X-Body:").unwrap_or_default(),
    })
}

impl Server {
    /// Reads the rest of a request; false where the connection ends before.
    async fn read_body(&self, stream: &mut Stream, buffer: &mut Vec<u8>, request: &Request) -> bool {
        loop {
            let length = match request.body {
                Some(length) => Some(length).filter(|length| buffer.len() >= *length),
                // The clients' chunks end with this, and have it nowhere else.
                None => buffer.windows(5).position(|window| window == b"0\r\n\r\n").map(|at| at + 5),
            };
            if let Some(length) = length {
                let body: Vec<u8> = buffer.drain(..length).collect();
                self.check_body(request, &body);
                return true;
            }
            if !stream.read_buf(buffer).await.is_ok_and(|n| n > 0) {
                return false;
            }
        }
    }

    /// What the gateway sends as a whole body is the client's.
    fn check_body(&self, request: &Request, body: &[u8]) {
        if body.windows(6).any(|window| window == b"X-Id: ") {
            self.history.breaks(
                "a connection carries one request at a time",
                format_args!("another is sent within the body of {:?}", request.id),
            );
        }
        let Some(id) = request.id else { return };
        let data = if request.body.is_none() { decoded(body) } else { Some(body.to_vec()) };
        if data != Some(body_of(id, request.announced)) {
            let length = data.as_ref().map(Vec::len);
            self.history.breaks(
                "an upstream gets the whole body of its request",
                format_args!("request {id}: {length:?} bytes of {}", request.announced),
            );
        }
    }
}

/// Sends a response; false where the connection ends.
async fn answer(
    stream: &mut Stream,
    (request, action, link): (&Request, Action, Option<&Link>),
    random: &mut Rng,
) -> bool {
    let written = async |stream: &mut Stream, bytes: &[u8]| stream.write_all(bytes).await.is_ok();
    if action == Action::Garbage {
        written(stream, b"HTTP?\r\n\r\n").await;
        return false;
    }
    if random.u8(..8) == 0 && request.id.is_some() {
        written(stream, b"HTTP/1.1 103 Early Hints\r\nX-Hint: 1\r\n\r\n").await;
    }
    let status = if action == Action::Error { random.choice([500, 503, 404]).unwrap() } else { 200 };
    let length = if random.u8(..6) == 0 { random.usize(..60_000) } else { random.usize(..200) };
    let is_chunked = random.u8(..4) == 0;
    let id = request.id.unwrap_or_default();
    let framing = if is_chunked {
        "Transfer-Encoding: chunked".to_owned()
    } else {
        format!("Content-Length: {length}")
    };
    let ends = random.u8(..10) == 0;
    let close = if ends { "Connection: close\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status} X\r\nX-Id: {id}\r\nX-Seen-Version: {}\r\nX-Length: {length}\r\n{close}{framing}\r\n\r\n",
        request.version
    );
    if action == Action::HalfHead {
        written(stream, &head.as_bytes()[..random.usize(1..head.len())]).await;
        return false;
    }
    if !written(stream, head.as_bytes()).await {
        return false;
    }
    link.into_iter().for_each(|link| link.has_head_at(stream.written(), status));
    let mut body = if request.is_head { Vec::new() } else { body_of(id, length) };
    if is_chunked && !request.is_head {
        body = match length {
            0 => b"0\r\n\r\n".to_vec(),
            _ => [format!("{length:x}\r\n").as_bytes(), &body, b"\r\n0\r\n\r\n"].concat(),
        };
    }
    // A response without a body is whole.
    let half = (action == Action::HalfBody && !body.is_empty()).then(|| random.usize(..body.len()));
    // In one piece with the end of the response: what comes later could be taken for the response to a request that is on its way.
    let unasked = action == Action::AnswerTwice && (1..1000).contains(&body.len());
    if unasked {
        body.extend_from_slice(UNASKED);
    }
    let piece = if unasked { body.len() } else { random.usize(50..30_000).max(body.len() / 8) };
    for piece in body[..half.unwrap_or(body.len())].chunks(piece) {
        pause(random, 0, 100).await;
        if !written(stream, piece).await {
            return false;
        }
    }
    if half.is_some() {
        return false;
    }
    let behind = if unasked { UNASKED.len() as u64 } else { 0 };
    link.into_iter().for_each(|link| link.is_whole_at(stream.written() - behind));
    if action == Action::AnswerAndClose {
        pause(random, 30, 2_000).await;
        return false;
    }
    !ends && action != Action::HalfBody
}

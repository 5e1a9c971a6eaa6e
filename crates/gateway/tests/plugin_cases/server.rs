//! A server that keeps what it was asked, and answers what it is told to.
use crate::harness::{Message, Upstream};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

pub(crate) struct Server {
    upstream: Upstream,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    asked: Vec<Message>,
    answer: String,
}

impl Server {
    pub(crate) fn start() -> Server {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        let upstream = Upstream::start(move |mut peer, _| {
            while let Some(request) = peer.request() {
                let is_head = request.head.start.starts_with("HEAD ");
                let mut state = shared.lock().unwrap();
                state.asked.push(request);
                if state.answer == "close" {
                    return;
                }
                let answer = answer(&state.answer, is_head);
                drop(state);
                peer.send(answer);
            }
        });
        Server { upstream, state }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.upstream.address
    }

    /// Forgets what it was asked, and answers so from now on; `close` is no answer.
    pub(crate) fn begin(&self, answer: &str) {
        *self.state.lock().unwrap() = State { asked: Vec::new(), answer: answer.to_owned() };
    }

    /// What it was asked since then.
    pub(crate) fn asked(&self) -> Vec<Message> {
        self.state.lock().unwrap().asked.clone()
    }
}

/// The bytes of a response that is written as a status, lines of a head and, behind an empty line, a body.
fn answer(text: &str, is_head: bool) -> Vec<u8> {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut lines = head.trim().lines();
    let status = lines.next().filter(|line| !line.is_empty()).unwrap_or("200");
    let fields: String = lines.map(|line| format!("{line}\r\n")).collect();
    let (length, body) = framed(&fields, body);
    let head = format!("HTTP/1.1 {status} Said\r\n{fields}{length}\r\n");
    if is_head { head.into_bytes() } else { (head + &body).into_bytes() }
}

/// The header line that tells the length of a body, where the fields do not tell, and the body as it is sent.
pub(crate) fn framed(fields: &str, body: &str) -> (String, String) {
    let fields = fields.to_ascii_lowercase();
    if fields.contains("transfer-encoding: chunked") {
        let trailer = fields.lines().find_map(|line| line.strip_prefix("trailer:"));
        let trailer = trailer.map(|name| format!("{}: 1\r\n", name.trim())).unwrap_or_default();
        return (String::new(), chunked(body, &trailer));
    }
    let told = fields.contains("content-length:");
    (if told { String::new() } else { format!("Content-Length: {}\r\n", body.len()) }, body.to_owned())
}

/// In two chunks, so that no reader gets away with one.
fn chunked(body: &str, trailer: &str) -> String {
    let (first, second) =
        body.split_at((0..=body.len() / 2).rev().find(|at| body.is_char_boundary(*at)).unwrap());
    let chunk = |data: &str| {
        if data.is_empty() { String::new() } else { format!("{:x}\r\n{data}\r\n", data.len()) }
    };
    format!("{}{}0\r\n{trailer}\r\n", chunk(first), chunk(second))
}

//! An upstream that keeps what it gets, and reads it strictly.
use super::strict;
use crate::harness::{Peer, Upstream};
use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// What came since it was last taken.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) requests: Vec<Request>,
    /// Why bytes are no request.
    pub(super) errors: Vec<String>,
}

/// One request.
pub(super) struct Request(strict::Message);

impl Request {
    /// `METHOD target`, with `: body` if there is one.
    pub(super) fn summary(&self) -> String {
        let line = self.0.start.trim_end_matches(" HTTP/1.1");
        match self.0.body.is_empty() {
            true => line.to_owned(),
            false => format!("{line}: {}", String::from_utf8_lossy(&self.0.body)),
        }
    }

    /// The fields.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.0.fields.iter().map(|(name, value)| format!("{name}: {value}"))
    }
}

#[derive(Default)]
struct State {
    seen: Mutex<Seen>,
    response: Mutex<Option<Vec<u8>>>,
}

/// The upstream.
pub(super) struct Recorder {
    upstream: Upstream,
    state: Arc<State>,
}

impl Recorder {
    pub(super) fn start() -> Recorder {
        let state = Arc::<State>::default();
        let of_server = state.clone();
        Recorder { upstream: Upstream::start(move |peer, _| serve(peer, &of_server)), state }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.upstream.address
    }

    /// Sends these bytes from now on, where nothing else is said; without any, the first line of each request.
    pub(super) fn respond(&self, response: Option<Vec<u8>>) {
        *self.state.response.lock().unwrap() = response;
    }

    /// What came since this was last asked, but for probes.
    pub(super) fn take(&self) -> Seen {
        std::mem::take(&mut *self.state.seen.lock().unwrap())
    }
}

fn serve(mut peer: Peer, state: &State) {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match strict::request(&bytes) {
            Err(error) => {
                let error = format!("{error}: {}", bytes.escape_ascii());
                state.seen.lock().unwrap().errors.push(error);
                return;
            }
            Ok(Some((message, length))) => {
                bytes.drain(..length);
                answer(&mut peer, message, state);
            }
            Ok(None) => match peer.reader().read(&mut piece) {
                Ok(0) | Err(_) => return,
                Ok(length) => bytes.extend_from_slice(&piece[..length]),
            },
        }
    }
}

fn answer(peer: &mut Peer, message: strict::Message, state: &State) {
    let is_probe = message.start.starts_with("GET /probe");
    let response = state.response.lock().unwrap().clone().filter(|_| !is_probe);
    let line = message.start.clone();
    if !is_probe {
        state.seen.lock().unwrap().requests.push(Request(message));
    }
    let response = response.unwrap_or_else(|| {
        let body = if line.starts_with("HEAD ") { "" } else { &line };
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", line.len()).into_bytes()
    });
    peer.send(response);
}

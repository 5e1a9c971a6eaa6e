//! The name server of a run: one name, whose address is right, wrong, late or missing.
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The name that it knows.
pub(super) const NAME: &str = "upstream.faults.test";
const TTL: u32 = 1;
const LATE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(50);
/// No server listens there.
const WRONG: Ipv4Addr = Ipv4Addr::new(127, 66, 66, 66);
const RIGHT: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2)];
const A: u16 = 1;
const SERVER_FAILURE: u8 = 2;

/// What it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// The address of the upstream server.
    Right,
    /// An address where no server listens.
    Wrong,
    /// The right address, after two seconds.
    Late,
    /// That the name has no address.
    Empty,
    /// That it failed.
    Failure,
    /// Nothing.
    Silent,
    /// Two right addresses by turns, as when a name moves over and over.
    Flapping,
}

impl FromStr for Answers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "right" => Ok(Self::Right),
            "wrong" => Ok(Self::Wrong),
            "late" => Ok(Self::Late),
            "empty" => Ok(Self::Empty),
            "failure" => Ok(Self::Failure),
            "silent" => Ok(Self::Silent),
            "flapping" => Ok(Self::Flapping),
            _ => Err(format!(
                "`{text}` is no answer of a name server: use right, wrong, late, empty, failure, silent or flapping"
            )),
        }
    }
}

/// A name server that runs. Dropping it ends it.
pub(super) struct NameServer {
    /// Where it listens.
    pub(super) address: SocketAddr,
    answers: Arc<Mutex<Answers>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Starts it on a free port.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn start() -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(LOOK))?;
        let address = socket.local_addr()?;
        let answers = Arc::new(Mutex::new(Answers::Right));
        let stop = Arc::new(AtomicBool::new(false));
        let shared = (Arc::clone(&answers), Arc::clone(&stop));
        let thread = Some(thread::spawn(move || serve(&socket, &shared.0, &shared.1)));
        Ok(Self { address, answers, stop, thread })
    }

    /// Changes what it answers.
    pub(super) fn answer(&self, answers: Answers) {
        *self.answers.lock().unwrap_or_else(PoisonError::into_inner) = answers;
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn serve(socket: &UdpSocket, answers: &Mutex<Answers>, stop: &AtomicBool) {
    let mut buffer = [0; 1_500];
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        number += 1;
        let answers = *answers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(answer) = answer(&buffer[..length], answers, number) else { continue };
        if answers == Answers::Late {
            let Ok(socket) = socket.try_clone() else { continue };
            thread::spawn(move || {
                thread::sleep(LATE);
                // Who asked has perhaps given up.
                let _ = socket.send_to(&answer, from);
            });
        } else {
            // A lost datagram is asked for again.
            let _ = socket.send_to(&answer, from);
        }
    }
}

/// The answer to a question; none if it stays without one.
fn answer(question: &[u8], answers: Answers, number: usize) -> Option<Vec<u8>> {
    let end = 12 + question.get(12..)?.iter().position(|byte| *byte == 0)? + 5;
    let asked = question.get(12..end)?;
    let is_a = asked.get(asked.len() - 4..asked.len() - 2)? == A.to_be_bytes();
    let address = match answers {
        Answers::Silent => return None,
        Answers::Empty | Answers::Failure => None,
        Answers::Right | Answers::Late => Some(RIGHT[0]),
        Answers::Wrong => Some(WRONG),
        Answers::Flapping => Some(RIGHT[number % RIGHT.len()]),
    };
    let address = address.filter(|_| is_a);
    let code = if answers == Answers::Failure { SERVER_FAILURE } else { 0 };
    let mut out = Vec::with_capacity(end + 16);
    out.extend_from_slice(&question[..2]);
    // A response, authoritative, recursion desired and available.
    out.extend_from_slice(&[0x85, 0x80 | code, 0, 1, 0, u8::from(address.is_some()), 0, 0, 0, 0]);
    out.extend_from_slice(asked);
    if let Some(address) = address {
        // The name of the question; an A record of the Internet.
        out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
        out.extend_from_slice(&TTL.to_be_bytes());
        out.extend_from_slice(&[0, 4]);
        out.extend_from_slice(&address.octets());
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: &[u8] =
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x04test\x00\x00\x01\x00\x01";

    #[test]
    fn answers_are_addresses_or_errors() {
        let right = answer(QUESTION, Answers::Right, 0).unwrap();
        assert_eq!((&right[..2], &right[right.len() - 4..]), (&b"\x12\x34"[..], &[127, 0, 0, 1][..]));
        assert_eq!(answer(QUESTION, Answers::Failure, 0).unwrap()[3] & 15, 2);
        assert_eq!(answer(QUESTION, Answers::Empty, 0).unwrap().len(), QUESTION.len());
        assert_eq!(answer(QUESTION, Answers::Silent, 0), None);
        assert_eq!(answer(b"short", Answers::Right, 0), None);
    }
}

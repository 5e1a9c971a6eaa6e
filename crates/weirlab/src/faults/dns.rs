//! The name server of a run: one name, whose address is right, wrong, late or missing.
use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    answers: Mutex<Answers>,
    /// What was answered to a question that would have got another answer, or that at once.
    acted: Mutex<HashSet<Answers>>,
    stop: AtomicBool,
}

impl Shared {
    fn answers(&self) -> Answers {
        *self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn acted(&self) -> MutexGuard<'_, HashSet<Answers>> {
        self.acted.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        let (answers, acted) = (Mutex::new(Answers::Right), Mutex::default());
        let shared = Arc::new(Shared { answers, acted, stop: AtomicBool::new(false) });
        let of_thread = Arc::clone(&shared);
        let thread = Some(thread::spawn(move || serve(&socket, &of_thread)));
        Ok(Self { address, shared, thread })
    }

    /// Changes what it answers.
    pub(super) fn answer(&self, answers: Answers) {
        *self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner) = answers;
    }

    /// Whether a question was answered so, or not at all, that would have got another answer.
    #[must_use]
    pub(super) fn has_acted(&self, answers: Answers) -> bool {
        self.shared.acted().contains(&answers)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn serve(socket: &UdpSocket, shared: &Shared) {
    let mut buffer = [0; 1_500];
    let mut number = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        let message = &buffer[..length];
        // A resolver may ask for something else before each address, which is no turn.
        number += usize::from(asked_in(message).is_some_and(is_for_address));
        let answers = shared.answers();
        let given = answer(message, answers, number);
        if answers == Answers::Late || given != answer(message, Answers::Right, number) {
            shared.acted().insert(answers);
        }
        let Some(answer) = given else { continue };
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

/// The name, the type and the class that a message asks for.
fn asked_in(message: &[u8]) -> Option<&[u8]> {
    let end = 12 + message.get(12..)?.iter().position(|byte| *byte == 0)? + 5;
    message.get(12..end)
}

fn is_for_address(asked: &[u8]) -> bool {
    // The class follows.
    asked.rchunks_exact(2).nth(1).is_some_and(|kind| kind == A.to_be_bytes())
}

/// The answer to a question; none if it stays without one.
fn answer(question: &[u8], answers: Answers, number: usize) -> Option<Vec<u8>> {
    let asked = asked_in(question)?;
    let address = match answers {
        Answers::Silent => return None,
        Answers::Empty | Answers::Failure => None,
        Answers::Right | Answers::Late => Some(RIGHT[0]),
        Answers::Wrong => Some(WRONG),
        Answers::Flapping => Some(RIGHT[number % RIGHT.len()]),
    };
    let address = address.filter(|_| is_for_address(asked));
    let code = if answers == Answers::Failure { SERVER_FAILURE } else { 0 };
    let mut out = Vec::with_capacity(asked.len() + 28);
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
    fn ask(server: &NameServer, question: &[u8]) -> Vec<u8> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.send_to(question, server.address).unwrap();
        let mut answer = [0; 512];
        let length = socket.recv(&mut answer).unwrap();
        answer[..length].to_vec()
    }

    /// The same name, and another type.
    fn another() -> Vec<u8> {
        let mut question = QUESTION.to_vec();
        let at = question.len() - 3;
        question[at] = 28;
        question
    }

    #[test]
    fn answers_have_acted_once_one_was_not_as_it_should_be() {
        let server = NameServer::start().unwrap();
        ask(&server, QUESTION);
        assert!(!server.has_acted(Answers::Right));
        for answers in [Answers::Wrong, Answers::Empty] {
            server.answer(answers);
            // There is no such record in any case.
            ask(&server, &another());
            assert!(!server.has_acted(answers), "{answers:?}");
            ask(&server, QUESTION);
            assert!(server.has_acted(answers), "{answers:?}");
        }
        server.answer(Answers::Failure);
        ask(&server, &another());
        assert!(server.has_acted(Answers::Failure) && !server.has_acted(Answers::Silent));
    }

    #[test]
    fn addresses_come_by_turns_whatever_is_asked_for_between_them() {
        let server = NameServer::start().unwrap();
        server.answer(Answers::Flapping);
        let last = [0; 4].map(|_| {
            ask(&server, &another());
            *ask(&server, QUESTION).last().unwrap()
        });
        assert_eq!(last, [2, 1, 2, 1]);
        assert!(server.has_acted(Answers::Flapping));
    }
}

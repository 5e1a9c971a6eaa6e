//! A relay of TCP that breaks a connection at a chosen point: between a request and its answer, or within an answer.
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// What happens to the piece at which a connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// The client's piece is not passed on.
    Request,
    /// The server's piece is not passed on.
    Answer,
    /// The server's piece is passed on without its last byte.
    EndOfAnswer,
    /// The server's piece, and all that follow, are kept, and the connection stays open.
    Silence,
}

/// Where a connection breaks: after so many more pieces of that side.
#[derive(Debug, Clone, Copy)]
struct Plan {
    kind: Break,
    pieces: usize,
}

/// The relay; it ends with the process.
pub struct Relay {
    pub port: u16,
    plan: Arc<Mutex<Option<Plan>>>,
}

impl Relay {
    /// In front of a port. Connections whose client says the word are never broken.
    pub fn start(target: u16, spared: &'static str) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay { port: listener.local_addr().unwrap().port(), plan: Arc::default() };
        let plan = relay.plan.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                Wire { client, server, spared, is_spared: AtomicBool::new(false), plan: plan.clone() }.run();
            }
        });
        relay
    }

    /// Breaks a connection once, after so many more pieces.
    pub fn break_after(&self, kind: Break, pieces: usize) {
        *self.plan.lock().unwrap() = Some(Plan { kind, pieces });
    }

    /// Breaks none after all; false if one is broken already.
    pub fn spare(&self) -> bool {
        self.plan.lock().unwrap().take().is_some()
    }
}

/// A connection, and the one behind it.
struct Wire {
    client: TcpStream,
    server: TcpStream,
    spared: &'static str,
    is_spared: AtomicBool,
    plan: Arc<Mutex<Option<Plan>>>,
}

impl Wire {
    fn run(self) {
        let wire = Arc::new(self);
        let other = wire.clone();
        thread::spawn(move || wire.pass(true));
        thread::spawn(move || other.pass(false));
    }

    /// Passes on what one side sends.
    fn pass(&self, of_client: bool) {
        let (mut from, mut to) =
            if of_client { (&self.client, &self.server) } else { (&self.server, &self.client) };
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            let bytes = &piece[..length];
            if of_client && bytes.windows(self.spared.len()).any(|part| part == self.spared.as_bytes()) {
                self.is_spared.store(true, Ordering::SeqCst);
            }
            match self.break_now(of_client) {
                None if to.write_all(bytes).is_ok() => {}
                Some(Break::EndOfAnswer) => {
                    let _ = to.write_all(&bytes[..length - 1]);
                    break;
                }
                Some(Break::Silence) => while matches!(from.read(&mut piece), Ok(1..)) {},
                _ => break,
            }
        }
        for side in [&self.client, &self.server] {
            let _ = side.shutdown(Shutdown::Both);
        }
    }

    /// What happens to the next piece of a side, if it is not passed on.
    fn break_now(&self, of_client: bool) -> Option<Break> {
        let mut plan = self.plan.lock().unwrap();
        let Plan { kind, pieces } = (*plan)?;
        if self.is_spared.load(Ordering::SeqCst) || of_client != (kind == Break::Request) {
            return None;
        }
        *plan = pieces.checked_sub(1).map(|pieces| Plan { kind, pieces });
        (pieces == 0).then_some(kind)
    }
}

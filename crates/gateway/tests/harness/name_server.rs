//! A name server of the tests' own.
use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

/// Length of a message's header.
const HEADER: usize = 12;
/// The type of an IPv4 address, as a question has it.
const A: [u8; 2] = [0, 1];

/// Knows that every name below one domain has the address 127.0.0.1, and no other name.
pub struct NameServer {
    /// Where it listens.
    pub address: SocketAddr,
    asked: Arc<Mutex<BTreeSet<String>>>,
}

impl NameServer {
    /// Starts with the domain, as in `.test`.
    pub fn of(domain: &'static str) -> NameServer {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let (address, asked) = (socket.local_addr().unwrap(), Arc::<Mutex<BTreeSet<String>>>::default());
        let names = asked.clone();
        thread::spawn(move || {
            let mut packet = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut packet) {
                let name = name(&packet[HEADER..length]);
                let is_known = name.ends_with(domain);
                let _ = socket.send_to(&answer(&packet[..length], is_known), from);
                names.lock().unwrap().insert(name);
            }
        });
        NameServer { address, asked }
    }

    /// The names that it was asked for.
    pub fn asked(&self) -> BTreeSet<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// The labels of a question: each is a length and as many bytes, and the last is empty.
fn labels(mut question: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = question.split_first().filter(|(length, _)| **length > 0)?;
        let (label, rest) = rest.split_at(usize::from(*length));
        question = rest;
        Some(label)
    })
}

fn name(question: &[u8]) -> String {
    let labels: Vec<_> = labels(question).map(|label| String::from_utf8_lossy(label)).collect();
    labels.join(".").to_ascii_lowercase()
}

fn answer(query: &[u8], is_known: bool) -> Vec<u8> {
    let name: usize = labels(&query[HEADER..]).map(|label| label.len() + 1).sum::<usize>() + 1;
    let question = &query[HEADER..HEADER + name + 4];
    let has_address = is_known && question[name..name + 2] == A;
    let code = if is_known { 0x80 } else { 0x83 };
    let mut answer = vec![query[0], query[1], 0x81, code, 0, 1, 0, u8::from(has_address), 0, 0, 0, 0];
    answer.extend_from_slice(question);
    if has_address {
        // The name of the question, a class of 1, a minute, and four bytes.
        answer.extend_from_slice(&[0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    answer
}

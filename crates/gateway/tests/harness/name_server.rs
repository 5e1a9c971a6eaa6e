//! A name server of the tests' own.
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

/// Length of a message's header.
const HEADER: usize = 12;
/// The type of an IPv4 address, as a question has it.
const A: [u8; 2] = [0, 1];
/// The type of a service.
const SRV: [u8; 2] = [0, 33];

/// An SRV record.
#[derive(Debug, Clone, Copy)]
pub struct Service {
    pub name: &'static str,
    pub priority: u16,
    pub weight: u16,
    pub port: u16,
    pub host: &'static str,
}

impl Service {
    /// The record as it follows the name that was asked for: type, class, a minute, and its data.
    fn record(&self) -> Vec<u8> {
        let mut data: Vec<u8> =
            [self.priority, self.weight, self.port].iter().flat_map(|number| number.to_be_bytes()).collect();
        for label in self.host.split('.') {
            data.push(u8::try_from(label.len()).unwrap());
            data.extend_from_slice(label.as_bytes());
        }
        data.push(0);
        let length = u16::try_from(data.len()).unwrap().to_be_bytes();
        [&[0xC0, 12][..], &SRV, &[0, 1, 0, 0, 0, 60], &length, &data].concat()
    }
}

/// Knows that every name below one domain has the address 127.0.0.1 or services, and no other name.
pub struct NameServer {
    /// Where it listens.
    pub address: SocketAddr,
    asked: Arc<Mutex<BTreeSet<String>>>,
}

impl NameServer {
    /// Starts with the domain, as in `.test`.
    pub fn of(domain: &'static str) -> NameServer {
        NameServer::with_services(domain, Vec::new())
    }

    /// The same with services.
    pub fn with_services(domain: &'static str, services: Vec<Service>) -> NameServer {
        let (socket, listener) = sockets();
        let (address, asked) = (socket.local_addr().unwrap(), Arc::<Mutex<BTreeSet<String>>>::default());
        let names = asked.clone();
        let reply = Arc::new(move |query: &[u8]| {
            let name = name(&query[HEADER..]);
            let own: Vec<_> = services.iter().filter(|service| service.name == name).collect();
            let answer = answer(query, name.ends_with(domain), &own);
            names.lock().unwrap().insert(name);
            answer
        });
        let over_tcp = reply.clone();
        thread::spawn(move || {
            let mut packet = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut packet) {
                let _ = socket.send_to(&reply(&packet[..length]), from);
            }
        });
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let reply = over_tcp.clone();
                thread::spawn(move || serve(stream, &*reply));
            }
        });
        NameServer { address, asked }
    }

    /// The names that it was asked for.
    pub fn asked(&self) -> BTreeSet<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// The same port for UDP and TCP.
fn sockets() -> (UdpSocket, TcpListener) {
    for _ in 0..20 {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        if let Ok(listener) = TcpListener::bind(socket.local_addr().unwrap()) {
            return (socket, listener);
        }
    }
    panic!("no port is free for UDP and TCP");
}

/// Replies to the queries of a connection, each after its length.
fn serve(mut stream: TcpStream, reply: impl Fn(&[u8]) -> Vec<u8>) {
    let mut length = [0; 2];
    while stream.read_exact(&mut length).is_ok() {
        let mut query = vec![0; u16::from_be_bytes(length).into()];
        if stream.read_exact(&mut query).is_err() {
            return;
        }
        let answer = reply(&query);
        let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
        if stream.write_all(&[&length, &*answer].concat()).is_err() {
            return;
        }
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

fn answer(query: &[u8], is_known: bool, services: &[&Service]) -> Vec<u8> {
    let name: usize = labels(&query[HEADER..]).map(|label| label.len() + 1).sum::<usize>() + 1;
    let question = &query[HEADER..HEADER + name + 4];
    let kind = &question[name..name + 2];
    let records = match is_known {
        // The name of the question, a class of 1, a minute, and four bytes.
        true if kind == A && services.is_empty() => {
            vec![vec![0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]]
        }
        true if kind == SRV => services.iter().map(|service| service.record()).collect(),
        _ => Vec::new(),
    };
    let code = if is_known { 0x80 } else { 0x83 };
    let count = u8::try_from(records.len()).unwrap();
    let mut answer = vec![query[0], query[1], 0x81, code, 0, 1, 0, count, 0, 0, 0, 0];
    answer.extend_from_slice(question);
    answer.extend(records.concat());
    answer
}

//! Servers that take what plugins deliver, and make nothing of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

/// What their threads are called.
pub(crate) const THREAD: &str = "sink";

/// The ports of all of them. They last as long as the process.
pub(crate) struct Sinks {
    pub(crate) http: u16,
    pub(crate) tcp: u16,
    pub(crate) udp: u16,
    /// Where everybody may log in.
    pub(crate) ldap: u16,
}

impl Sinks {
    pub(crate) fn start() -> Self {
        let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let udp = datagrams.local_addr().expect("an address").port();
        // No thread reads the datagrams; the kernel drops them once the buffer is full.
        std::mem::forget(datagrams);
        Self { http: listen(answer), tcp: listen(drain), udp, ldap: listen(bind) }
    }
}

fn listen(serve: fn(TcpStream)) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    spawn(move || {
        for stream in listener.incoming().flatten() {
            spawn(move || serve(stream));
        }
    });
    port
}

fn spawn(run: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name(THREAD.into()).spawn(run).expect("a thread");
}

fn drain(mut stream: TcpStream) {
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
}

/// Takes operations of LDAP that are shorter than 128 bytes, and answers each as a login that has succeeded.
fn bind(mut stream: TcpStream) {
    let mut head = [0; 5];
    while stream.read_exact(&mut head).is_ok() {
        // A sequence, its length, and the number of the operation as an integer of one byte.
        let [0x30, length, 0x02, 0x01, number] = head else { panic!("another operation of LDAP: {head:?}") };
        let mut rest = vec![0; usize::from(length) - 3];
        let response = [0x30, 0x0c, 0x02, 0x01, number, 0x61, 0x07, 0x0a, 0x01, 0, 0x04, 0, 0x04, 0];
        if stream.read_exact(&mut rest).and_then(|()| stream.write_all(&response)).is_err() {
            return;
        }
    }
}

/// Takes requests with `Content-Length`, and answers each with 200.
fn answer(stream: TcpStream) {
    let mut reader = BufReader::new(stream);
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
        if line == "\r\n" {
            let body = std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink());
            let answered = reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            if body.and(answered.map(|()| 0)).is_err() {
                return;
            }
        }
        line.clear();
    }
}

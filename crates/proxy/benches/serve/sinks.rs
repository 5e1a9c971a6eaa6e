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
}

impl Sinks {
    pub(crate) fn start() -> Self {
        let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let udp = datagrams.local_addr().expect("an address").port();
        // No thread reads the datagrams; the kernel drops them once the buffer is full.
        std::mem::forget(datagrams);
        Self { http: listen(answer), tcp: listen(drain), udp }
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

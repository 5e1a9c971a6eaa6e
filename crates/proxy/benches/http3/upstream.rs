//! The upstream: a thread for each connection, which answers `GET /5` with 5 bytes.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// Listens; returns the port.
pub(crate) fn start() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(&connection));
        }
    });
    port
}

fn serve(connection: &TcpStream) {
    let _ = connection.set_nodelay(true);
    let mut reader = BufReader::with_capacity(256 * 1024, connection);
    let (mut response, mut line) = (Vec::new(), String::new());
    loop {
        let (mut bytes, mut sent) = (None, 0);
        loop {
            line.clear();
            if !reader.read_line(&mut line).is_ok_and(|read| read > 0) {
                return;
            }
            let mut words = line.split_ascii_whitespace();
            match (words.next(), words.next()) {
                (None, _) => break,
                (_, Some(target)) if bytes.is_none() => bytes = target[1..].parse::<usize>().ok(),
                (Some(name), Some(value)) if name.eq_ignore_ascii_case("content-length:") => {
                    sent = value.parse().expect("a length");
                }
                _ => {}
            }
        }
        std::io::copy(&mut reader.by_ref().take(sent), &mut std::io::sink()).expect("the request's body");
        let bytes = bytes.expect("a number for a path");
        response.clear();
        write!(response, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {bytes}\r\n\r\n")
            .expect("memory");
        response.resize(response.len() + bytes, b'x');
        if (&*connection).write_all(&response).is_err() {
            return;
        }
    }
}

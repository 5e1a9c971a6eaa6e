//! What the upstream answers, and when.
use super::wire::{Server, TIMEOUT, connect, connect_tls, exchange, get, read_answer};
use std::io::{BufReader, Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};
use weir_http1::Method::{Get, Head, Post};

#[test]
fn answers_are_as_long_as_was_asked_for() {
    for length in ["0", "1024", "1048576"] {
        for framing in [&[][..], &["--chunked"]] {
            let upstream = Server::start(&[&["upstream", "--body-bytes", length], framing].concat());
            let pipelined = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3);
            for answer in exchange(upstream.listen, &pipelined, &[Get; 3]) {
                assert_eq!((answer.status, answer.whole), (200, true));
                assert_eq!(answer.body.len().to_string(), length);
            }
            let to_head = exchange(upstream.listen, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", &[Head]);
            assert_eq!(to_head[0].body.len(), 0);
            let old = exchange(upstream.listen, b"GET / HTTP/1.0\r\n\r\n", &[Get]).remove(0);
            assert_eq!((old.body.len().to_string().as_str(), old.closes), (length, true));
        }
    }
}

#[test]
fn bodies_of_requests_are_drained_before_the_next() {
    let upstream = Server::start(&["upstream", "--body", "{n} {method} {path} {header:x-a}"]);
    let requests = [
        "POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 18\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "POST /chunks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "GET /last?q=1 HTTP/1.1\r\nHost: a\r\nX-A: yes\r\nConnection: close\r\n\r\n",
    ];
    let answers = exchange(upstream.listen, requests.concat().as_bytes(), &[Post, Post, Get]);
    let texts: Vec<_> = answers.iter().map(|answer| (answer.text(), answer.closes)).collect();
    let expected = [("1 POST /length ", false), ("2 POST /chunks ", false), ("3 GET /last yes", true)];
    assert_eq!(texts, expected.map(|(text, closes)| (text.to_owned(), closes)));
}

#[test]
fn heads_that_come_byte_by_byte_are_understood() {
    let upstream = Server::start(&["upstream", "--body", "{path}"]);
    let mut stream = connect(upstream.listen);
    stream.set_nodelay(true).unwrap();
    for byte in b"GET /slowly HTTP/1.1\r\nHost: a\r\n\r\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(read_answer(&mut BufReader::new(stream), Get).text(), "/slowly");
}

#[test]
fn a_client_that_asks_is_told_to_continue() {
    let upstream = Server::start(&["upstream"]);
    let mut stream = connect(upstream.listen);
    stream
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        .unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    assert_eq!(read_answer(&mut reader, Post).status, 100);
    stream.write_all(b"hi").unwrap();
    assert_eq!(read_answer(&mut reader, Post).status, 200);
}

#[test]
fn what_is_no_http_is_refused_and_the_connection_ends() {
    let upstream = Server::start(&["upstream"]);
    let mut stream = connect(upstream.listen);
    stream.write_all(b"nonsense\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    assert_eq!(read_answer(&mut reader, Get).status, 400);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
}

#[test]
fn statuses_are_mixed_and_fields_added() {
    let upstream = Server::start(&["upstream", "--status", "200:3,503:1", "--header", "X-Served-By: one"]);
    let requests = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(200);
    let answers = exchange(upstream.listen, &requests, &[Get; 200]);
    let unavailable = answers.iter().filter(|answer| answer.status == 503).count();
    assert!((25..75).contains(&unavailable), "{unavailable}");
    assert!(answers[0].fields.contains(&("x-served-by".to_owned(), "one".to_owned())));
}

#[test]
fn answers_are_held_back_each_by_itself() {
    let upstream = Server::start(&["upstream", "--delay", "50ms"]);
    let mut streams: Vec<_> = (0..20).map(|_| connect(upstream.listen)).collect();
    let begun = Instant::now();
    for stream in &mut streams {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    }
    for stream in streams {
        assert_eq!(read_answer(&mut BufReader::new(stream), Get).status, 200);
        assert!(begun.elapsed() >= Duration::from_millis(50));
    }
    assert!(begun.elapsed() < TIMEOUT / 2);
}

/// Three events, each a chunk of its own.
fn paced(pause: &str) -> Server {
    let body = ["--body", "data: a\n\ndata: b\n\ndata: c\n\n"];
    Server::start(&[&["upstream", "--chunked", "--event-pause", pause], &body[..]].concat())
}

#[test]
fn the_events_of_a_body_come_one_by_one() {
    let upstream = paced("10ms");
    let begun = Instant::now();
    let requests = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3);
    for answer in exchange(upstream.listen, &requests, &[Get; 3]) {
        assert_eq!((answer.text(), answer.whole), ("data: a\n\ndata: b\n\ndata: c\n\n".to_owned(), true));
    }
    assert!(begun.elapsed() >= Duration::from_millis(60), "two pauses in each of three answers");
}

#[test]
fn an_event_does_not_wait_for_the_next() {
    let upstream = paced("1h");
    let mut stream = connect(upstream.listen);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let (mut reader, mut seen) = (BufReader::new(stream), Vec::new());
    while !seen.ends_with(b"9\r\ndata: a\n\n\r\n") {
        let mut byte = [0];
        reader.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    assert!(reader.buffer().is_empty(), "the second is not due");
    let head = exchange(upstream.listen, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", &[Head]);
    let old = exchange(upstream.listen, b"GET / HTTP/1.0\r\n\r\n", &[Get]);
    assert_eq!((head[0].body.len(), old[0].body.len()), (0, 27), "neither has chunks");
    assert_eq!(get(paced("0s").listen, "/").body.len(), 27);
}

#[test]
fn a_stall_freezes_everything() {
    let upstream = Server::start(&["upstream", "--stall", "every 300ms for 200ms"]);
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    while begun.elapsed() < Duration::from_millis(700) {
        let asked = Instant::now();
        assert_eq!(get(upstream.listen, "/").status, 200);
        longest = longest.max(asked.elapsed());
    }
    assert!((Duration::from_millis(100)..TIMEOUT / 2).contains(&longest), "{longest:?}");
}

#[test]
fn tls_is_served_beside() {
    let upstream = Server::start(&[
        "upstream",
        "--listen",
        "127.0.0.1:0",
        "--listen-tls",
        "127.0.0.1:0",
        "--body-bytes",
        "1048576",
    ]);
    let mut stream = connect_tls(upstream.listen_tls[0]);
    stream.write_all(&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2)).unwrap();
    let mut reader = BufReader::new(stream);
    for _ in 0..2 {
        assert_eq!(read_answer(&mut reader, Get).body.len(), 1_048_576);
    }
}

#[test]
fn several_threads_serve_one_address() {
    let upstream = Server::start(&["upstream", "--threads", "3"]);
    for _ in 0..20 {
        assert_eq!(get(upstream.listen, "/").body.len(), 1024);
    }
}

#[test]
fn what_cannot_be_done_is_reported_with_the_fix() {
    let taken = Server::start(&["upstream"]);
    let taken = taken.listen.to_string();
    let cases = [
        (&["upstream", "--listen", "192.0.2.1:80"][..], "--listen"),
        (&["upstream", "--status", "maybe"], "200:95,503:5"),
        (&["upstream", "--delay", "soon"], "5ms"),
        (&["upstream", "--event-pause", "5ms"], "--chunked"),
        (&["upstream", "--cpus", "1000000"], "nproc"),
        (&["floor", "--to", &taken, "--listen", "192.0.2.1:80"], "--listen"),
    ];
    for (arguments, hint) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_weirlab")).args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(hint), "{arguments:?}: {said}");
    }
}

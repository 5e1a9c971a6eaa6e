//! Peers that stop, leave, hurry or talk nonsense: the floor answers as well as can be, and holds nothing back.
use super::wire::{Script, Server, connect, eventually, exchange, get, read_answer, read_head};
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use weir_http1::Method::{Get, Post};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn answers_that_are_none_become_502() {
    for bytes in [&b""[..], b"HTTP/1.1 200 O", b"hello\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\n\r\n"]
    {
        let upstream = Script::answering(bytes);
        let floor = Server::floor(upstream.address);
        let idle = floor.open_descriptors();
        assert_eq!(get(floor.listen, "/").status, 502, "{bytes:?}");
        floor.settles_at(idle);
        upstream.over();
    }
}

#[test]
fn an_upstream_that_is_gone_becomes_502() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let floor = Server::floor(gone);
    let idle = floor.open_descriptors();
    assert_eq!(get(floor.listen, "/").status, 502);
    floor.settles_at(idle);
}

#[test]
fn an_answer_cut_short_is_cut_short_for_the_client() {
    for bytes in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ] {
        let upstream = Script::answering(bytes);
        let floor = Server::floor(upstream.address);
        let idle = floor.open_descriptors();
        let answer = get(floor.listen, "/");
        assert_eq!((answer.text().as_str(), answer.whole), ("half", false));
        floor.settles_at(idle);
        upstream.over();
    }
}

#[test]
fn an_answer_that_ends_with_its_connection_is_whole() {
    let upstream = Script::answering(b"HTTP/1.0 200 OK\r\nX-A: 1\r\n\r\nall of it");
    let answer = get(Server::floor(upstream.address).listen, "/");
    assert_eq!((answer.text().as_str(), answer.whole, answer.closes), ("all of it", true, true));
    upstream.over();
}

#[test]
fn interim_answers_come_before_the_final_one() {
    let upstream = Script::answering(
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    let answers = exchange(Server::floor(upstream.address).listen, REQUEST, &[Get, Get, Get]);
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!((statuses, answers[2].text()), (vec![103, 100, 200], "ok".to_owned()));
    upstream.over();
}

#[test]
fn a_client_waits_for_the_upstream_to_want_its_body() {
    let upstream = Server::start(&["upstream"]);
    let floor = Server::floor(upstream.listen);
    let mut stream = connect(floor.listen);
    stream
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        .unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    assert_eq!(read_answer(&mut reader, Post).status, 100);
    stream.write_all(b"hi").unwrap();
    assert_eq!(read_answer(&mut reader, Post).status, 200);
}

#[test]
fn a_pooled_connection_that_died_fails_no_safe_request() {
    let once = |mut stream: TcpStream| {
        read_head(&mut stream);
        stream.write_all(OK).unwrap();
        // Reads the next request and leaves without an answer to it.
        read_head(&mut stream);
    };
    let upstream = Script::new(vec![Box::new(once), Box::new(once), Box::new(once)]);
    let floor = Server::floor(upstream.address);
    let mut stream = connect(floor.listen);
    for _ in 0..3 {
        stream.write_all(REQUEST).unwrap();
        assert_eq!(read_answer(&mut BufReader::new(&mut stream), Get).text(), "ok");
    }
    // No connection is left to try, and a body is not sent twice.
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx").unwrap();
    assert_eq!(read_answer(&mut BufReader::new(&mut stream), Post).status, 502);
    upstream.over();
}

#[test]
fn a_connection_that_ends_with_its_answer_is_not_pooled() {
    let once = |mut stream: TcpStream| {
        read_head(&mut stream);
        stream.write_all(OK).unwrap();
    };
    let upstream = Script::new(vec![Box::new(once), Box::new(once)]);
    let floor = Server::floor(upstream.address);
    let idle = floor.open_descriptors();
    for _ in 0..2 {
        let post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(exchange(floor.listen, post, &[Post])[0].text(), "ok");
        floor.settles_at(idle);
    }
    upstream.over();
}

#[test]
fn an_upstream_may_answer_before_it_has_read_everything() {
    let upstream = Script::new(vec![Box::new(|mut stream: TcpStream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // It goes on to read, so that its end is no reset.
        while stream.read(&mut [0; 65536]).is_ok_and(|count| count > 0) {}
    })]);
    let floor = Server::floor(upstream.address);
    let idle = floor.open_descriptors();
    let mut stream = connect(floor.listen);
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nbeginning").unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let answer = read_answer(&mut reader, Post);
    assert_eq!((answer.status, answer.closes), (413, true));
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    drop((stream, reader));
    floor.settles_at(idle);
    upstream.over();
}

#[test]
fn a_client_that_leaves_takes_its_upstream_connection_along() {
    let (leave, left) = std::sync::mpsc::channel();
    let upstream = Script::new(vec![Box::new(move |mut stream: TcpStream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").unwrap();
        leave.send(()).unwrap();
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    })]);
    let floor = Server::floor(upstream.address);
    let idle = floor.open_descriptors();
    let mut stream = connect(floor.listen);
    stream.write_all(REQUEST).unwrap();
    left.recv().unwrap();
    // Closed with bytes unread: a reset.
    eventually(|| stream.peek(&mut [0; 100]).unwrap() > 40, "nothing is sent on");
    drop(stream);
    floor.settles_at(idle);
    upstream.over();
}

#[test]
fn a_client_that_leaves_within_its_body_leaves_nothing_behind() {
    let upstream = Server::start(&["upstream"]);
    let floor = Server::floor(upstream.listen);
    let (idle, idle_upstream) = (floor.open_descriptors(), upstream.open_descriptors());
    let mut stream = connect(floor.listen);
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf").unwrap();
    eventually(|| upstream.open_descriptors() > idle_upstream, "no connection is made");
    drop(stream);
    floor.settles_at(idle);
    upstream.settles_at(idle_upstream);
}

#[test]
fn a_client_that_only_stops_to_send_gets_its_answer() {
    let upstream = Server::start(&["upstream", "--delay", "20ms"]);
    let floor = Server::floor(upstream.listen);
    let idle = floor.open_descriptors();
    let mut stream = connect(floor.listen);
    stream.write_all(REQUEST).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut reader = BufReader::new(stream);
    assert_eq!(read_answer(&mut reader, Get).body.len(), 1024);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    // One stays pooled.
    floor.settles_at(idle + 1);
}

#[test]
fn slow_readers_cost_neither_memory_nor_their_neighbours() {
    let upstream = Server::start(&["upstream", "--body-bytes", "33554432"]);
    let floor = Server::floor(upstream.listen);
    let mut slow: Vec<_> = (0..8).map(|_| connect(floor.listen)).collect();
    for stream in &mut slow {
        stream.write_all(REQUEST).unwrap();
    }
    eventually(|| slow[7].peek(&mut [0; 64]).unwrap() == 64, "a slow reader gets nothing");
    assert_eq!(get(floor.listen, "/").body.len(), 33_554_432);
    let status = std::fs::read_to_string(format!("/proc/{}/status", floor.child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 65_536, "{peak} kB for 8 connections");
    for stream in &mut slow {
        assert_eq!(read_answer(&mut BufReader::new(stream), Get).body.len(), 33_554_432);
    }
}

#[test]
fn an_upstream_that_reads_nothing_holds_the_client_back() {
    let (done, over) = std::sync::mpsc::channel::<()>();
    let upstream = Script::new(vec![Box::new(move |_stream: TcpStream| assert!(over.recv().is_err()))]);
    let floor = Server::floor(upstream.address);
    let mut stream = connect(floor.listen);
    stream.set_write_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n").unwrap();
    let block = vec![0; 1 << 20];
    let taken = (0..200).take_while(|_| stream.write_all(&block).is_ok()).count();
    assert!(taken < 100, "{taken} MiB were taken");
    drop(done);
    upstream.over();
}

//! How the front spreads connections, and that bytes pass it unchanged.
use super::wire::{Server, connect, eventually, get, read_answer};
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::thread;
use weir_http1::Method::Get;

fn named(count: usize) -> (Vec<Server>, String) {
    let upstreams: Vec<_> =
        (0..count).map(|number| Server::start(&["upstream", "--body", &number.to_string()])).collect();
    let addresses: Vec<_> = upstreams.iter().map(|upstream| upstream.listen.to_string()).collect();
    (upstreams, addresses.join(","))
}

#[test]
fn connections_go_to_one_target_after_the_other() {
    let (_upstreams, addresses) = named(3);
    let front = Server::start(&["front", "--to", &addresses]);
    let texts: Vec<_> = (0..7).map(|_| get(front.listen, "/").text()).collect();
    assert_eq!(texts, ["0", "1", "2", "0", "1", "2", "0"]);
}

#[test]
fn connections_go_to_the_target_with_the_fewest() {
    let (_upstreams, addresses) = named(2);
    let front = Server::start(&["front", "--to", &addresses, "--balance", "least-connections"]);
    let idle = front.open_descriptors();
    let ask = |stream: &mut std::net::TcpStream| {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        read_answer(&mut BufReader::new(stream), Get).text()
    };
    let mut held: Vec<_> = (0..4).map(|_| connect(front.listen)).collect();
    let texts: Vec<_> = held.iter_mut().map(ask).collect();
    assert_eq!(texts, ["0", "1", "0", "1"]);
    // Both connections to the second target end: the next two go there.
    held.truncate(3);
    held.remove(1);
    front.settles_at(idle + 4);
    let mut next: Vec<_> = (0..2).map(|_| connect(front.listen)).collect();
    assert_eq!(next.iter_mut().map(ask).collect::<Vec<_>>(), ["1", "1"]);
    drop((held, next));
    front.settles_at(idle);
}

#[test]
fn bytes_pass_both_ways_and_so_do_half_closes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let front = Server::start(&["front", "--to", &listener.local_addr().unwrap().to_string()]);
    let idle = front.open_descriptors();
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
    });
    let sent: Vec<u8> = (0..5_000_000u32).map(|number| (number % 251) as u8).collect();
    let mut stream = connect(front.listen);
    stream.write_all(&sent).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert!(back == sent);
    echo.join().unwrap();
    front.settles_at(idle);
}

#[test]
fn the_connection_to_a_target_that_is_gone_ends() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let front = Server::start(&["front", "--to", &gone.to_string()]);
    let idle = front.open_descriptors();
    let ended = |mut stream: std::net::TcpStream| matches!(stream.read(&mut [0]), Ok(0) | Err(_));
    assert!(ended(connect(front.listen)));
    eventually(|| front.open_descriptors() == idle, "descriptors are left open");
}

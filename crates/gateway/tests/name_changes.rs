//! Names whose addresses change while connections to the old ones are kept.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::http2_upstream::Http2Upstream;
use crate::harness::{Builder, Gateway, Upstream, document, eventually, service};
use http::Response;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

/// Length of a message's header.
const HEADER: usize = 12;
/// What `alias.test` stands for.
const REAL: &[u8] = b"\x04real\x04test\0";

/// A name server. The address of `plain.test` holds for a second; `alias.test` holds as long, and stands for a name whose
/// address holds for ten minutes.
struct Names {
    server: SocketAddr,
    /// The last byte of the address, which begins with 127.0.0.
    last: Arc<AtomicU8>,
}

impl Names {
    fn start() -> Names {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (server, last) = (socket.local_addr().unwrap(), Arc::new(AtomicU8::new(1)));
        let current = last.clone();
        thread::spawn(move || {
            let mut packet = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut packet) {
                let _ = socket.send_to(&answer(&packet[..length], current.load(Ordering::SeqCst)), from);
            }
        });
        Names { server, last }
    }

    /// From now on the address is 127.0.0.2.
    fn change(&self) {
        self.last.store(2, Ordering::SeqCst);
    }

    /// A gateway that asks this server, and whose connections carry any number of requests.
    fn gateway(&self, service: String) -> Builder {
        Gateway::builder(&document(&[service], ""))
            .set("dns_resolver", &self.server.to_string())
            .set("dns_hostsfile", "/dev/null")
            .set("dns_order", "A")
            .set("upstream_keepalive_max_requests", "0")
    }
}

fn answer(query: &[u8], last: u8) -> Vec<u8> {
    let name = query[HEADER..].iter().position(|byte| *byte == 0).unwrap();
    // A name, a type and a class.
    let question = &query[HEADER..HEADER + name + 5];
    // Type and class, how long it holds, and four bytes.
    let address = |seconds: u32| {
        let seconds = seconds.to_be_bytes();
        [&[0, 1, 0, 1][..], &seconds, &[0, 4, 127, 0, 0, last]].concat()
    };
    let (count, records) = if question.starts_with(b"\x05alias") {
        let alias = [0xC0, 12, 0, 5, 0, 1, 0, 0, 0, 1, 0, REAL.len() as u8];
        (2, [&alias[..], REAL, REAL, &address(600)].concat())
    } else {
        (1, [&[0xC0, 12][..], &address(1)].concat())
    };
    [&query[..2], &[0x81, 0x80, 0, 1, 0, count, 0, 0, 0, 0], question, &records].concat()
}

fn local(last: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, last], port))
}

/// An upstream that answers with its name.
fn over_http1(address: SocketAddr, name: &'static str) -> Upstream {
    Upstream::start_at(address, move |mut peer, _| {
        while peer.request().is_some() {
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{name}"));
        }
    })
}

/// The same over HTTP/2.
fn over_http2(address: SocketAddr, name: &'static str) -> Http2Upstream {
    let builder = h2::server::Builder::new();
    Http2Upstream::start_at(address, builder, usize::MAX, move |(_, mut respond), _| async move {
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        body.send_data(name.into(), true).unwrap();
    })
}

/// Sends requests until the other upstream answers, once the name leads there.
fn follows(gateway: &Gateway, names: &Names) {
    assert!((0..3).all(|_| gateway.get("/").text() == "one"));
    names.change();
    eventually("the new address is asked", || gateway.get("/").text() == "two");
}

#[test]
fn requests_go_to_the_new_address_although_connections_to_the_old_one_are_kept() {
    let (names, one) = (Names::start(), over_http1(local(1, 0), "one"));
    let port = one.address.port();
    let _two = over_http1(local(2, port), "two");
    let gateway = names.gateway(service("/", format!("plain.test:{port}"), "", "")).start();
    follows(&gateway, &names);
    assert_eq!(one.connections(), 1);
}

#[test]
fn requests_over_http2_go_to_the_new_address_too() {
    let (names, one) = (Names::start(), over_http2(local(1, 0), "one"));
    let port = one.address.port();
    let _two = over_http2(local(2, port), "two");
    let tags = "tags: [weir-upstream-http2]";
    let gateway = names.gateway(service("/", format!("plain.test:{port}"), tags, "")).start();
    follows(&gateway, &names);
    assert_eq!(one.connections(), 1);
}

#[test]
fn an_alias_is_looked_up_again_when_its_own_time_is_over() {
    let (names, one) = (Names::start(), over_http1(local(1, 0), "one"));
    let port = one.address.port();
    let _two = over_http1(local(2, port), "two");
    let service = service("/", format!("alias.test:{port}"), "", "");
    // Each request connects, and looks the name up.
    let gateway = names.gateway(service).set("upstream_keepalive_pool_size", "0").start();
    follows(&gateway, &names);
}

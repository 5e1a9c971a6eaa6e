//! Connections: how they begin, last and end.
use super::client::Client;
use super::{OK, gateway};
use crate::harness::{Identity, Upstream, eventually, one_route};
use rustix::process::Signal;
use serde_json::json;
use std::sync::{Mutex, mpsc};

const NO_ERROR: u64 = 0x100;
const LAST_REQUEST: u64 = (1 << 62) - 4;

#[test]
fn a_drain_lets_requests_end() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::start(move |mut peer, _| {
        while peer.request().is_some() {
            let () = wait.lock().unwrap().recv().unwrap();
            peer.send(OK);
        }
    });
    let mut gateway = gateway(&one_route(upstream.address)).set("drain_timeout", "100s").start();
    let mut idle = Client::connect(gateway.proxy_quic());
    let mut client = Client::connect(gateway.proxy_quic());
    client.ask("a", ("GET", "/"), &json!({}));
    eventually("the upstream is asked", || upstream.connections() == 1);
    gateway.signal(Signal::TERM);
    // What is on its way when the first GOAWAY comes is still served.
    assert_eq!(idle.event("goaway", |_| true)["goaway"], LAST_REQUEST);
    assert_eq!(idle.event("goaway", |_| true)["goaway"], 0);
    assert_eq!(idle.closed(), NO_ERROR);
    assert_eq!(client.event("goaway", |_| true)["goaway"], LAST_REQUEST);
    assert_eq!(client.event("goaway", |_| true)["goaway"], 4);
    let late = client.ask("late", ("GET", "/"), &json!({})).response("late");
    assert_eq!(late.reset(), Some(0x10b), "{late:?}");
    // Who comes now is told at once.
    let (_, refused) = Client::with(gateway.proxy_quic(), &json!({}));
    assert_eq!(refused["closed"], 2, "{refused}");
    go.send(()).unwrap();
    assert_eq!(client.response("a").text(), "hi");
    assert_eq!(client.closed(), NO_ERROR);
    assert!(gateway.exit().success());
}

#[test]
fn certificates_change_without_a_connection_being_dropped() {
    let upstream = Upstream::answering(OK);
    let certificate = |identity: &Identity| {
        let (cert, key) = (identity.cert_yaml(), identity.key_yaml());
        format!(
            "{}certificates:\n- {{cert: {cert}, key: {key}, snis: [{{name: localhost}}]}}\n",
            one_route(upstream.address)
        )
    };
    let (one, two) = (Identity::new("one"), Identity::new("two"));
    let gateway = gateway(&certificate(&one)).start();
    let (mut before, said) = Client::with(gateway.proxy_quic(), &json!({}));
    assert_eq!(said["connected"], "CN=one");
    assert!(gateway.reload(&certificate(&two)).status.success());
    let (mut after, said) = Client::with(gateway.proxy_quic(), &json!({}));
    assert_eq!(said["connected"], "CN=two");
    assert_eq!((before.get("/").text(), after.get("/").text()), ("hi", "hi"));
}

#[test]
fn a_client_may_move_to_another_port_whatever_the_number_of_workers() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&one_route(upstream.address)).set("workers", "2").start();
    let mut clients = [0; 4].map(|_| Client::connect(gateway.proxy_quic()));
    for client in &mut clients {
        assert_eq!(client.get("/").text(), "hi");
        client.send(&json!({"do": "rebind"})).event("rebound", |_| true);
        assert_eq!(client.get("/").text(), "hi");
    }
}

#[test]
fn addresses_are_proven_where_that_is_asked_for() {
    let upstream = Upstream::answering(OK);
    let proved = |most: &str| {
        let gateway =
            gateway(&one_route(upstream.address)).set("http3_max_unproven_handshakes", most).start();
        let (mut client, said) = Client::with(gateway.proxy_quic(), &json!({}));
        assert_eq!(client.get("/").text(), "hi");
        (said["proved"].as_u64(), gateway.acted("unproven_handshakes") > 0)
    };
    assert_eq!((proved("0"), proved("100")), ((Some(1), true), (Some(0), false)));
}

#[test]
fn only_http3_is_spoken_there() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&one_route(upstream.address)).start();
    let (_, said) = Client::with(gateway.proxy_quic(), &json!({"alpn": ["hq-interop"]}));
    // A TLS alert: no_application_protocol.
    assert!(said["refused"].is_string() || said["closed"] == 0x178, "{said}");
    assert_eq!(Client::connect(gateway.proxy_quic()).get("/").text(), "hi");
}

#[test]
fn the_last_request_of_a_connection_is_told_so() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&one_route(upstream.address)).set("keepalive_requests", "3").start();
    let mut client = Client::connect(gateway.proxy_quic());
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "hi");
    }
    assert_eq!(client.event("goaway", |_| true)["goaway"], 12);
    assert_eq!(client.closed(), NO_ERROR);
}

#[test]
fn an_idle_connection_is_closed_and_one_with_requests_is_not() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::start(move |mut peer, _| {
        while peer.request().is_some() {
            let () = wait.lock().unwrap().recv().unwrap();
            peer.send(OK);
        }
    });
    let settings =
        [("keepalive_timeout", "1s"), ("client_header_timeout", "5s"), ("http3_idle_timeout", "4s")];
    let builder = gateway(&one_route(upstream.address));
    let gateway = settings.iter().fold(builder, |builder, (key, value)| builder.set(key, value)).start();
    let mut busy = Client::connect(gateway.proxy_quic());
    busy.ask("a", ("GET", "/"), &json!({}));
    // Twice as long as a client may be silent that answers nothing.
    for _ in 0..2 {
        let mut idle = Client::connect(gateway.proxy_quic());
        assert_eq!(idle.closed(), NO_ERROR);
    }
    go.send(()).unwrap();
    assert_eq!(busy.response("a").text(), "hi");
    assert_eq!(busy.closed(), NO_ERROR);
}

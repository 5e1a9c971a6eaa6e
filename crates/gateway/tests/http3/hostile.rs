//! Clients that break rules: what they are told, and that nobody else notices.
use super::client::Client;
use super::{OK, gateway};
use crate::harness::{Gateway, Upstream, eventually, one_route};
use serde_json::{Value, json};

const EXCESSIVE_LOAD: u64 = 0x107;
const REQUEST_REJECTED: u64 = 0x10b;
const MESSAGE_ERROR: u64 = 0x10e;

/// HEADERS of a GET of `/` from `a`, by the static table of QPACK and one literal.
const GET: &str = "01080000d1d7c1500161";

/// Fields of a head that are replaced, or left out.
type Changes<'c> = &'c [(&'c str, Option<&'c str>)];

fn running() -> (Upstream, Gateway) {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&one_route(upstream.address)).set("log_level", "debug").start();
    (upstream, gateway)
}

fn raw(client: &mut Client, hex: &str, more: &Value) {
    let mut command = json!({"do": "ask", "name": "raw", "raw": hex});
    if let Some(end) = more.get("end") {
        command["end"] = end.clone();
    }
    client.send(&command);
}

#[test]
fn malformed_heads_are_refused_one_by_one() {
    let (_upstream, gateway) = running();
    let mut client = Client::connect(gateway.proxy_quic());
    let head = |changed: Changes<'_>| {
        let mut fields =
            vec![[":method", "GET"], [":scheme", "https"], [":authority", "localhost"], [":path", "/"]];
        for (name, value) in changed {
            fields.retain(|field| field[0] != *name);
            fields.extend(value.map(|value| [*name, value]));
        }
        json!(fields)
    };
    let broken_off: [Changes<'_>; 9] = [
        &[(":path", None)],
        &[(":method", None)],
        &[(":scheme", None)],
        &[(":authority", None)],
        &[(":path", Some(""))],
        &[(":nonsense", Some("1"))],
        &[("X-Upper", Some("1"))],
        &[("x-control", Some("a\nb"))],
        &[(":method", Some("CONNECT")), (":protocol", Some("websocket"))],
    ];
    for changed in broken_off {
        let said = client.ask_with("a", head(changed), &json!({})).response("a");
        assert_eq!(said.reset(), Some(MESSAGE_ERROR), "{changed:?} {said:?}");
    }
    let answered: [(Changes<'_>, u16); 6] = [
        (&[("connection", Some("close"))], 400),
        (&[("transfer-encoding", Some("chunked"))], 400),
        (&[("upgrade", Some("websocket"))], 400),
        (&[("te", Some("gzip"))], 400),
        (&[(":scheme", None), (":path", None)], 400),
        (
            &[(":method", Some("CONNECT")), (":authority", Some("a:1")), (":scheme", None), (":path", None)],
            405,
        ),
    ];
    for (changed, status) in answered {
        let said = client.ask_with("a", head(changed), &json!({})).response("a");
        assert_eq!((said.status(), said.field("alt-svc")), (status, None), "{changed:?} {said:?}");
    }
    assert_eq!(client.get("/").text(), "hi");
    let lines = gateway.log().matches("a request over HTTP/3 was refused").count();
    assert_eq!(lines, broken_off.len());
}

#[test]
fn heads_have_limits() {
    let (_upstream, gateway) = running();
    let mut client = Client::connect(gateway.proxy_quic());
    let with = |fields: usize| {
        let fields: Vec<_> = (0..fields).map(|n| json!([format!("x{n}"), "a".repeat(8_000)])).collect();
        json!({"add": fields})
    };
    assert_eq!(client.ask("a", ("GET", "/"), &with(5)).response("a").status(), 200);
    assert_eq!(client.ask("b", ("GET", "/"), &with(9)).response("b").status(), 431);
    // Far more than that is refused as soon as it is announced.
    raw(&mut client, "0180030d4000", &json!({"end": false}));
    assert_eq!(client.response("raw").reset(), Some(EXCESSIVE_LOAD));
    let many: Vec<_> = (0..1001).map(|n| json!([format!("x{n}"), "1"])).collect();
    assert_eq!(client.ask("d", ("GET", "/"), &json!({"add": many})).response("d").status(), 431);
    assert_eq!(client.get("/").text(), "hi");
    eventually("they are counted", || gateway.acted("head_size") == 3);
}

#[test]
fn heads_of_one_connection_have_a_limit_together() {
    let upstream = Upstream::answering(OK);
    let gateway =
        gateway(&one_route(upstream.address)).set("http3_connection_header_list_size", "64k").start();
    let mut client = Client::connect(gateway.proxy_quic());
    let fields: Vec<_> = (0..5).map(|n| json!([format!("x{n}"), "a".repeat(8_000)])).collect();
    let large = json!({"add": fields, "open": true});
    // One is held until its body comes, and the other refused. Large heads come in pieces, so that either may be whole first.
    client.ask("a", ("POST", "/"), &large).ask("b", ("POST", "/"), &large);
    let refused = client.first_response(&["a", "b"]);
    assert_eq!(refused.reset(), Some(REQUEST_REJECTED), "{refused:?}");
    assert_eq!(gateway.acted("heads_size"), 1);
    assert_eq!(client.get("/").text(), "hi");
}

#[test]
fn frames_that_mean_nothing_are_ignored() {
    let (_upstream, gateway) = running();
    let mut client = Client::connect(gateway.proxy_quic());
    // Of an unknown type, before and behind the head, and an empty DATA.
    for frames in [format!("2103000000{GET}"), format!("{GET}40680400000000"), format!("{GET}0000")] {
        raw(&mut client, &frames, &json!({}));
        assert_eq!(client.response("raw").text(), "hi", "{frames}");
    }
}

#[test]
fn what_breaks_the_framing_ends_that_connection_alone() {
    let (_upstream, gateway) = running();
    let mut other = Client::connect(gateway.proxy_quic());
    let cases = [
        // A body before the head; SETTINGS among requests; a frame that is cut off; a body that is; QPACK's dynamic table.
        ("000161".to_owned(), 0x105),
        ("0400".to_owned(), 0x105),
        ("010800".to_owned(), 0x106),
        (format!("{GET}000561"), 0x106),
        ("0103020080".to_owned(), 0x200),
    ];
    for (frames, code) in cases {
        let mut client = Client::connect(gateway.proxy_quic());
        raw(&mut client, &frames, &json!({}));
        assert_eq!(client.closed(), code, "{frames}");
        assert_eq!(other.get("/").text(), "hi");
    }
    let lines = || gateway.log().matches("a connection over HTTP/3 ended").count();
    eventually("a line for each", || lines() >= 5);
}

#[test]
fn streams_of_one_direction_are_few_and_one_controls() {
    let (_upstream, gateway) = running();
    let mut client = Client::connect(gateway.proxy_quic());
    // The types that HTTP/3 reserves are ignored; a second control stream is an error.
    client.send(&json!({"do": "one_way", "raw": "2100"}));
    assert_eq!(client.get("/").text(), "hi");
    client.send(&json!({"do": "one_way", "raw": "000400"}));
    assert_eq!(client.closed(), 0x103);
}

#[test]
fn a_long_frame_on_the_control_stream_is_not_held() {
    let (_upstream, gateway) = running();
    let mut client = Client::connect(gateway.proxy_quic());
    // GOAWAY, as long as a number can say.
    client.send(&json!({"do": "control", "raw": "07ffffffffffffffff"}));
    assert_eq!(client.closed(), EXCESSIVE_LOAD);
}

#[test]
fn who_takes_most_requests_back_is_closed() {
    let upstream = Upstream::start(|mut peer, _| while peer.request().is_some() {});
    // No other end comes soon enough.
    let settings = [("http3_max_resets", "10"), ("client_header_timeout", "1h"), ("keepalive_timeout", "1h")];
    let builder = gateway(&one_route(upstream.address));
    let gateway = settings.iter().fold(builder, |builder, (key, value)| builder.set(key, value)).start();
    let mut client = Client::connect(gateway.proxy_quic());
    for number in 0..20 {
        let name = number.to_string();
        client.ask(&name, ("GET", "/"), &json!({})).send(&json!({"do": "cancel", "name": name}));
    }
    assert_eq!(client.closed(), EXCESSIVE_LOAD);
    eventually("it is counted", || gateway.acted("resets") == 1);
}

/// The client breaks a rule behind the head, so that the gateway resets the stream.
#[test]
fn a_client_most_of_whose_trailers_are_malformed_is_closed() {
    let upstream = Upstream::answering(OK);
    // No other end comes soon enough.
    let settings = [("http3_max_resets", "10"), ("client_header_timeout", "1h"), ("keepalive_timeout", "1h")];
    let builder = gateway(&one_route(upstream.address));
    let gateway = settings.iter().fold(builder, |builder, (key, value)| builder.set(key, value)).start();
    let mut client = Client::connect(gateway.proxy_quic());
    for number in 0..40 {
        client.ask(&number.to_string(), ("GET", "/"), &json!({"trailers": [[":path", "/"]]}));
    }
    assert_eq!(client.closed(), EXCESSIVE_LOAD);
}

#[test]
fn a_head_that_never_ends_is_given_up() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&one_route(upstream.address)).set("client_header_timeout", "4s").start();
    let mut client = Client::connect(gateway.proxy_quic());
    raw(&mut client, &GET[..10], &json!({"end": false}));
    assert_eq!(client.response("raw").reset(), Some(0x10d));
    assert_eq!(client.get("/").text(), "hi");
    assert_eq!(gateway.acted("head_time"), 1);
}

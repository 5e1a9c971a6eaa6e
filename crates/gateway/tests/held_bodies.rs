//! What the bodies that plugins read take of a node's memory: never more than `mem_bodies_size`, whoever sends them, and
//! nothing once their exchanges have ended, however they end.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::http2::{block_on, connect, start};
use crate::harness::{Gateway, Message, Peer, Upstream, document, eventually, service};
use bytes::Bytes;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

const MIB: usize = 1024 * 1024;

fn on_route(path: &str, plugin: &str) -> String {
    let name = path.trim_matches('/');
    format!("- {{route: r-{name}, {plugin}}}\n")
}

/// A service without plugins, and one for each way to read a body.
fn configuration(upstream: &Upstream) -> String {
    let plugins = [
        ("/changed", "name: request-transformer, config: {remove: {body: [secret]}}"),
        ("/signed", "name: hmac-auth, config: {validate_request_body: true}"),
        ("/keyed", "name: key-auth, config: {key_in_body: true}"),
        (
            "/cached",
            "name: proxy-cache, config: {strategy: memory, request_method: [GET, POST], content_type: [application/json]}",
        ),
        ("/answers", "name: response-transformer, config: {remove: {json: [secret]}}"),
        (
            "/both",
            "name: proxy-cache, config: {strategy: memory, request_method: [GET], content_type: [application/json]}",
        ),
        ("/both", "name: response-transformer, config: {remove: {json: [secret]}}"),
        ("/guarded", "name: key-auth"),
        ("/guarded", "name: request-transformer, config: {remove: {body: [secret]}}"),
    ];
    let paths = ["/plain", "/changed", "/signed", "/keyed", "/cached", "/answers", "/both", "/guarded"];
    let services = paths.map(|path| service(path, upstream.address, "", ""));
    let plugins: String = plugins.iter().map(|(path, plugin)| on_route(path, plugin)).collect();
    document(&services, &format!("plugins:\n{plugins}"))
}

/// Answers with as many bytes of JSON as `Give` asks for, and counts whom it answers.
fn upstream(asked: &Arc<AtomicUsize>) -> Upstream {
    let asked = asked.clone();
    Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            asked.fetch_add(1, Relaxed);
            let length: usize = request.header("give").map_or(0, |text| text.parse().unwrap());
            let body = format!("{{\"secret\":1,\"rest\":\"{}\"}}", "x".repeat(length));
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
        }
    })
}

fn start_gateway(upstream: &Upstream, most: &str, more: &[(&str, &str)]) -> Gateway {
    let builder = Gateway::builder(&configuration(upstream)).set("mem_bodies_size", most);
    more.iter().fold(builder, |builder, (key, value)| builder.set(key, value)).start()
}

fn metric(gateway: &Gateway, name: &str) -> usize {
    let text = gateway.status("/metrics");
    let line = text.text().lines().find(|line| line.starts_with(name)).expect(name);
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn held(gateway: &Gateway) -> usize {
    metric(gateway, "weir_held_body_bytes ")
}

fn refused(gateway: &Gateway) -> usize {
    metric(gateway, "weir_held_body_shortages_total{effect=\"refused\"}")
}

fn post(path: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
}

/// A request whose body is left unfinished after so many bytes.
fn unfinished(gateway: &Gateway, bytes: usize) -> Peer {
    let mut client = gateway.connect();
    client.send(post("/changed", 2 * bytes)).send(vec![b' '; bytes]);
    client
}

/// Leaves bodies unfinished until there is no room for another.
fn fill(gateway: &Gateway) -> Vec<Peer> {
    let (before, mut clients) = (refused(gateway), Vec::new());
    eventually("the memory is used up", || {
        clients.extend((0..8).map(|_| unfinished(gateway, 60_000)));
        refused(gateway) > before
    });
    clients
}

#[track_caller]
fn assert_refused(response: &Message, tells_to_retry: bool) {
    assert_eq!(response.status, 503, "{}", response.text());
    assert!(response.text().contains("body cannot be held now"), "{}", response.text());
    assert_eq!(response.header("retry-after").is_some(), tells_to_retry);
}

#[test]
fn unfinished_bodies_take_no_more_than_their_bound_and_others_go_on() {
    let asked = Arc::new(AtomicUsize::new(0));
    let upstream = upstream(&asked);
    let gateway = start_gateway(&upstream, "1m", &[]);
    for episode in 1..=2 {
        let clients = fill(&gateway);
        assert!(held(&gateway) > MIB / 2 && held(&gateway) <= MIB, "{} bytes", held(&gateway));
        asked.store(0, Relaxed);
        for path in ["/changed", "/signed", "/keyed"] {
            let response = gateway.connect().send(post(path, 200_000)).send(vec![b' '; 200_000]).response();
            assert_refused(&response, true);
        }
        assert_eq!(asked.load(Relaxed), 0, "the upstream gets nothing that no plugin has seen");
        let mut client = gateway.connect();
        for path in ["/plain", "/cached"] {
            let response = client.send(post(path, 200_000)).send(vec![b' '; 200_000]).response();
            assert_eq!(response.status, 200, "{path}: {}", response.text());
            let cached = (path == "/cached").then_some("Bypass");
            assert_eq!(response.header("x-cache-status"), cached);
        }
        assert!(metric(&gateway, "weir_held_body_shortages_total{effect=\"passed\"}") >= episode);
        drop(clients);
        eventually("all of it is given back", || held(&gateway) == 0);
        assert_eq!(gateway.log().matches("take all of mem_bodies_size").count(), episode, "told once each");
        let response = gateway.connect().send(post("/changed", 13)).send("{\"secret\":\"\"}").response();
        assert_eq!(response.status, 200);
    }
}

#[test]
fn responses_that_plugins_replace_are_refused_where_there_is_no_room() {
    let upstream = upstream(&Arc::default());
    let gateway = start_gateway(&upstream, "2m", &[]);
    let get = |path: &str, give: usize| gateway.get_with(path, &format!("Give: {give}\r\n"));
    for path in ["/answers", "/both", "/both"] {
        let response = get(path, 600_000);
        assert_eq!(
            (response.status, response.body.len()),
            (200, "{\"rest\":\"\"}".len() + 600_000),
            "{path}"
        );
    }
    let clients = fill(&gateway);
    assert_refused(&get("/answers", 600_000), false);
    // What is kept is there, but not the memory to change it.
    assert_refused(&get("/both", 600_000), false);
    assert_eq!(get("/plain", 600_000).status, 200);
    drop(clients);
    eventually("all of it is given back", || held(&gateway) == 0);
    assert_eq!(get("/answers", 600_000).status, 200);
}

#[test]
fn a_body_that_comes_in_drops_is_not_held_for_ever() {
    let upstream = upstream(&Arc::default());
    let gateway = start_gateway(&upstream, "1m", &[("client_body_timeout", "1s")]);
    let mut client = gateway.connect();
    client.send(post("/changed", MIB)).send(" ");
    eventually("its memory is taken", || held(&gateway) > 0);
    let mut dripping = client.socket().try_clone().unwrap();
    let (goes_on, is_over) = mpsc::channel::<()>();
    let drops = thread::spawn(move || {
        while is_over.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout)
            && dripping.write_all(b" ").is_ok()
        {}
    });
    assert_eq!(client.response().status, 408);
    drop(goes_on);
    drops.join().unwrap();
    eventually("its memory is given back", || held(&gateway) == 0);
}

#[test]
fn strangers_are_refused_before_their_bodies_are_held() {
    let upstream = upstream(&Arc::default());
    let gateway = start_gateway(&upstream, "1m", &[]);
    // Nothing of the body is ever sent.
    assert_eq!(gateway.connect().send(post("/guarded", 100_000)).response().status, 401);
    assert_eq!(gateway.get("/changed").status, 200, "where there is no body, none is waited for");
}

/// Numbers that are the same in each run (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 27)) as usize % most
    }
}

/// One request, which ends in one of many ways.
fn disturb(gateway: &Gateway, numbers: &mut Numbers) {
    let paths = ["/changed", "/signed", "/keyed", "/cached", "/answers", "/both", "/plain"];
    let (path, length) = (paths[numbers.below(paths.len())], numbers.below(150_000));
    let give = numbers.below(300_000);
    let mut client = gateway.connect();
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nGive: {give}\r\n");
    if numbers.below(2) == 0 {
        client.send(format!("{head}Content-Length: {length}\r\n\r\n"));
    } else {
        client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n"));
    }
    let sent = if numbers.below(2) == 0 { length } else { numbers.below(length + 1) };
    client.send(vec![b'x'; sent]);
    match numbers.below(4) {
        0 => drop(client),
        1 => client.reset(),
        2 => drop(client.finish_sending().rest()),
        _ => drop(client.send("\r\n0\r\n\r\n").finish_sending().head()),
    }
}

/// Streams that their client takes back at any point.
fn disturb_over_http2(gateway: &Gateway, numbers: &mut Numbers) {
    block_on(async {
        let (requests, connection) = connect(gateway.proxy()).await;
        for _ in 0..8 {
            let request = http::Request::post("http://localhost/changed").body(()).unwrap();
            let Ok((response, mut body)) = start(&requests, request, false).await else { break };
            // A stream may be answered, and reset, before that.
            let _ = body.send_data(Bytes::from(vec![b'x'; numbers.below(8_000)]), false);
            match numbers.below(3) {
                0 => body.send_reset(h2::Reason::CANCEL),
                1 => drop(response),
                _ => {
                    let _ = body.send_data(Bytes::new(), true);
                    let _ = response.await;
                }
            }
        }
        connection.abort();
    });
}

#[test]
fn however_exchanges_end_nothing_stays_held() {
    let upstream = upstream(&Arc::default());
    let gateway = start_gateway(&upstream, "1m", &[("workers", "2")]);
    thread::scope(|scope| {
        for seed in 0..6 {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut numbers = Numbers(seed);
                for round in 0..40 {
                    disturb(gateway, &mut numbers);
                    if round % 8 == 0 {
                        disturb_over_http2(gateway, &mut numbers);
                    }
                    assert!(held(gateway) <= MIB + MIB / 2, "what plugins make is there beside");
                }
            });
        }
    });
    eventually("all of it is given back", || held(&gateway) == 0);
    let response = gateway.connect().send(post("/changed", 13)).send("{\"secret\":\"\"}").response();
    assert_eq!(response.status, 200);
}

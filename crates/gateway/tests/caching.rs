//! Kept responses where one request is not enough to tell: herds, reloads, the Admin API, and what is too much.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{
    Gateway, Message, PATIENCE, Peer, RedisServer, Upstream, document, eventually, service,
};
use rustix::process::Signal;
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

const CACHED: &str = "plugins: [{name: proxy-cache, config: {strategy: memory}}]";
const TEXT: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi";

/// The status of the cache, and the body.
fn get(client: &mut Peer, path: &str) -> (String, String) {
    let response = client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).response();
    let status = response.header("x-cache-status").unwrap_or_default().to_owned();
    (status, response.text().to_owned())
}

/// An upstream that counts its requests, and answers the first as it is told, once it is told to.
fn counting(first: &'static str) -> (Upstream, Arc<AtomicUsize>, mpsc::Sender<()>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let (answer, may_answer) = mpsc::channel::<()>();
    let (counted, may_answer) = (asked.clone(), Mutex::new(may_answer));
    let upstream = Upstream::start(move |mut peer, _| {
        while peer.request().is_some() {
            if counted.fetch_add(1, SeqCst) == 0 {
                let _ = may_answer.lock().unwrap().recv_timeout(PATIENCE);
                peer.send(first);
                if first.is_empty() {
                    return;
                }
            } else {
                peer.send(TEXT);
            }
        }
    });
    (upstream, asked, answer)
}

/// Whether bytes wait on a connection that this address has accepted.
fn has_unread(address: SocketAddr) -> bool {
    let port = format!(":{:04X}", address.port());
    let connections = fs::read_to_string("/proc/net/tcp").unwrap();
    connections.lines().skip(1).any(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let is_open = columns[1].ends_with(&port) && columns[3] == "01";
        is_open && !columns[4].ends_with(":00000000")
    })
}

/// Sends the same request on many connections, spread over workers, before the first is answered.
fn herd(first: &'static str) -> (Vec<(String, String)>, usize) {
    let (upstream, asked, answer) = counting(first);
    let services = [service("/", upstream.address, "retries: 0", CACHED)];
    let gateway = Gateway::builder(&document(&services, "")).set("workers", "4").start();
    let active = || gateway.status("/status").json()["server"]["connections_active"].as_u64().unwrap();
    let mut clients: Vec<_> = (0..16).map(|_| gateway.connect()).collect();
    eventually("all are accepted", || active() == 16);
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    eventually("the upstream is asked", || asked.load(SeqCst) > 0);
    eventually("all requests are read", || !has_unread(gateway.proxy()));
    // Time for those that do not wait to show it.
    thread::park_timeout(std::time::Duration::from_millis(300));
    assert_eq!(asked.load(SeqCst), 1, "the others wait");
    answer.send(()).unwrap();
    let answers = clients.iter_mut().map(|client| {
        let response = client.response();
        let status = response.header("x-cache-status").unwrap_or_default().to_owned();
        (format!("{} {status}", response.status), response.text().to_owned())
    });
    (answers.collect(), asked.load(SeqCst))
}

#[test]
fn one_of_a_herd_is_passed_on() {
    let (answers, asked) = herd(TEXT);
    let of = |status: &str| answers.iter().filter(|answer| answer.0 == status && answer.1 == "hi").count();
    assert_eq!((of("200 Miss"), of("200 Hit"), asked), (1, 15, 1), "{answers:?}");
}

#[test]
fn where_the_first_fails_another_is_passed_on() {
    let (answers, asked) = herd("");
    let of = |status: &str| answers.iter().filter(|answer| answer.0 == status).count();
    assert_eq!((of("502 Miss"), of("200 Miss"), of("200 Hit")), (1, 1, 14), "{answers:?}");
    assert_eq!(asked, 2, "one of them is passed on");
}

#[test]
fn where_the_first_is_not_kept_the_others_are_passed_on_and_nobody_waits_again() {
    let (answers, asked) = herd("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Type: text/html\r\n\r\nown");
    assert_eq!(answers.iter().filter(|answer| answer.1 == "own").count(), 1, "{answers:?}");
    assert!(answers.iter().all(|answer| answer.0.starts_with("200")) && asked > 1, "{answers:?}");
}

#[test]
fn what_is_kept_outlives_reloads_and_is_shown_and_removed_by_the_admin_api() {
    let upstream = Upstream::answering(TEXT);
    let configuration = document(&[service("/", upstream.address, "", CACHED)], "");
    let gateway = Gateway::start(&configuration);
    let mut client = gateway.connect();
    let hit = ("Hit".to_owned(), "hi".to_owned());
    assert_eq!(get(&mut client, "/").0, "Miss");
    let more = document(&[service("/", upstream.address, "", CACHED)], "tags: []\n");
    let changed = more.replace("tags: []\n", "consumers: [{username: alice}]\n");
    assert!(gateway.reload(&changed).status.success());
    assert_eq!(get(&mut client, "/"), hit);

    let response = client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response();
    let key = response.header("x-cache-key").unwrap().to_owned();
    let kept = gateway.admin(&format!("/proxy-cache/{key}"));
    assert_eq!((kept.status, &kept.json()["body"], &kept.json()["status"]), (200, &"hi".into(), &200.into()));
    assert_eq!(kept.json()["headers"]["Content-Type"], "text/plain");
    assert_eq!(kept.json()["headers"]["X-Cache-Key"], key);
    let plugins = gateway.admin("/plugins").json();
    let plugin = plugins["data"][0]["id"].as_str().unwrap();
    let by_plugin = format!("/proxy-cache/{plugin}/caches/{key}");
    assert_eq!(gateway.admin(&by_plugin).status, 200);
    assert_eq!(gateway.admin(&by_plugin.replace(plugin, "00000000-0000-4000-8000-000000000000")).status, 404);
    assert_eq!(gateway.admin("/proxy-cache/none").status, 404);

    let delete = |path: &str| {
        let mut admin = Peer::connect(gateway.admin_addresses()[0]);
        admin.send(format!("DELETE {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).response().status
    };
    // A client may have its response before it is kept.
    let kept = || eventually("it is kept", || gateway.admin(&by_plugin).status == 200);
    assert_eq!([delete(&by_plugin), delete(&by_plugin)], [204, 404]);
    assert_eq!(get(&mut client, "/").0, "Miss");
    kept();
    assert_eq!([delete(&format!("/proxy-cache/{key}")), delete("/proxy-cache/none")], [204, 404]);
    assert_eq!(get(&mut client, "/").0, "Miss");
    kept();
    assert_eq!([delete("/proxy-cache"), delete("/proxy-cache")], [204, 204]);
    assert_eq!(get(&mut client, "/").0, "Miss");
    assert_eq!(get(&mut client, "/"), hit);
}

#[test]
fn what_breaks_off_or_is_too_long_is_not_kept() {
    let upstream = Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n";
            if request.head.start.contains("/cut") {
                peer.send(format!("{head}Content-Length: 5\r\n\r\nhi"));
                return;
            }
            let piece = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
            peer.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n", piece.repeat(9)));
        }
    });
    let gateway = Gateway::start(&document(&[service("/", upstream.address, "", CACHED)], ""));
    for _ in 0..2 {
        gateway.connect().send("GET /cut HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").rest();
    }
    assert_eq!(upstream.connections(), 2, "each request was passed on");
    let mut client = gateway.connect();
    for _ in 0..2 {
        let (status, body) = get(&mut client, "/long");
        assert_eq!((status.as_str(), body.len()), ("Miss", 9 << 20));
    }
}

/// Sends a request, and returns the whole response.
fn send(client: &mut Peer, method: &str, target: &str, headers: &str) -> Message {
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n")).response_to(method)
}

fn delete(gateway: &Gateway, path: &str) -> u16 {
    let mut admin = Peer::connect(gateway.admin_addresses()[0]);
    admin.send(format!("DELETE {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).response().status
}

#[test]
fn a_stale_response_answers_while_it_is_revalidated_in_the_background() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (answer, may_answer) = mpsc::channel::<()>();
    let (seen, may_answer) = (asked.clone(), Mutex::new(may_answer));
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            let known = request.header("if-none-match").map(str::to_owned);
            seen.lock().unwrap().push(known.clone());
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n";
            if known.is_none() {
                peer.send(format!(
                    "{head}ETag: \"1\"\r\nCache-Control: max-age=0, stale-while-revalidate=60\r\n\r\nold"
                ));
                continue;
            }
            let _ = may_answer.lock().unwrap().recv_timeout(PATIENCE);
            peer.send(format!("{head}ETag: \"2\"\r\nCache-Control: max-age=60\r\n\r\nnew"));
        }
    });
    let cached = "plugins: [{name: proxy-cache, config: {strategy: memory, cache_control: true}}]";
    let gateway = Gateway::start(&document(&[service("/", upstream.address, "", cached)], ""));
    let mut client = gateway.connect();
    assert_eq!(get(&mut client, "/"), ("Miss".into(), "old".into()));
    eventually("it is stored", || get(&mut client, "/").0 == "Hit");
    eventually("the upstream is asked", || asked.lock().unwrap().len() == 2);
    assert_eq!(get(&mut client, "/"), ("Hit".into(), "old".into()), "no request waits for the upstream");
    assert_eq!(*asked.lock().unwrap(), [None, Some("\"1\"".to_owned())], "and it is asked once");
    answer.send(()).unwrap();
    eventually("the new one is stored", || get(&mut client, "/") == ("Hit".into(), "new".into()));
    assert_eq!(asked.lock().unwrap().len(), 2);
}

/// An upstream whose responses are tagged by the path, and the gateway's configuration for it.
fn tagging(config: &str) -> (Upstream, String) {
    let upstream = Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            let tag = if request.head.start.contains("/odd") { "odd" } else { "even" };
            let tag = format!("Surrogate-Key: all {tag}\r\nCache-Tag: {tag}-too\r\n");
            let vary = if request.head.start.contains("/vary") { "Vary: X-A\r\n" } else { "" };
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\n";
            let by = request.header("x-a").unwrap_or("none");
            peer.send(format!("{head}{tag}{vary}X-Own: \u{e4}\r\nContent-Length: {}\r\n\r\n{by}", by.len()));
        }
    });
    let cached = format!("plugins: [{{name: proxy-cache, config: {{cache_control: true, {config}}}}}]");
    let configuration = document(&[service("/", upstream.address, "", &cached)], "");
    (upstream, configuration)
}

/// Whether these are cached, which they are from now on.
fn cached(gateway: &Gateway, paths: [&str; 3]) -> [bool; 3] {
    let mut client = gateway.connect();
    let is_cached = paths.map(|path| get(&mut client, path).0 == "Hit");
    eventually("they are stored", || paths.iter().all(|path| get(&mut client, path).0 == "Hit"));
    is_cached
}

#[test]
fn responses_are_purged_by_tag_and_by_the_beginning_of_their_path() {
    let (_upstream, configuration) = tagging("strategy: memory");
    let gateway = Gateway::start(&configuration);
    let paths = ["/odd/1", "/odd/2", "/even/1"];
    assert_eq!(cached(&gateway, paths), [false; 3]);
    for (query, expected) in [
        ("tag=odd", [false, false, true]),
        ("tag=odd-too", [false, false, true]),
        ("tag=all", [false; 3]),
        ("tag=other", [true; 3]),
        ("prefix=/odd/1", [false, true, true]),
        ("prefix=%2Fodd", [false, false, true]),
        ("tag=odd&prefix=/odd/2", [true, false, true]),
        ("tag=even&prefix=/odd/2", [true; 3]),
    ] {
        assert_eq!(delete(&gateway, &format!("/proxy-cache?{query}")), 204);
        assert_eq!(cached(&gateway, paths), expected, "{query}");
    }
    for query in ["prefx=/odd", "tag=", "prefix=", "prefix=odd"] {
        assert_eq!(delete(&gateway, &format!("/proxy-cache?{query}")), 400, "{query}");
        assert_eq!(cached(&gateway, paths), [true; 3], "{query}");
    }
}

#[test]
fn what_cannot_be_stored_is_not_read_to_its_end_in_the_background() {
    let (report, ended) = mpsc::channel();
    let report = Mutex::new(report);
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n";
            if request.header("if-none-match").is_none() {
                peer.send(format!(
                    "{head}ETag: \"1\"\r\nContent-Length: 2\r\n\
                     Cache-Control: max-age=0, stale-while-revalidate=60\r\n\r\nhi"
                ));
                continue;
            }
            peer.send(format!("{head}Cache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\r\n"));
            let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
            let sent = (0..1000).take_while(|_| peer.try_send(chunk.as_bytes()).is_ok()).count();
            report.lock().unwrap().send(sent).unwrap();
        }
    });
    let cached = "plugins: [{name: proxy-cache, config: {strategy: memory, cache_control: true}}]";
    let gateway = Gateway::start(&document(&[service("/", upstream.address, "", cached)], ""));
    let mut client = gateway.connect();
    assert_eq!(get(&mut client, "/").0, "Miss");
    eventually("it is stored", || get(&mut client, "/").0 == "Hit");
    let sent = ended.recv_timeout(PATIENCE).expect("the upstream is asked");
    assert!(sent < 1000, "the gateway has read all of what it does not store");
}

#[test]
fn nodes_share_what_they_store_in_redis() {
    let redis = RedisServer::start();
    let config = format!("strategy: redis, redis: {{host: 127.0.0.1, port: {}}}", redis.port);
    let (_upstream, configuration) = tagging(&config);
    let nodes = [(); 2].map(|()| Gateway::start(&configuration));
    let mut clients = nodes.each_ref().map(Gateway::connect);
    for variant in ["1", "2"] {
        let header = format!("X-A: {variant}\r\n");
        assert_eq!(send(&mut clients[0], "GET", "/vary", &header).header("x-cache-status"), Some("Miss"));
        let mut last = None;
        eventually("the other node has it", || {
            let response = send(&mut clients[1], "GET", "/vary", &header);
            let is_hit = response.header("x-cache-status") == Some("Hit");
            last = Some(response);
            is_hit
        });
        let response = last.unwrap();
        let found = (response.text(), response.header("x-own"), response.header("age").is_some());
        assert_eq!(found, (variant, Some("\u{e4}"), true));
    }
    let paths = ["/odd/1", "/odd/2", "/even/1"];
    cached(&nodes[0], paths);
    for (query, expected) in [
        ("?tag=odd", [false, false, true]),
        ("?prefix=/odd/1", [false, true, true]),
        ("?tag=odd&prefix=/odd/2", [true, false, true]),
        ("", [false; 3]),
    ] {
        let before = redis.keys().len();
        assert_eq!(delete(&nodes[1], &format!("/proxy-cache{query}")), 204);
        eventually("they are removed", || redis.keys().len() < before);
        eventually("all of them are", || {
            let mut client = nodes[0].connect();
            let header = "Cache-Control: only-if-cached\r\n";
            let is_there = paths.map(|path| send(&mut client, "GET", path, header).status == 200);
            is_there == expected
        });
        cached(&nodes[0], paths);
    }
    assert_eq!(send(&mut clients[0], "PUT", "/odd/1", "Content-Length: 0\r\n").status, 200);
    eventually("a change reaches all nodes", || {
        send(&mut clients[1], "GET", "/odd/1", "Cache-Control: only-if-cached\r\n").status == 504
    });
    let all = "GET, SET and the like have all keys begin alike";
    assert!(redis.keys().iter().all(|key| key.starts_with("proxy-cache:")), "{all}");
}

#[test]
fn while_redis_does_not_answer_requests_go_on_without_the_cache() {
    let redis = RedisServer::start();
    let config = format!("strategy: redis, redis: {{host: 127.0.0.1, port: {}, timeout: 1000}}", redis.port);
    let (_upstream, configuration) = tagging(&config);
    let gateway = Gateway::start(&configuration);
    assert_eq!(cached(&gateway, ["/odd/1", "/odd/2", "/even/1"]), [false; 3]);
    redis.signal(Signal::STOP);
    let mut client = gateway.connect();
    for _ in 0..5 {
        assert_eq!(get(&mut client, "/odd/1"), ("Miss".into(), "none".into()));
    }
    eventually("it is logged", || {
        gateway.log().contains("until it answers, requests go on without the cache")
    });
    assert_eq!(send(&mut client, "PUT", "/odd/1", "Content-Length: 0\r\n").status, 200);
    assert_eq!(delete(&gateway, "/proxy-cache?tag=even"), 204);
    redis.signal(Signal::CONT);
    let cached =
        |path| send(&mut gateway.connect(), "GET", path, "Cache-Control: only-if-cached\r\n").status == 200;
    eventually("the cache is used again", || cached("/odd/2"));
    assert!(!cached("/odd/1"), "what a request has made invalid meanwhile is not served");
    assert!(!cached("/even/1"), "nor what was purged meanwhile");
}

#[test]
fn a_purge_that_redis_refuses_is_given_up() {
    let redis = RedisServer::start();
    let config = format!("strategy: redis, redis: {{host: 127.0.0.1, port: {}}}", redis.port);
    let (_upstream, configuration) = tagging(&config);
    let gateway = Gateway::start(&configuration);
    assert_eq!(cached(&gateway, ["/odd/1", "/odd/2", "/even/1"]), [false; 3]);
    redis.ask(&["acl", "setuser", "default", "-scan"]);
    assert_eq!(delete(&gateway, "/proxy-cache"), 204);
    eventually("the log says what is missing", || gateway.log().contains("'scan'"));
    let is_there =
        || send(&mut gateway.connect(), "GET", "/odd/1", "Cache-Control: only-if-cached\r\n").status == 200;
    assert!(!is_there(), "the cache is off before the purge is made");
    eventually("the purge is given up", || gateway.log().contains("1 purges are given up"));
    eventually("the cache is used again", is_there);
}

#[test]
fn purges_outlast_a_change_of_settings() {
    let redis = RedisServer::start();
    let config = |timeout| {
        format!("strategy: redis, redis: {{host: 127.0.0.1, port: {}, timeout: {timeout}}}", redis.port)
    };
    let (_upstream, configuration) = tagging(&config(1000));
    let gateway = Gateway::start(&configuration);
    assert_eq!(cached(&gateway, ["/odd/1", "/odd/2", "/even/1"]), [false; 3]);
    redis.signal(Signal::STOP);
    assert_eq!(delete(&gateway, "/proxy-cache?tag=odd"), 204);
    eventually("it is logged", || gateway.log().contains("until it answers"));
    gateway.reload(&configuration.replace("timeout: 1000", "timeout: 2000"));
    redis.signal(Signal::CONT);
    let is_there =
        |path| send(&mut gateway.connect(), "GET", path, "Cache-Control: only-if-cached\r\n").status == 200;
    eventually("the cache is used again", || is_there("/even/1"));
    assert!(!is_there("/odd/1") && !is_there("/odd/2"), "what was purged before is not served");
}

/// An upstream whose responses to PUT arrive when the test says so.
fn slow_to_change() -> (Upstream, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let ((arrived, arrival), (answer, may_answer)) = (mpsc::channel(), mpsc::channel::<()>());
    let channels = Mutex::new((arrived, may_answer));
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            if request.head.start.starts_with("PUT") {
                let (arrived, may_answer) = &*channels.lock().unwrap();
                arrived.send(()).unwrap();
                let _ = may_answer.recv_timeout(PATIENCE);
            }
            peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nhi");
        }
    });
    (upstream, arrival, answer)
}

#[test]
fn a_request_that_began_with_other_settings_makes_responses_invalid() {
    let redis = RedisServer::start();
    let (upstream, arrival, answer) = slow_to_change();
    let configuration = |timeout| {
        let port = redis.port;
        let redis = format!("redis: {{host: 127.0.0.1, port: {port}, timeout: {timeout}}}");
        let config = format!("strategy: redis, cache_control: true, {redis}");
        let cached = format!("plugins: [{{name: proxy-cache, config: {{{config}}}}}]");
        document(&[service("/", upstream.address, "", &cached)], "")
    };
    let gateway = Gateway::start(&configuration(1000));
    assert_eq!(cached(&gateway, ["/1", "/2", "/3"]), [false; 3]);
    let mut client = gateway.connect();
    client.send("PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    arrival.recv_timeout(PATIENCE).expect("the upstream is asked");
    redis.signal(Signal::STOP);
    gateway.reload(&configuration(2000));
    answer.send(()).unwrap();
    assert_eq!(client.response().status, 200);
    let failures = || gateway.log().matches("until it answers, requests go on").count();
    eventually("the old cache and the new one miss the purge", || failures() == 2);
    redis.signal(Signal::CONT);
    let is_there =
        |path| send(&mut gateway.connect(), "GET", path, "Cache-Control: only-if-cached\r\n").status == 200;
    eventually("the cache is used again", || is_there("/2"));
    assert!(!is_there("/1"), "what the request has changed is not served");
}

#[test]
fn purges_wait_for_a_server_that_no_plugin_uses_meanwhile() {
    let redis = RedisServer::start();
    let shared = format!("strategy: redis, redis: {{host: 127.0.0.1, port: {}, timeout: 1000}}", redis.port);
    let (_upstream, configuration) = tagging(&shared);
    let gateway = Gateway::start(&configuration);
    assert_eq!(cached(&gateway, ["/odd/1", "/odd/2", "/even/1"]), [false; 3]);
    redis.signal(Signal::STOP);
    assert_eq!(delete(&gateway, "/proxy-cache?tag=odd"), 204);
    eventually("it is logged", || gateway.log().contains("until it answers"));
    gateway.reload(&configuration.replace(&shared, "strategy: memory"));
    // Time for the cache that no plugin uses to end.
    thread::park_timeout(std::time::Duration::from_millis(2500));
    gateway.reload(&configuration);
    redis.signal(Signal::CONT);
    let is_there =
        |path| send(&mut gateway.connect(), "GET", path, "Cache-Control: only-if-cached\r\n").status == 200;
    eventually("the cache is used again", || is_there("/even/1"));
    assert!(!is_there("/odd/1") && !is_there("/odd/2"), "what was purged before is not served");
}

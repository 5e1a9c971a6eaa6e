//! Requests that analytics keep in full: which they are, what is known of each, and watching them as they end.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Peer, Upstream, closed_port, document, eventually, service};
use serde_json::{Value, json};
use std::io::BufRead;
use std::thread;

const HI: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const CONSUMERS: &str = "consumers:\n- {username: alice, keyauth_credentials: [{key: canary-key}]}\n";
const CANARY: &str = "canary";

fn get(gateway: &Gateway, path: &str) -> Value {
    let answer = gateway.admin(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// The requests that a query gives, newest first.
fn requests(gateway: &Gateway, query: &str) -> Vec<Value> {
    get(gateway, &format!("/analytics/requests?limit=100&{query}"))["data"].as_array().unwrap().clone()
}

/// Waits until so many requests are kept that a query gives.
#[track_caller]
fn kept(gateway: &Gateway, query: &str, count: usize) -> Vec<Value> {
    eventually(query, || requests(gateway, query).len() >= count);
    let requests = requests(gateway, query);
    assert_eq!(requests.len(), count, "{query}: {requests:?}");
    requests
}

fn paths(requests: &[Value]) -> Vec<&str> {
    requests.iter().map(|request| request["path"].as_str().unwrap()).collect()
}

/// Who listens to requests as they end. The lines of the body come as they are sent, because HTTP/1.0 has no chunks.
struct Listener(Peer);

impl Listener {
    fn of(gateway: &Gateway, query: &str, headers: &str) -> Listener {
        let mut peer = Peer::connect(gateway.admin_addresses()[0]);
        let path = format!("/analytics/requests/tail?{query}");
        let head =
            peer.send(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n")).head().unwrap();
        assert!(head.start.contains(" 200 "), "{}", head.start);
        assert_eq!(head.field("content-type"), Some("text/event-stream"));
        let mut listener = Listener(peer);
        assert_eq!(listener.block(), ["retry: 1000"]);
        listener
    }

    /// The lines up to the next empty one.
    fn block(&mut self) -> Vec<String> {
        let lines = std::io::BufReader::with_capacity(1, self.0.reader()).lines();
        lines.map(|line| line.expect("another line")).take_while(|line| !line.is_empty()).collect()
    }

    /// Id, name and data of the next event; comments are passed over.
    fn event(&mut self) -> (String, String, Value) {
        loop {
            let block = self.block();
            let value = |name: &str| block.iter().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            if let (Some(id), Some(event), Some(data)) = (value("id: "), value("event: "), value("data: ")) {
                return (id, event, serde_json::from_str(&data).unwrap());
            }
        }
    }

    /// The ids and paths of the next events, which are requests.
    fn requests(&mut self, count: usize) -> Vec<(String, String)> {
        let request = |_| {
            let (id, event, data) = self.event();
            assert_eq!(event, "request", "{data}");
            assert_eq!(data["id"], json!(id));
            (id, data["path"].as_str().unwrap().to_owned())
        };
        (0..count).map(request).collect()
    }
}

#[test]
fn every_kind_of_error_is_a_group_with_a_sample() {
    let upstream = Upstream::answering(HI);
    let broken = Upstream::start(|mut peer, _| drop(peer.request()));
    let silent = Upstream::start(|mut peer, _| {
        peer.request();
        peer.rest();
    });
    let deny = "plugins: [{name: ip-restriction, config: {deny: [127.0.0.1]}}]";
    let limit = "plugins: [{name: rate-limiting, config: {minute: 1, policy: local}}]";
    let services = [
        service("/key", upstream.address, "", "plugins: [{name: key-auth}]"),
        service("/deny", upstream.address, "", deny),
        service("/limit", upstream.address, "", limit),
        service("/refused", closed_port(), "retries: 0", ""),
        service("/reset", broken.address, "retries: 0", ""),
        service("/silent", silent.address, "retries: 0, read_timeout: 50", ""),
    ];
    let gateway = Gateway::builder(&document(&services, "")).set("client_max_body_size", "1k").start();
    for path in ["/key", "/deny", "/limit", "/limit", "/refused", "/reset", "/silent", "/nowhere"] {
        gateway.get(path);
    }
    gateway.send("POST /limit HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n");
    let expected = [
        (401, "plugin key-auth"),
        (403, "plugin ip-restriction"),
        (404, "no_route"),
        (413, "body_too_large"),
        (429, "plugin rate-limiting"),
        (502, "connect"),
        (502, "reset"),
        (504, "timeout"),
    ];
    let groups = || {
        let answer = get(&gateway, "/analytics/errors");
        let mut groups = answer["data"].as_array().unwrap().clone();
        groups.sort_by_key(|group| (group["status"].as_u64(), group["cause"].to_string()));
        groups
    };
    eventually("all errors have samples", || {
        groups().iter().filter(|group| group["samples"][0].is_string()).count() == expected.len()
    });
    for (group, (status, cause)) in groups().iter().zip(expected) {
        assert_eq!((&group["status"], &group["cause"]), (&json!(status), &json!(cause)));
        let id = group["samples"][0].as_str().unwrap();
        let request = get(&gateway, &format!("/analytics/requests/{id}"));
        assert_eq!((&request["status"], &request["cause"]), (&json!(status), &json!(cause)));
        assert_eq!(request["reason"], "error");
    }
}

#[test]
fn a_request_is_shown_with_what_happened_on_its_way() {
    let upstream = Upstream::answering(
        "HTTP/1.1 503 Busy\r\nServer: s\r\nX-Inner: canary-3\r\nContent-Length: 0\r\n\r\n",
    );
    let gone = closed_port();
    let targets = format!(
        "upstreams:\n- name: pool\n  targets: [{{target: '{gone}'}}, {{target: '{}'}}]\n{CONSUMERS}",
        upstream.address
    );
    let services = [service("/a", "pool:80", "retries: 5", "plugins: [{name: key-auth}]")];
    let gateway = Gateway::start(&document(&services, &targets));
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let headers =
        format!("apikey: canary-key\r\nUser-Agent: t/1\r\ntraceparent: 00-{trace}-00f067aa0ba902b7-01\r\n");
    // One of two requests meets the target that is gone first.
    gateway.get_with("/a/b?x=1", &headers);
    gateway.get_with("/a/b?x=1", &headers);
    let listed = kept(&gateway, "class=5xx", 2);
    let request = listed.iter().max_by_key(|request| request["tries"].as_u64()).unwrap();
    let id = request["id"].as_str().unwrap();
    let full = get(&gateway, &format!("/analytics/requests/{id}"));
    for (name, value) in request.as_object().unwrap() {
        assert_eq!(full[name], *value, "{name}");
    }
    for (name, expected) in [
        ("method", json!("GET")),
        ("path", json!("/a/b?x=<1 bytes>")),
        ("host", json!("localhost")),
        ("scheme", json!("http")),
        ("protocol", json!("http1")),
        ("client_ip", json!("127.0.0.1")),
        ("origin", json!("upstream")),
        ("cause", json!("response")),
        ("upstream", json!(upstream.address.to_string())),
        ("tries", json!(2)),
        ("trace_id", json!(trace)),
        ("user_agent", json!("t/1")),
    ] {
        assert_eq!(full[name], expected, "{name}: {full}");
    }
    for (kind, name) in [("route", "r-a"), ("service", "s-a"), ("consumer", "alice")] {
        assert_eq!(full[kind]["name"], json!(name));
    }
    let failure = &full["failures"][0];
    assert_eq!((&failure["address"], &failure["status"]), (&json!(gone.to_string()), &json!(502)));
    let us = |name: &str| full["us"][name].as_u64().unwrap();
    assert_eq!(us("gateway") + us("connect") + us("wait") + us("body"), us("total"));
    assert!(us("connect") > 0 && us("total") > 0, "{}", full["us"]);
    let header = |side: &str, name: &str| {
        let all = full[side].as_array().unwrap();
        let found = all.iter().find(|it| it["name"].as_str().unwrap().eq_ignore_ascii_case(name));
        found.map(|it| it["value"].as_str().unwrap().to_owned())
    };
    assert_eq!(header("response_headers", "server").as_deref(), Some("s"));
    assert_eq!(header("response_headers", "x-inner").as_deref(), Some("<8 bytes>"));
    assert_eq!(header("request_headers", "apikey").as_deref(), Some("<10 bytes>"));
    let by_id = get(&gateway, &format!("/analytics/requests/{}", full["request_id"].as_str().unwrap()));
    assert_eq!(by_id["id"], full["id"]);
    assert_eq!(gateway.admin("/analytics/requests/1").status, 404);
}

#[test]
fn secrets_are_in_no_answer() {
    let upstream = Upstream::answering(
        "HTTP/1.1 500 Oops\r\nSet-Cookie: s=canary-1\r\nX-Token: canary-2\r\nContent-Length: 8\r\n\r\ncanary-9",
    );
    let key = "plugins: [{name: key-auth, config: {key_in_query: true, key_names: [secret, apikey]}}]";
    let services = [service("/a", upstream.address, "", ""), service("/key", upstream.address, "", key)];
    let gateway = Gateway::builder(&document(&services, CONSUMERS))
        .set("analytics_sample_headers", "authorization, cookie, set-cookie, user-agent")
        .set("admin_gui_listen", "127.0.0.1:0")
        .start();
    let mut listener = Listener::of(&gateway, "", "");
    let headers =
        "Authorization: Basic canary-4\r\nCookie: a=canary-5\r\nX-Api-Key: canary-6\r\nCANARY: 1\r\n";
    gateway.get_with("/a?token=canary-7&canary-8", &headers.replace("CANARY", "X-Any"));
    gateway.get_with("/key?secret=canary-key", "");
    gateway.get_with("/key", "secret: canary-key\r\n");
    gateway.get_with("/key?apikey=canary-wrong", "");
    gateway.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\ncanary-10");
    let listed = kept(&gateway, "", 5);
    let mut texts: Vec<_> = (0..5).map(|_| listener.event().2.to_string()).collect();
    for request in &listed {
        let id = request["id"].as_str().unwrap();
        texts.push(gateway.admin(&format!("/analytics/requests/{id}")).text().to_owned());
        let page = Peer::connect(gateway.web_ui())
            .send(format!("GET /requests/{id} HTTP/1.1\r\nHost: a\r\n\r\n"))
            .response();
        assert_eq!(page.status, 200);
        texts.push(page.text().to_owned());
    }
    texts.push(gateway.admin("/analytics/requests?format=csv").text().to_owned());
    texts.push(gateway.admin("/analytics/errors").text().to_owned());
    for text in texts {
        assert!(!text.contains(CANARY), "{text}");
    }
}

#[test]
fn filters_and_pages() {
    let (upstream, missing) =
        (Upstream::answering(HI), Upstream::answering("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"));
    let services = [service("/a", missing.address, "", ""), service("/b", upstream.address, "", "")];
    let gateway = Gateway::start(&document(&services, ""));
    for number in 0..5 {
        gateway.get(&format!("/a/{number}"));
        gateway.get(&format!("/none/{number}"));
    }
    gateway.send("DELETE /a/9 HTTP/1.1\r\nHost: a\r\n\r\n");
    kept(&gateway, "", 11);
    for (query, count) in [
        ("route=r-a", 6),
        ("service=s-a&method=get", 5),
        ("service=s-b", 0),
        ("consumer=none", 11),
        ("method=DELETE", 1),
        ("path=/none/", 5),
        ("status=404", 11),
        ("class=5xx", 0),
        ("origin=gateway", 5),
        ("cause=no_route", 5),
        ("cause=plugin", 0),
        ("min_latency=1m", 0),
        ("min_latency=0ms", 11),
        ("from=-10m", 11),
        ("from=-20m&to=-10m", 0),
    ] {
        assert_eq!(requests(&gateway, query).len(), count, "{query}");
    }
    let by_address = format!("upstream={}", missing.address);
    assert_eq!(requests(&gateway, &by_address).len(), 6);
    let (mut cursor, mut seen) = (String::new(), Vec::new());
    loop {
        let page = get(&gateway, &format!("/analytics/requests?route=r-a&limit=4{cursor}"));
        assert_eq!((&page["sampled"], &page["dropped"]), (&json!(true), &json!(0)));
        seen.extend(page["data"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(paths(&seen), ["/a/9", "/a/4", "/a/3", "/a/2", "/a/1", "/a/0"]);
}

#[test]
fn what_cannot_be_answered_names_the_argument_and_its_choices() {
    let gateway = Gateway::start(&document(&[service("/a", closed_port(), "", "")], ""));
    let cases = [
        ("requests?status=many", 400, "status: `many` is not a status"),
        ("requests?class=6xx", 400, "class: there is no `6xx`; use one of 1xx"),
        ("requests?class=4xx&status=404", 400, "status, class: give one of them"),
        ("requests?min_latency=slow", 400, "min_latency: `slow` is not a time; write as in `250ms`"),
        ("requests?origin=moon", 400, "origin: there is no `moon`; use one of client, gateway, upstream"),
        ("requests?cause=no_rout", 400, "cause: there is no `no_rout`; did you mean `no_route`?"),
        ("requests?cursor=x", 400, "cursor: `x` is not a cursor; take it from `next`"),
        ("requests?limit=0", 400, "limit: `0`"),
        ("requests?colour=red", 400, "unknown argument `colour`; there are: route"),
        ("requests?format=xml", 400, "format: there is no `xml`; use csv or json"),
        ("requests?route=r-b", 404, "there is no route `r-b`; did you mean `r-a`?"),
        ("requests/tail?route=r-b", 404, "there is no route `r-b`"),
        ("requests/tail?after=x", 400, "after, Last-Event-ID: `x` is no id of an event"),
        ("requests/tail?limit=1", 400, "unknown argument `limit`"),
        (
            "requests/tail?max_per_second=0",
            400,
            "max_per_second: `0` is not a number of requests; write 1 to",
        ),
        ("requests/7?x=1", 400, "unknown argument `x`; it takes none"),
        ("requests/7", 404, "there is no request `7`: it was not sampled"),
    ];
    gateway.assert_admin_messages("/analytics/", &cases);
}

#[test]
fn requests_are_watched_in_order_and_from_where_one_left_off() {
    let upstream = Upstream::answering(HI);
    let gateway = Gateway::builder(&document(&[service("/a", upstream.address, "", "")], ""))
        .set("workers", "1")
        .start();
    let mut listener = Listener::of(&gateway, "", "");
    let ask = |numbers: std::ops::Range<u32>| {
        numbers.map(|number| gateway.get(&format!("/a/{number}")).status).for_each(drop);
    };
    let expected =
        |numbers: std::ops::Range<u32>| numbers.map(|number| format!("/a/{number}")).collect::<Vec<_>>();
    ask(0..30);
    let seen = listener.requests(30);
    let (ids, paths): (Vec<_>, Vec<_>) = seen.into_iter().unzip();
    assert_eq!(paths, expected(0..30));
    assert!(ids.is_sorted());
    let last = listener.requests(0).pop().map_or(ids[19].clone(), |(id, _)| id);
    drop(listener);
    let mut listener = Listener::of(&gateway, "", &format!("Last-Event-ID: {last}\r\n"));
    ask(30..35);
    let resumed: Vec<_> = listener.requests(15).into_iter().map(|(_, path)| path).collect();
    assert_eq!(resumed, expected(20..35), "each once");
    let mut late = Listener::of(&gateway, &format!("after={last}"), "");
    assert_eq!(late.requests(1)[0].1, "/a/20");
}

#[test]
fn a_listener_gets_so_many_a_second_and_the_number_of_the_others() {
    let upstream = Upstream::answering(HI);
    let gateway = Gateway::start(&document(&[service("/a", upstream.address, "", "")], ""));
    let mut listener = Listener::of(&gateway, "max_per_second=1", "");
    (0..100).for_each(|_| drop(gateway.get("/a")));
    let (mut sent, mut thinned) = (0, 0);
    while sent + thinned < 100 {
        let (_, event, data) = listener.event();
        match event.as_str() {
            "request" => sent += 1,
            _ => thinned += data["thinned"].as_u64().unwrap(),
        }
    }
    assert!(sent > 0 && thinned > 0 && sent + thinned == 100, "{sent} {thinned}");
}

#[test]
fn a_listener_may_filter_and_only_so_many_may_listen() {
    let upstream = Upstream::answering(HI);
    let services = [service("/a", upstream.address, "", ""), service("/b", upstream.address, "", "")];
    let mut gateway = Gateway::start(&document(&services, ""));
    let mut listeners: Vec<_> = (0..8).map(|_| Listener::of(&gateway, "route=r-b", "")).collect();
    let refused = gateway.admin("/analytics/requests/tail");
    assert_eq!(refused.status, 503, "{}", refused.text());
    gateway.get("/a");
    gateway.get("/b/1");
    gateway.get("/none");
    gateway.get("/b/2");
    for listener in &mut listeners {
        let paths: Vec<_> = listener.requests(2).into_iter().map(|(_, path)| path).collect();
        assert_eq!(paths, ["/b/1", "/b/2"]);
    }
    let mut last = listeners.pop().unwrap();
    drop(listeners);
    eventually("those who left make room", || {
        let mut peer = Peer::connect(gateway.admin_addresses()[0]);
        peer.send("GET /analytics/requests/tail HTTP/1.0\r\nHost: a\r\n\r\n")
            .head()
            .unwrap()
            .start
            .contains("200")
    });
    assert!(gateway.command("quit").status.success());
    assert!(gateway.exit().success());
    last.0.rest();
}

#[test]
fn the_plugins_of_a_watched_request_are_measured() {
    let upstream = Upstream::answering(HI);
    let plugin = "plugins: [{name: cors}, {name: correlation-id}]";
    let gateway = Gateway::start(&document(&[service("/a", upstream.address, "", plugin)], ""));
    let mut listener = Listener::of(&gateway, "", "");
    gateway.get("/a");
    let id = listener.requests(1).remove(0).0;
    let full = get(&gateway, &format!("/analytics/requests/{id}"));
    let names: Vec<_> = full["plugins"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert!(names.contains(&json!("cors")) && names.contains(&json!("correlation-id")), "{full}");
}

#[test]
fn errors_and_the_slowest_are_kept_while_nobody_watches() {
    let upstream = Upstream::answering(HI);
    let configuration = document(&[service("/a", upstream.address, "", "")], "");
    let gateway = Gateway::start(&configuration);
    let client = || (0..50).for_each(|_| drop(gateway.get("/a")));
    thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(client))));
    gateway.get("/none");
    kept(&gateway, "cause=no_route", 1);
    let slow = requests(&gateway, "route=r-a");
    assert!(!slow.is_empty() && slow.iter().all(|request| request["reason"] == "slow"), "{slow:?}");
    let none = Gateway::builder(&configuration).set("analytics_samples", "off").start();
    none.get("/none");
    for path in ["/analytics/requests", "/analytics/requests/tail", "/analytics/requests/1"] {
        let answer = none.admin(path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.text().contains("analytics_samples=errors"), "{}", answer.text());
    }
    eventually("it is counted all the same", || {
        get(&none, "/analytics/errors")["data"].as_array().is_some_and(|groups| groups.len() == 1)
    });
}

#[test]
fn tables_are_safe_to_open() {
    let gateway = Gateway::start(&document(&[service("/a", closed_port(), "retries: 0", "")], ""));
    gateway.get_with("/a/x,y", "User-Agent: =HYPERLINK(\"http://evil\")\r\n");
    kept(&gateway, "", 1);
    let csv = gateway.admin("/analytics/requests?format=csv");
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8; header=present"));
    assert!(csv.header("content-disposition").unwrap().contains("requests.csv"));
    let lines: Vec<_> = csv.text().split("\r\n").collect();
    assert!(lines[0].starts_with("id,at,reason,client_ip,method,"), "{}", lines[0]);
    assert!(
        lines[1].contains("\"/a/x,y\"") && lines[1].contains("\"'=HYPERLINK(\"\"http://evil\"\")\""),
        "{}",
        lines[1]
    );
    assert_eq!((lines.len(), lines[2]), (3, ""));
    for (path, head) in [
        ("series?by=class", "time,"),
        ("top?by=route&of=p95", "id,name,requests,errors,"),
        ("errors", "route_id,route,status,origin,cause,count,first,last\r\n"),
        ("changes", "at,revision,source,what\r\n"),
    ] {
        let mut peer = Peer::connect(gateway.admin_addresses()[0]);
        let request = format!("GET /analytics/{path} HTTP/1.1\r\nHost: a\r\nAccept: text/csv\r\n\r\n");
        let csv = peer.send(request).response();
        assert!(csv.status == 200 && csv.text().starts_with(head), "{path}: {}", csv.text());
        assert!(get(&gateway, &format!("/analytics/{path}")).is_object(), "JSON is the default");
    }
}

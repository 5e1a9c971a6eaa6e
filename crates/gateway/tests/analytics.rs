//! Analytics: every request is counted, by entity and by what it came to; the Admin API answers questions about it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Peer, Upstream, closed_port, curl, document, eventually, service};
use serde_json::{Value, json};

const HI: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const MISSING: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
const CONSUMERS: &str = "consumers:\n- {username: alice, keyauth_credentials: [{key: a}]}\n- {username: bob, keyauth_credentials: [{key: b}]}\n";

fn ask(gateway: &Gateway, times: usize, path: &str, headers: &str) {
    for _ in 0..times {
        gateway.get_with(path, headers);
    }
}

fn get(gateway: &Gateway, path: &str) -> Value {
    let answer = gateway.admin(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// The labels and sums of a chart's columns.
fn sums(gateway: &Gateway, query: &str) -> Vec<(String, f64)> {
    let chart = get(gateway, &format!("/analytics/series?{query}"));
    let columns = chart["columns"].as_array().unwrap().iter();
    let label = |column: &Value| {
        let named = column["name"].as_str().or(column["label"].as_str());
        named.unwrap().to_owned()
    };
    let sum = |column: &Value| column["values"].as_array().unwrap().iter().filter_map(Value::as_f64).sum();
    columns.map(|column| (label(column), sum(column))).collect()
}

fn sum(gateway: &Gateway, query: &str) -> f64 {
    sums(gateway, query).iter().map(|(_, sum)| sum).sum()
}

/// Waits until everything that was sent is counted.
fn counted(gateway: &Gateway, requests: f64) {
    eventually("all requests are counted", || sum(gateway, "") >= requests);
    assert_eq!(sum(gateway, ""), requests);
}

fn columns(expected: &[(&str, f64)]) -> Vec<(String, f64)> {
    expected.iter().map(|(label, sum)| ((*label).to_owned(), *sum)).collect()
}

#[test]
fn every_request_is_counted_by_route_service_consumer_and_status() {
    let (fine, missing) = (Upstream::answering(HI), Upstream::answering(MISSING));
    let services = [
        service("/a", fine.address, "", "plugins: [{name: key-auth}]"),
        service("/b", missing.address, "", ""),
    ];
    let gateway = Gateway::builder(&document(&services, CONSUMERS)).set("workers", "2").start();
    ask(&gateway, 7, "/a", "apikey: a\r\n");
    ask(&gateway, 5, "/a", "apikey: b\r\n");
    ask(&gateway, 11, "/b", "");
    counted(&gateway, 23.0);
    assert_eq!(sums(&gateway, "by=route"), columns(&[("r-a", 12.0), ("r-b", 11.0)]));
    assert_eq!(sums(&gateway, "by=service"), columns(&[("s-a", 12.0), ("s-b", 11.0)]));
    assert_eq!(sums(&gateway, "by=consumer"), columns(&[("none", 11.0), ("alice", 7.0), ("bob", 5.0)]));
    assert_eq!(sums(&gateway, "by=status"), columns(&[("200", 12.0), ("404", 11.0)]));
    assert_eq!(sums(&gateway, "by=status&route=r-b"), columns(&[("404", 11.0)]));
    assert_eq!(sums(&gateway, "by=protocol"), columns(&[("http1", 23.0)]));
    assert_eq!(sum(&gateway, "consumer=alice"), 7.0);
    assert_eq!(sum(&gateway, "metric=errors&service=s-b"), 11.0);
    assert_eq!(sum(&gateway, &format!("upstream={}", fine.address)), 12.0);
    let top = get(&gateway, "/analytics/top?by=upstream&of=requests");
    let rows: Vec<_> =
        top["data"].as_array().unwrap().iter().map(|row| (&row["name"], &row["requests"])).collect();
    let addresses = [fine.address, missing.address].map(|address| json!(address.to_string()));
    assert_eq!(rows, [(&addresses[0], &json!(12)), (&addresses[1], &json!(11))]);
    let row = &get(&gateway, "/analytics/top?of=p95&limit=1")["data"][0];
    assert!(row["p95"].as_f64().unwrap() > 0.0 && row["bytes_out"].as_u64() > Some(12 * 2), "{row}");
    for member in ["resolution", "oldest", "sampled", "dropped"] {
        assert_ne!(top[member], Value::Null, "{member}: {top}");
    }
    assert_eq!((&top["sampled"], &top["dropped"]), (&json!(false), &json!(0)));
}

#[test]
fn requests_are_counted_by_consumer_and_route() {
    let upstream = Upstream::answering(HI);
    let keyed = "plugins: [{name: key-auth}]";
    let services = ["/a", "/b"].map(|path| service(path, upstream.address, "", keyed));
    let gateway = Gateway::builder(&document(&services, CONSUMERS)).set("workers", "2").start();
    for (times, path, key) in [(6, "/a", "a"), (4, "/b", "a"), (3, "/a", "b"), (2, "/a", "wrong")] {
        ask(&gateway, times, path, &format!("apikey: {key}\r\n"));
    }
    counted(&gateway, 15.0);
    let rows = |query: &str| {
        let top = get(&gateway, &format!("/analytics/top?{query}"));
        assert_eq!(top["missing"], 0, "{top}");
        let row = |row: &Value| (row["name"].as_str().unwrap().to_owned(), row["requests"].as_f64().unwrap());
        let rows: Vec<_> = top["data"].as_array().unwrap().iter().map(row).collect();
        (rows, top["within"].clone())
    };
    let (routes, within) = rows("by=route&consumer=alice");
    assert_eq!(
        (routes, &within["consumer"]["name"]),
        (columns(&[("r-a", 6.0), ("r-b", 4.0)]), &json!("alice"))
    );
    assert_eq!(rows("by=consumer&route=r-a").0, columns(&[("alice", 6.0), ("bob", 3.0)]));
    assert_eq!(rows("by=route&consumer=bob").0, columns(&[("r-a", 3.0)]));
    assert_eq!(sums(&gateway, "by=consumer&route=r-a"), columns(&[("alice", 6.0), ("bob", 3.0)]));
    assert_eq!(sums(&gateway, "by=status&route=r-a&consumer=bob"), columns(&[("200", 3.0)]));
    assert_eq!(sum(&gateway, "route=r-b&consumer=bob"), 0.0);
    let pair = get(&gateway, "/analytics/series?route=r-b&consumer=alice");
    assert_eq!(
        (&pair["of"]["route"]["name"], &pair["of"]["consumer"]["name"]),
        (&json!("r-b"), &json!("alice"))
    );
}

#[test]
fn every_protocol_is_counted() {
    let upstream = Upstream::answering(HI);
    let chat = Upstream::start(|peer, _| {
        let Ok(mut socket) = tungstenite::accept(peer.into_socket()) else { return };
        while socket.read().is_ok() {}
    });
    let greeting = Upstream::start(|mut peer, _| {
        peer.send("welcome");
    });
    let services = [service("/a", upstream.address, "", ""), service("/chat", chat.address, "", "")];
    let stream = format!(
        "- {{name: s-stream, protocol: tcp, host: 127.0.0.1, port: {}, routes: [{{name: r-stream, protocols: [tcp], \
         sources: [{{ip: 127.0.0.0/8}}]}}]}}\n",
        greeting.address.port()
    );
    let gateway = Gateway::builder(&document(&services, &stream))
        .set("proxy_listen", "127.0.0.1:0 http2")
        .set("stream_listen", "127.0.0.1:0")
        .start();
    curl(&["--http2-prior-knowledge", &format!("http://{}/a", gateway.proxy())]);
    gateway.get("/a");
    let request = tungstenite::ClientRequestBuilder::new("ws://localhost/chat".parse().unwrap());
    let (mut socket, _) = tungstenite::client(request, gateway.connect().into_socket()).unwrap();
    socket.close(None).unwrap();
    while socket.read().is_ok() {}
    drop(socket);
    assert_eq!(Peer::connect(gateway.stream(0)).finish_sending().rest(), b"welcome");
    counted(&gateway, 4.0);
    let protocols = columns(&[("http1", 1.0), ("http2", 1.0), ("websocket", 1.0), ("stream", 1.0)]);
    assert_eq!(sums(&gateway, "by=protocol"), protocols);
    assert_eq!(sums(&gateway, "by=status"), columns(&[("0", 1.0), ("101", 1.0), ("200", 2.0)]));
    assert_eq!(sum(&gateway, "route=r-stream&metric=bytes_out"), 7.0);
    assert_eq!(errors(&gateway), []);
}

/// Status, origin, cause and count of each group of errors.
fn errors(gateway: &Gateway) -> Vec<(u64, String, String, u64)> {
    let answer = get(gateway, "/analytics/errors");
    let mut groups: Vec<_> = answer["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| {
            let text = |name: &str| group[name].as_str().unwrap().to_owned();
            (
                group["status"].as_u64().unwrap(),
                text("origin"),
                text("cause"),
                group["count"].as_u64().unwrap(),
            )
        })
        .collect();
    groups.sort();
    groups
}

#[test]
fn an_error_names_who_decided_it() {
    let upstream = Upstream::answering(HI);
    let broken = Upstream::start(|mut peer, _| drop(peer.request()));
    let limited = "plugins: [{name: rate-limiting, config: {minute: 1, policy: local}}]";
    let services = [
        service("/key", upstream.address, "", "plugins: [{name: key-auth}]"),
        service("/limit", upstream.address, "", limited),
        service("/refused", closed_port(), "retries: 0", ""),
        service("/reset", broken.address, "retries: 0", ""),
        service("/dns", "nowhere.invalid:80", "retries: 0", ""),
    ];
    let gateway = Gateway::start(&document(&services, ""));
    for path in ["/key", "/limit", "/limit", "/refused", "/reset", "/dns", "/no-route"] {
        gateway.get(path);
    }
    counted(&gateway, 7.0);
    let expected = [
        (401, "gateway", "plugin key-auth"),
        (404, "gateway", "no_route"),
        (429, "gateway", "plugin rate-limiting"),
        (502, "upstream", "connect"),
        (502, "upstream", "reset"),
        (503, "upstream", "dns"),
    ];
    let expected = expected.map(|(status, origin, cause)| (status, origin.to_owned(), cause.to_owned(), 1));
    assert_eq!(errors(&gateway), expected);
    let first = get(&gateway, "/analytics/errors?limit=2");
    assert_eq!(first["data"].as_array().unwrap().len(), 2);
    assert_eq!((&first["total"], &first["count"]), (&json!(6), &json!(6)), "those of all groups");
    let outcomes = get(&gateway, "/analytics/errors?by=outcome");
    let count = |groups: &serde_json::Value| -> u64 {
        groups["data"].as_array().unwrap().iter().map(|group| group["count"].as_u64().unwrap()).sum()
    };
    assert_eq!(count(&outcomes), count(&get(&gateway, "/analytics/errors")));
    assert!(outcomes["data"][0]["route"].is_null(), "{outcomes}");
    for wrong in ["by=nope", "by=outcome&route=r-refused"] {
        assert_eq!(gateway.admin(&format!("/analytics/errors?{wrong}")).status, 400, "{wrong}");
    }
    let group = &get(&gateway, "/analytics/errors?route=r-refused")["data"][0];
    assert_eq!((&group["route"]["name"], &group["count"]), (&json!("r-refused"), &json!(1)));
    assert_eq!(sums(&gateway, "by=route&metric=errors")[0].0, "r-limit");
}

#[test]
fn what_cannot_be_answered_names_the_argument_and_its_choices() {
    let gateway = Gateway::start(&document(&[service("/a", closed_port(), "", "")], ""));
    let cases = [
        ("series?metric=speed", 400, "metric: there is no 'speed'; use one of requests"),
        ("series?by=colour", 400, "by: there is no 'colour'; use one of status"),
        ("series?metric=p99&by=status", 400, "by: 'p99' cannot be divided by status"),
        ("series?from=yesterday", 400, "from: `yesterday` is not a time; write seconds since 1970"),
        ("series?from=-10m&to=-20m", 400, "from, to: the frame is empty"),
        ("series?step=0", 400, "step: `0` is not a distance"),
        ("series?route=r-a&service=s-a", 400, "route, service: requests are counted by pairs of route"),
        (
            "series?route=r-a&consumer=none",
            400,
            "consumer, route: pairs are counted of a consumer and a route that",
        ),
        ("top?by=service&route=r-a", 400, "by, route: requests of one route are not counted by service"),
        ("top?by=route&consumer=nobody", 404, "there is no consumer `nobody`"),
        ("series?by=route&service=s-a", 400, "by, service: requests of one service are not counted by route"),
        ("series?rout=r-a", 400, "unknown argument `rout`; there are: metric"),
        ("series?route=r-b", 404, "there is no route `r-b`; did you mean `r-a`?"),
        (
            "top?by=plugin",
            400,
            "by: there are no rows by `plugin`; use one of route, service, consumer, upstream",
        ),
        ("top?of=speed", 400, "of, as a metric: there is no 'speed'"),
        ("top?limit=0", 400, "limit: `0` is not a number of rows; write 1 to 1000"),
        ("errors?limit=many", 400, "limit: `many` is not a number of rows"),
        ("errors?route=none-such", 404, "there is no route `none-such`"),
        ("changes?to=99999999999", 400, "to: `99999999999` is not a time"),
    ];
    gateway.assert_admin_messages("/analytics/", &cases);
}

#[test]
fn a_node_without_analytics_says_how_to_have_them() {
    let upstream = Upstream::answering(HI);
    let configuration = document(&[service("/a", upstream.address, "", "")], "");
    let gateway = Gateway::builder(&configuration).set("analytics", "off").start();
    assert_eq!(gateway.get("/a").status, 200);
    for path in ["series", "top", "errors", "changes"] {
        let answer = gateway.admin(&format!("/analytics/{path}"));
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.json()["message"].as_str().unwrap().contains("analytics=on"), "{path}");
    }
    assert!(!gateway.prefix().join("analytics").exists());
}

/// The sources and texts of all changes.
fn changes(gateway: &Gateway) -> Vec<(String, String)> {
    let answer = get(gateway, "/analytics/changes");
    let changes = answer["data"].as_array().unwrap().iter();
    let text = |change: &Value, name: &str| change[name].as_str().unwrap().to_owned();
    changes.map(|change| (text(change, "source"), text(change, "what"))).collect()
}

#[test]
fn changes_of_a_declared_configuration_name_what_differs() {
    let configuration = document(&[service("/a", "127.0.0.1:1", "", "")], "");
    let gateway = Gateway::start(&configuration);
    assert_eq!(changes(&gateway), []);
    let services = ["/b", "/c", "/d", "/e"].map(|path| service(path, "127.0.0.1:1", "", ""));
    let others = document(&services, "");
    let listed = [
        (configuration.replace("/a", "/b"), "put routes/r-a"),
        (
            document(&[service("/b", "127.0.0.1:1", "", "")], ""),
            "put services/s-b, put routes/r-b, delete routes/r-a, delete services/s-a",
        ),
        (others, "put 3 routes, put 3 services"),
    ];
    for (number, (configuration, what)) in listed.iter().enumerate() {
        assert!(gateway.reload(configuration).status.success());
        eventually("the reload is listed", || changes(&gateway).len() > number);
        assert_eq!(changes(&gateway)[number], ("declared".to_owned(), (*what).to_owned()));
    }
}

#[test]
fn a_change_by_the_admin_api_names_its_entity() {
    let gateway = Gateway::empty().set("database", "sqlite").start();
    let body = r#"{"name": "orders", "url": "http://orders.test"}"#;
    assert_eq!(gateway.ask_admin("POST", "/services", body).status, 201);
    eventually("the write is listed", || !changes(&gateway).is_empty());
    assert_eq!(changes(&gateway), [("database".to_owned(), "put services/orders".to_owned())]);
}

#[test]
fn history_is_on_the_disk_when_the_node_has_stopped() {
    let upstream = Upstream::answering(HI);
    let configuration = document(&[service("/a", upstream.address, "", "")], "");
    let mut gateway = Gateway::start(&configuration);
    ask(&gateway, 9, "/a", "");
    counted(&gateway, 9.0);
    let kept = gateway.prefix().join("analytics");
    assert!(gateway.command("quit").status.success());
    assert!(gateway.exit().success());
    let files = std::fs::read_dir(kept).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    assert!(files.sum::<u64>() > 0, "what was counted is on the disk");
}

#[test]
fn a_folder_that_cannot_be_written_costs_history_and_nothing_else() {
    let upstream = Upstream::answering(HI);
    let prefix = tempfile::tempdir().unwrap();
    std::fs::write(prefix.path().join("analytics"), "").unwrap();
    let configuration = document(&[service("/a", upstream.address, "", "")], "");
    let gateway = Gateway::builder(&configuration).set("prefix", prefix.path().to_str().unwrap()).start();
    ask(&gateway, 3, "/a", "");
    counted(&gateway, 3.0);
    eventually("the error is logged", || gateway.log().contains("the history of analytics cannot be kept"));
    assert_eq!(gateway.log().matches("analytics_disk=0").count(), 1);
}

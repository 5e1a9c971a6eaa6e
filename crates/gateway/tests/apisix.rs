//! APISIX's Admin API and its traffic, as its clients meet them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Builder, Gateway, Identity, Message, Peer, Upstream, eventually, handshake, weir};
use rustix::process::Signal;
use serde_json::Value as Json;
use std::net::SocketAddr;
use std::process::Command;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
/// The key of APISIX's benchmark.
pub(crate) const KEY: &str = "edd1c9f034335f136f87ad84b625c8f1";

pub(crate) fn with_apisix(builder: Builder) -> Builder {
    builder
        .set("apisix_admin", "on")
        .set("apisix_admin_key", KEY)
        .set("apisix_proxy_listen", "127.0.0.1:0")
        .set("apisix_admin_listen", "127.0.0.1:0")
}

/// A gateway whose configuration is written by its Admin APIs.
pub(crate) fn writable() -> Gateway {
    with_apisix(Gateway::empty()).start()
}

pub(crate) fn ask(at: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> Message {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n");
    Peer::connect(at).send(head + body).response_to(method)
}

/// Whether the actual value has all that is expected; a list has as many.
fn has(actual: &Json, expected: &Json) -> bool {
    match expected {
        Json::Object(members) => members.iter().all(|(name, member)| has(&actual[name], member)),
        Json::Array(elements) => {
            let all = |actual: &Vec<Json>| elements.iter().zip(actual).all(|(e, a)| has(a, e));
            actual.as_array().is_some_and(|actual| actual.len() == elements.len() && all(actual))
        }
        other => actual == other,
    }
}

fn line(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{text}\r\n") }
}

/// Makes a step's request, and checks what came of it.
fn check(gateway: &Gateway, name: &str, step: &Json) {
    let text = |member: &str| step[member].as_str();
    let name = format!("{name}: {step}");
    let response = if let Some(request) = text("proxy") {
        let (method, path) = request.split_once(' ').unwrap();
        ask(gateway.apisix_proxy(), method, path, &line(text("send").unwrap_or_default()), "")
    } else {
        let methods = ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"];
        let (method, path) = methods.iter().find_map(|method| Some((method, text(method)?))).expect(&name);
        let key = if step.get("key").is_some() {
            text("key").unwrap_or_default().to_owned()
        } else {
            format!("X-API-KEY: {KEY}")
        };
        let body = step.get("body").map(ToString::to_string).or(text("text").map(str::to_owned));
        let path = format!("/apisix/admin{path}");
        ask(gateway.apisix_admin(), method, &path, &line(&key), &body.unwrap_or_default())
    };
    assert_eq!(Some(u64::from(response.status)), step["status"].as_u64(), "{name}: {}", response.text());
    if let Some(expected) = step.get("answer") {
        assert!(has(&response.json(), expected), "{name}: {}", response.text());
    }
    if let Some(body) = text("says") {
        assert_eq!(response.text(), body, "{name}");
    }
    if let Some(part) = text("error") {
        let message = response.json()["error_msg"].clone();
        assert!(message.as_str().unwrap().contains(part), "{name}: {message}");
    }
    for (header, expected) in step["headers"].as_object().into_iter().flatten() {
        let value = response.header(header);
        match expected {
            Json::Bool(present) => assert_eq!(value.is_some(), *present, "{name}: {header}"),
            other => assert_eq!(value, other.as_str(), "{name}: {header}"),
        }
    }
}

#[test]
fn cases() {
    let upstream = Upstream::answering(OK);
    let cases = include_str!("cases/apisix.json").replace("UPSTREAM", &upstream.address.to_string());
    let cases = cases.replace("X-API-KEY: KEY", &format!("X-API-KEY: {KEY}"));
    let cases: Vec<Json> = serde_json::from_str(&cases).unwrap();
    assert!(cases.len() > 8);
    for case in cases {
        let gateway = writable();
        let name = case["case"].as_str().unwrap();
        case["steps"].as_array().unwrap().iter().for_each(|step| check(&gateway, name, step));
    }
}

/// Runs a command as a shell reads it; its output.
fn shell(command: &str) -> String {
    let output = Command::new("sh").arg("-c").arg(command).output().expect("a shell runs");
    String::from_utf8(output.stdout).unwrap()
}

/// The two commands of APISIX's benchmark as they are in its document, but for the ports, which are free ones here.
#[test]
fn the_benchmarks_commands_work() {
    let (one, other) = (Upstream::answering(OK), Upstream::answering(OK));
    let gateway = writable();
    let run = |command: &str| {
        let command = command
            .replace("127.0.0.1:9080", &gateway.apisix_proxy().to_string())
            .replace("127.0.0.1:80", &one.address.to_string())
            .replace("127.0.0.2:80", &other.address.to_string());
        let answer: Json = serde_json::from_str(&shell(&command)).unwrap();
        assert_eq!((&answer["key"], &answer["value"]["id"]), (&"/apisix/routes/1".into(), &"1".into()));
    };
    let hello = || ask(gateway.apisix_proxy(), "GET", "/hello", "", "");
    run(include_str!("cases/apisix-benchmark/plain.sh"));
    eventually("the route is in force", || hello().status == 200);
    let before = (one.connections(), other.connections());
    (0..4).for_each(|_| assert_eq!(hello().status, 200));
    assert!(one.connections() + other.connections() > 0 && one.connections() >= before.0);
    assert!(one.connections() > 0 && other.connections() > 0, "both nodes are asked");
    assert_eq!(hello().header("x-ratelimit-limit"), None);

    run(include_str!("cases/apisix-benchmark/two-plugins.sh"));
    eventually("the plugins are in force", || hello().header("x-ratelimit-limit").is_some());
    let response = hello();
    assert_eq!(response.header("x-ratelimit-limit"), Some("999999999"));
    let remaining: u64 = response.header("x-ratelimit-remaining").unwrap().parse().unwrap();
    let reset: u64 = response.header("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!(remaining < 999_999_998 && reset <= 60, "{remaining} {reset}");
    // Requests at the moment when the plugin comes into force may go without.
    eventually("requests are counted", || {
        assert_eq!(hello().status, 200);
        let metrics = ask(gateway.apisix_proxy(), "GET", "/apisix/prometheus/metrics", "", "");
        assert_eq!(metrics.status, 200);
        metrics.text().contains("apisix_http_status{code=\"200\",route=\"1\",")
    });
}

#[test]
fn the_admin_api_is_on_the_proxys_port_unless_it_is_switched_off() {
    let key = format!("X-API-KEY: {KEY}\r\n");
    let routes = |at: SocketAddr| ask(at, "GET", "/apisix/admin/routes", &key, "").status;
    let metrics = |at: SocketAddr| ask(at, "GET", "/apisix/prometheus/metrics", "", "").status;
    let gateway = writable();
    assert_eq!([routes(gateway.apisix_proxy()), metrics(gateway.apisix_proxy())], [200, 200]);
    assert_eq!([routes(gateway.apisix_admin()), metrics(gateway.apisix_admin())], [200, 200]);
    assert_eq!([routes(gateway.proxy()), metrics(gateway.proxy())], [404, 404], "not on Kong's port");
    let gateway = with_apisix(Gateway::empty()).set("apisix_admin_on_proxy", "off").start();
    assert_eq!([routes(gateway.apisix_proxy()), metrics(gateway.apisix_proxy())], [404, 200]);
    assert_eq!(routes(gateway.apisix_admin()), 200);
}

#[test]
fn long_bodies_are_refused_wherever_they_come() {
    let gateway = writable();
    let body = "x".repeat(2 << 20);
    for at in [gateway.apisix_proxy(), gateway.apisix_admin()] {
        let key = format!("X-API-KEY: {KEY}\r\n");
        assert_eq!(ask(at, "PUT", "/apisix/admin/routes/1", &key, &body).status, 413);
    }
}

const STANDALONE: &str = "
routes:
  - id: 1
    uri: /hello
    upstream:
      nodes:
        \"UPSTREAM\": 1
    plugins:
      key-auth: {}
consumers:
  - username: jack
    plugins:
      key-auth:
        key: auth-one
#END
";

#[test]
fn a_standalone_file_is_served_and_can_be_read_back() {
    let upstream = Upstream::answering(OK);
    let file = STANDALONE.replace("UPSTREAM", &upstream.address.to_string());
    let gateway = with_apisix(Gateway::builder(&file)).start();
    assert_eq!(gateway.get("/hello").status, 401);
    assert_eq!(gateway.get_with("/hello", "apikey: auth-one\r\n").status, 200);
    let key = format!("X-API-KEY: {KEY}\r\n");
    let route = ask(gateway.apisix_admin(), "GET", "/apisix/admin/routes/1", &key, "");
    assert_eq!((route.status, &route.json()["value"]["uri"]), (200, &"/hello".into()));
    let write = ask(gateway.apisix_admin(), "PUT", "/apisix/admin/routes/1", &key, "{\"uri\": \"/bye\"}");
    assert_eq!(write.status, 405);
    assert!(write.json()["error_msg"].as_str().unwrap().contains("declarative file"));
    let reloaded = gateway.reload(&file.replace("/hello", "/bye"));
    assert!(reloaded.status.success());
    assert_eq!(gateway.get_with("/bye", "apikey: auth-one\r\n").status, 200);
}

#[test]
fn a_standalone_file_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("apisix.yaml");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let output = weir().arg("check").arg(&file).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(check(STANDALONE.replace("UPSTREAM", "a.test:80").as_str()), (true, String::new()));
    let (good, errors) = check("routes:\n  - uri: /a\n    script: x\n#END\n");
    assert!(
        !good && errors.contains("apisix.yaml:3:5: routes[0].script: is not available here; leave it out"),
        "{errors}"
    );
}

#[test]
fn a_key_is_made_up_where_none_is_set() {
    let gateway = Gateway::builder(STANDALONE.replace("UPSTREAM", "a.test:80").as_str())
        .set("apisix_admin", "on")
        .set("apisix_proxy_listen", "127.0.0.1:0")
        .set("apisix_admin_listen", "127.0.0.1:0")
        .start();
    let log = gateway.log();
    let key =
        log.lines().find_map(|line| line.strip_prefix("apisix_admin_key: ")?.split(' ').next()).unwrap();
    let routes = |key: &str| {
        let key = format!("X-API-KEY: {key}\r\n");
        ask(gateway.apisix_admin(), "GET", "/apisix/admin/routes", &key, "").status
    };
    assert_eq!([routes(key), routes(KEY)], [200, 401]);
}

#[test]
fn nothing_of_apisixs_is_there_unless_it_is_asked_for() {
    let gateway = Gateway::start(STANDALONE.replace("UPSTREAM", "a.test:80").as_str());
    assert_eq!(gateway.get("/apisix/admin/routes").status, 404);
    assert_eq!(gateway.get("/apisix/prometheus/metrics").status, 404);
}

/// What APISIX's clients write is there for Kong's, by its tag; the objects themselves are not.
#[test]
fn kongs_clients_see_what_follows_from_objects() {
    let gateway = writable();
    let key = format!("X-API-KEY: {KEY}\r\n");
    let route = "{\"uri\": \"/a\", \"upstream\": {\"nodes\": {\"a.test:80\": 1}}}";
    let put = ask(gateway.apisix_admin(), "PUT", "/apisix/admin/routes/1", &key, route);
    assert_eq!((put.status, put.header("x-weir-revision")), (201, Some("1")));
    for kind in ["routes", "services", "upstreams"] {
        let found = gateway.admin(&format!("/{kind}?tags=apisix:routes:1")).json();
        assert_eq!(found["data"].as_array().map(Vec::len), Some(1), "{kind}: {found}");
    }
    assert_eq!(gateway.admin("/apisix_objects").status, 404);
}

#[test]
fn certificates_are_presented_for_their_names() {
    let (gateway, identity) = (writable(), Identity::new("one"));
    let key = format!("X-API-KEY: {KEY}\r\n");
    let pem = |path| std::fs::read_to_string(path).unwrap();
    let ssl = |status: u8| {
        let (cert, key) = (pem(identity.cert()), pem(identity.key()));
        serde_json::json!({ "cert": cert, "key": key, "snis": ["a.test", "*.b.test"], "status": status })
            .to_string()
    };
    let put =
        |body: &str| ask(gateway.apisix_admin(), "PUT", "/apisix/admin/ssls/1?wait=true", &key, body).status;
    let presented = |name: &str| handshake(gateway.proxy_ssl(), &["-servername", name]).contains("CN=one");
    assert_eq!(put(&ssl(1)), 201);
    for (method, path) in [("GET", "ssls/1"), ("GET", "ssls"), ("PATCH", "ssls/1")] {
        let answer = ask(gateway.apisix_admin(), method, &format!("/apisix/admin/{path}"), &key, "{}");
        let text = answer.text();
        assert!(answer.status == 200 && text.contains("a.test") && !text.contains("PRIVATE KEY"), "{text}");
    }
    assert_eq!(["a.test", "x.b.test", "c.test"].map(presented), [true, true, false]);
    assert_eq!(put(&ssl(0)), 200);
    assert_eq!(["a.test", "x.b.test", "c.test"].map(presented), [false; 3]);
}

#[test]
fn an_admin_api_with_authorities_serves_clients_with_a_certificate() {
    let (server, authority) = (Identity::new("localhost"), Identity::new("operators"));
    let client = Identity::signed("alice", &authority);
    let [ca, cert, key] =
        [authority.cert(), server.cert(), server.key()].map(|file| file.display().to_string());
    let gateway = with_apisix(Gateway::empty())
        .set("apisix_admin_listen", "127.0.0.1:0 ssl")
        .set("admin_ssl_client_ca", &ca)
        .set("admin_ssl_cert", &cert)
        .set("admin_ssl_cert_key", &key)
        .start();
    let routes = |more: &str| {
        let (port, key) = (gateway.apisix_admin().port(), format!("-H 'X-API-KEY: {KEY}'"));
        shell(&format!(
            "curl -s -w %{{http_code}} --cacert {cert} {key} {more} https://localhost:{port}/apisix/admin/routes"
        ))
    };
    assert_eq!(routes(""), "No required SSL certificate was sent\n400");
    let (cert, key) = (client.cert().display().to_string(), client.key().display().to_string());
    let found = routes(&format!("--cert {cert} --key {key}"));
    assert!(found.ends_with("}200"), "{found}");
}

#[test]
fn the_proxys_port_answers_only_who_is_on_this_machine() {
    let gateway = writable();
    let status = |path: &str, host: &str, header: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nX-API-KEY: {KEY}\r\n{header}\r\n");
        Peer::connect(gateway.apisix_proxy()).send(head).response().status
    };
    for path in ["/apisix/admin/routes", "/apisix/prometheus/metrics"] {
        assert_eq!(status(path, "localhost:9080", ""), 200);
        assert_eq!(status(path, "127.0.0.1:9080", ""), 200);
        assert_eq!(status(path, "rebound.example.com", ""), 404);
        for header in ["X-Forwarded-For: 1.2.3.4", "x-real-ip: 1.2.3.4", "Forwarded: for=1.2.3.4"] {
            assert_eq!(status(path, "localhost:9080", &line(header)), 404, "{header}");
        }
    }
}

#[test]
fn the_key_is_not_in_the_access_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let builder = Gateway::empty().set("proxy_access_log", log.to_str().unwrap());
    let mut gateway = with_apisix(builder).start();
    let path = format!("/apisix/admin/routes?api_key={KEY}");
    assert_eq!(ask(gateway.apisix_proxy(), "GET", &path, "", "").status, 200);
    assert_eq!(ask(gateway.apisix_proxy(), "GET", &path, "X-Real-IP: 1.2.3.4\r\n", "").status, 404);
    assert_eq!(ask(gateway.apisix_proxy(), "GET", "/other?a=1", "", "").status, 404);
    gateway.signal(Signal::TERM);
    assert!(gateway.exit().success());
    let text = std::fs::read_to_string(&log).unwrap();
    assert_eq!(text.matches("GET /apisix/admin/routes HTTP/1.1").count(), 2, "{text}");
    assert!(text.contains("GET /other?a=1 HTTP/1.1") && !text.contains(KEY), "{text}");
}

#[test]
fn each_write_is_told_with_who_made_it_whatever_is_logged() {
    let gateway = with_apisix(Gateway::empty()).set("log_level", "error").start();
    let key = format!("X-API-KEY: {KEY}\r\n");
    for at in [gateway.apisix_proxy(), gateway.apisix_admin()] {
        let put = |id: &str, body: &str| ask(at, "PUT", &format!("/apisix/admin/routes/{id}"), &key, body);
        assert_eq!(put("1", "{\"uri\": \"/a\"}").status / 100, 2);
        assert_eq!(put("2", &"x".repeat(2 << 20)).status, 413);
    }
    let address = gateway.admin_addresses()[0];
    assert_eq!(ask(address, "DELETE", "/routes/none", "", "").status, 204);
    let log = gateway.log();
    let count = |text: &str| log.matches(text).count();
    assert_eq!(
        count("INFO apisix admin client=127.0.0.1 method=PUT path=/apisix/admin/routes/1 status=20"),
        2
    );
    assert_eq!(
        count("INFO apisix admin client=127.0.0.1 method=PUT path=/apisix/admin/routes/2 status=413"),
        2,
        "{log}"
    );
    assert_eq!(count("INFO admin client=127.0.0.1"), 1, "{log}");
    assert_eq!(log.lines().count(), 5, "{log}");
}

#[test]
fn what_is_nested_too_deeply_is_refused() {
    let gateway = writable();
    let key = format!("X-API-KEY: {KEY}\r\n");
    let metadata = format!("{}{}", "[".repeat(120), "]".repeat(120));
    let node = format!(r#"{{"host":"127.0.0.1","port":1,"weight":1,"metadata":{metadata}}}"#);
    let body = format!(r#"{{"nodes":[{node}]}}"#);
    let refused = ask(gateway.apisix_admin(), "PUT", "/apisix/admin/upstreams/x", &key, &body);
    assert_eq!(refused.status, 400);
    let message = refused.json()["error_msg"].as_str().unwrap().to_owned();
    assert!(message.contains("nested deeper than 61 levels"), "{message}");
}

#[test]
fn stream_routes_lead_connections_to_their_upstream() {
    let upstream = Upstream::answering(OK);
    let gateway = with_apisix(Gateway::empty()).set("stream_listen", "127.0.0.1:0").start();
    let key = format!("X-API-KEY: {KEY}\r\n");
    let admin = |method: &str, path: &str, body: &str| {
        ask(gateway.apisix_admin(), method, &format!("/apisix/admin/{path}"), &key, body)
    };
    let service =
        serde_json::json!({ "upstream": { "scheme": "tcp", "nodes": { upstream.address.to_string(): 1 } } });
    assert_eq!(admin("PUT", "services/s", &service.to_string()).status, 201);
    let route =
        serde_json::json!({ "server_port": gateway.stream(0).port(), "service_id": "s", "name": "http" });
    let put = admin("PUT", "stream_routes/1?wait=true", &route.to_string());
    assert_eq!((put.status, &put.json()["value"]["name"]), (201, &"http".into()), "{}", put.text());
    let answer = ask(gateway.stream(0), "GET", "/", "", "");
    assert_eq!((answer.status, answer.text()), (200, "hi"));
    assert_eq!(admin("GET", "stream_routes", "").json()["total"], 1);
    let used = admin("DELETE", "services/s", "");
    assert_eq!(used.status, 400, "{}", used.text());
    assert_eq!(admin("DELETE", "stream_routes/1", "").status, 200);
    assert_eq!(admin("DELETE", "services/s", "").status, 200);
}

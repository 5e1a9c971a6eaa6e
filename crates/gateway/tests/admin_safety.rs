//! Who may use the Admin API, and what is kept of who did.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, Identity, Message, Peer, eventually, weir};
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

const EMPTY: &str = "_format_version: \"3.0\"\n";

/// A token, and the setting that makes it valid.
fn token() -> (String, String) {
    new_token(&[])
}

fn new_token(flags: &[&str]) -> (String, String) {
    let output = weir().args(["admin", "token"]).args(flags).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let value =
        |name: &str| printed.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    (value("token:"), value("admin_auth:"))
}

#[track_caller]
fn ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> Message {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    Peer::connect(address).send(request).response()
}

#[test]
fn a_token_opens_every_path_and_nothing_else_does() {
    let (token, hash) = token();
    let gateway = Gateway::builder(EMPTY).set("admin_auth", &format!("ci={hash}")).start();
    let address = gateway.admin_addresses()[0];
    for headers in ["", "Authorization: Bearer guess\r\n", &format!("Authorization: Bearer {hash}\r\n")] {
        for path in ["/", "/status", "/metrics", "/services", "/nothing", "/openapi.json"] {
            let answer = ask(address, "GET", path, headers);
            assert_eq!((answer.status, answer.json()), (401, json!({ "message": "Unauthorized" })), "{path}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
    }
    for headers in [format!("Authorization: Bearer {token}\r\n"), format!("Kong-Admin-Token: {token}\r\n")] {
        assert_eq!(ask(address, "GET", "/status", &headers).status, 200);
    }
    assert_eq!(gateway.status("/status").status, 200, "the status listener asks nobody");
}

#[test]
fn a_token_that_may_only_read_writes_nothing() {
    let ((writer, writer_hash), (reader, reader_hash)) = (token(), new_token(&["--read-only"]));
    let gateway =
        Gateway::empty().set("admin_auth", &format!("ci={writer_hash}, board={reader_hash}")).start();
    let address = gateway.admin_addresses()[0];
    let by = |token: &str| format!("Authorization: Bearer {token}\r\nContent-Length: 0\r\n");
    assert_eq!(ask(address, "PUT", "/consumers/alice", &by(&writer)).status, 200);
    for path in ["/", "/consumers/alice", "/status", "/analytics/changes"] {
        let answer = ask(address, "GET", path, &by(&reader));
        assert_eq!((answer.status, answer.header("x-weir-role")), (200, Some("read-only")), "{path}");
    }
    let explained = ask(address, "POST", "/explain", &by(&reader));
    assert_eq!(explained.status, 400, "it asks and writes nothing: {}", explained.text());
    for (method, path) in [
        ("PUT", "/consumers/alice"),
        ("PATCH", "/consumers/alice"),
        ("DELETE", "/consumers/alice"),
        ("POST", "/consumers/alice/key-auth"),
        ("POST", "/config"),
        ("PUT", "/debug/node/log-level/debug"),
        ("POST", "/nothing"),
    ] {
        let answer = ask(address, method, path, &by(&reader));
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert_eq!(answer.status, 403, "{method} {path}: {message}");
        assert!(message.contains("the role read-only"), "{method} {path}: {message}");
    }
    assert_eq!(ask(address, "GET", "/consumers/alice", &by(&writer)).header("x-weir-role"), None);
    assert!(gateway.log().contains("token=board method=DELETE path=/consumers/alice status=403"));
}

#[test]
fn tokens_open_the_admin_api_beyond_loopback() {
    let (token, hash) = token();
    let everywhere = "0.0.0.0:0";
    let gateway = Gateway::builder(EMPTY).set("admin_listen", everywhere).set("admin_auth", &hash).start();
    let address = SocketAddr::from(([127, 0, 0, 1], gateway.admin_addresses()[0].port()));
    assert_eq!(ask(address, "GET", "/", "").status, 401);
    assert_eq!(ask(address, "GET", "/", &format!("Authorization: Bearer {token}\r\n")).status, 200);
    assert!(gateway.log().contains("tokens cross the network unencrypted"), "{}", gateway.log());
}

#[test]
fn web_pages_cannot_use_the_admin_api() {
    let gateway = Gateway::start(EMPTY);
    let address = gateway.admin_addresses()[0];
    let from_a_page = "Origin: https://example.com\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    assert_eq!(ask(address, "POST", "/services", from_a_page).status, 403);
    let answer = ask(address, "GET", "/", "Origin: https://example.com\r\n");
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (403, None));
    for site in ["cross-site", "same-site"] {
        // As for an image, which has no `Origin`.
        let image = format!("Sec-Fetch-Site: {site}\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n");
        assert_eq!(ask(address, "GET", "/analytics/requests/tail", &image).status, 403, "{site}");
    }
    let rebound = "GET / HTTP/1.1\r\nHost: rebound.example.com\r\n\r\n";
    assert_eq!(Peer::connect(address).send(rebound).response().status, 403);
}

#[test]
fn each_write_leaves_a_line_and_no_secret() {
    let (token, hash) = token();
    let gateway = Gateway::builder(EMPTY).set("admin_auth", &format!("ci={hash}")).start();
    let address = gateway.admin_addresses()[0];
    let authorized = format!("Authorization: Bearer {token}\r\nContent-Length: 0\r\n");
    ask(address, "GET", "/services", &authorized);
    ask(address, "POST", "/services?password=hush", &authorized);
    ask(address, "DELETE", "/key-auths/hush", &authorized);
    ask(address, "PUT", "/services/x", "Content-Length: 0\r\n");
    let log = gateway.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("admin client=")).collect();
    assert_eq!(lines.len(), 3, "{log}");
    assert!(
        lines[0].contains("client=127.0.0.1 token=ci method=POST path=/services status="),
        "{}",
        lines[0]
    );
    assert!(lines[1].contains("path=/key-auths/…"), "{}", lines[1]);
    assert!(lines[2].contains("token=- method=PUT path=/services/x status=401"), "{}", lines[2]);
    assert!(!log.contains("hush") && !log.contains(&token), "{log}");
}

#[test]
fn the_line_of_a_write_says_what_was_written() {
    let gateway = Gateway::empty().start();
    let address = gateway.admin_addresses()[0];
    let body = r#"{"username":"alice","tags":["hush"]}"#;
    let headers = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let request = format!("POST /consumers HTTP/1.1\r\nHost: localhost\r\n{headers}");
    let answer = Peer::connect(address).send(request).response();
    let (id, revision) = (answer.json()["id"].clone(), answer.header("x-weir-revision").unwrap().to_owned());
    let said = format!("status=201 kind=consumers id={} revision={revision}", id.as_str().unwrap());
    assert!(gateway.log().contains(&said), "{said}: {}", gateway.log());
    assert!(!gateway.log().contains("hush"));
}

/// What curl says of a request over TLS: the status, or `000` where there was no answer.
fn curl(address: SocketAddr, authority: &Path, more: &[&str]) -> String {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
            "--noproxy",
            "*",
            "--cacert",
        ])
        .arg(authority)
        .args(more)
        .arg(format!("https://{address}/status"))
        .output()
        .expect("curl runs");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_admin_api_speaks_tls() {
    let identity = Identity::new("localhost");
    let gateway = Gateway::builder(EMPTY)
        .set("admin_listen", "127.0.0.1:0 ssl")
        .set("ssl_cert", &identity.cert().display().to_string())
        .set("ssl_cert_key", &identity.key().display().to_string())
        .start();
    let address = gateway.admin_addresses()[0];
    assert_eq!(curl(address, &identity.cert(), &[]), "200");
    // Those who connect and say nothing keep nobody waiting.
    let _silent: Vec<_> = (0..8).map(|_| Peer::connect(address)).collect();
    assert_eq!(curl(address, &identity.cert(), &[]), "200");
}

#[test]
fn a_certificate_opens_the_admin_api_beyond_loopback() {
    let (server, authority) = (Identity::new("localhost"), Identity::new("operators"));
    let client = Identity::signed("alice", &authority);
    let gateway = Gateway::builder(EMPTY)
        .set("admin_listen", "0.0.0.0:0 ssl http2, 0.0.0.0:0")
        .set("admin_ssl_client_ca", &authority.cert().display().to_string())
        .set("ssl_cert", &server.cert().display().to_string())
        .set("ssl_cert_key", &server.key().display().to_string())
        .start();
    assert_eq!(gateway.admin_addresses().len(), 1, "the plain one asks for no certificate");
    let address = SocketAddr::from(([127, 0, 0, 1], gateway.admin_addresses()[0].port()));
    assert_eq!(curl(address, &server.cert(), &[]), "400");
    assert_eq!(curl(address, &server.cert(), &["--http1.1"]), "400");
    let (cert, key) = (client.cert().display().to_string(), client.key().display().to_string());
    let shown = ["--cert", &cert, "--key", &key];
    assert_eq!(curl(address, &server.cert(), &shown), "200");
    curl(address, &server.cert(), &[&shown[..], &["--request", "DELETE"]].concat());
    eventually("the write is logged", || gateway.log().contains("token=CN=alice"));
    let (other, by_nobody) = (Identity::new("mallory"), server.cert());
    let (cert, key) = (other.cert().display().to_string(), other.key().display().to_string());
    assert_eq!(curl(address, &by_nobody, &["--cert", &cert, "--key", &key]), "000");
}

#[test]
fn a_client_authority_that_cannot_be_read_is_named() {
    let (status, said) = Gateway::builder(EMPTY)
        .set("admin_listen", "127.0.0.1:0 ssl")
        .set("admin_ssl_client_ca", "/nonexistent/ca.pem")
        .fail();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("admin_ssl_client_ca: /nonexistent/ca.pem"), "{said}");
}

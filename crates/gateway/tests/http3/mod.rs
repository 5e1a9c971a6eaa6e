//! HTTP/3 towards clients, by aioquic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod bodies;
pub(crate) mod client;
mod hostile;
mod life;
mod malformed;

use crate::harness::{Gateway, Identity, Upstream, curl, document, eventually, one_route, service};
use client::Client;
use serde_json::{Value, json};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const LISTEN: &str = "127.0.0.1:0, 127.0.0.1:0 ssl http2, 127.0.0.1:0 quic";

fn gateway(configuration: &str) -> crate::harness::Builder {
    Gateway::builder(configuration).set("proxy_listen", LISTEN)
}

#[test]
fn heads_are_translated_both_ways() {
    let upstream = Upstream::echoing();
    let gateway = gateway(&one_route(upstream.address)).start();
    let mut client = Client::connect(gateway.proxy_quic());
    let fields = json!([
        [":method", "GET"],
        [":scheme", "https"],
        [":authority", "shop.test:8443"],
        [":path", "/a%20b?q=1"],
        ["cookie", "a=1"],
        ["x-twice", "1"],
        ["cookie", "b=2"],
        ["x-twice", "2"],
        ["te", "trailers"],
        ["x-consumer-id", "forged"],
        ["proxy", "http://forged"]
    ]);
    let said = client.ask_with("a", fields, &json!({})).response("a");
    assert_eq!(said.status(), 200);
    assert_eq!(said.field("via"), Some("1.1 weir"));
    let lines: Vec<&str> = said.text().lines().collect();
    let port = format!("X-Forwarded-Port: {}", gateway.proxy_quic().port());
    let expected = [
        "GET /a%20b?q=1 HTTP/1.1",
        "Cookie: a=1; b=2",
        "x-twice: 1",
        "x-twice: 2",
        "X-Forwarded-Host: shop.test",
        "X-Forwarded-Proto: https",
        &port,
        "Via: 3 weir",
        "TE: trailers",
        "Connection: TE",
    ];
    for line in expected {
        assert!(lines.contains(&line), "no {line} in {lines:#?}");
    }
    let text = said.text().to_lowercase();
    assert!(!text.contains("forged") && !text.contains("chunked"), "{text}");
    assert_eq!(said.field("alt-svc"), None);
}

#[test]
fn the_authority_is_one_and_valid() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&one_route(upstream.address)).start();
    let mut client = Client::connect(gateway.proxy_quic());
    let cases: [(&[(&str, &str)], u16); 4] = [
        (&[(":authority", "a.test"), ("host", "a.test")], 200),
        (&[("host", "a.test")], 200),
        (&[(":authority", "a.test"), ("host", "a.test"), ("host", "a.test")], 400),
        (&[(":authority", "u@a.test")], 400),
    ];
    for (given, status) in cases {
        let mut fields = json!([[":method", "GET"], [":scheme", "https"], [":path", "/"]]);
        let given = given.iter().map(|(name, value)| json!([name, value]));
        fields.as_array_mut().unwrap().extend(given);
        let said = client.ask_with("a", fields.clone(), &json!({})).response("a");
        assert_eq!(said.status(), status, "{fields} {said:?}");
    }
}

#[test]
fn plugins_routes_and_answers_know_no_version() {
    let upstream = Upstream::answering(OK);
    let unsized_body = Upstream::answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    let configuration = document(
        &[
            service("/open", upstream.address, "", ""),
            service("/unsized", unsized_body.address, "", ""),
            service("/locked", upstream.address, "plugins: [{name: key-auth}]", ""),
        ],
        "consumers:\n- {username: ann, keyauth_credentials: [{key: secret}]}\n",
    );
    let gateway = gateway(&configuration).start();
    let mut client = Client::connect(gateway.proxy_quic());
    let status = |client: &mut Client, method, path, more: Value| {
        client.ask("a", (method, path), &more).response("a").status()
    };
    assert_eq!(status(&mut client, "GET", "/open", json!({})), 200);
    // aioquic expects of HEAD the body that Content-Length tells of.
    assert_eq!(status(&mut client, "HEAD", "/unsized", json!({})), 200);
    assert_eq!(status(&mut client, "GET", "/nowhere", json!({})), 404);
    assert_eq!(status(&mut client, "GET", "/locked", json!({})), 401);
    assert_eq!(status(&mut client, "GET", "/locked", json!({"add": [["apikey", "secret"]]})), 200);
    assert_eq!(status(&mut client, "POST", "/open", json!({"body": 1000})), 200);
    assert_eq!(status(&mut client, "TRACE", "/open", json!({})), 405);
    let missing = client.get("/nowhere");
    assert!(missing.text().contains("no Route matched with those values"), "{missing:?}");
}

#[test]
fn the_access_log_and_the_metrics_name_the_version() {
    let upstream = Upstream::answering(OK);
    let log = tempfile::NamedTempFile::new().unwrap();
    let gateway =
        gateway(&one_route(upstream.address)).set("proxy_access_log", log.path().to_str().unwrap()).start();
    assert_eq!(Client::connect(gateway.proxy_quic()).get("/x").text(), "hi");
    eventually("the line is written", || {
        std::fs::read_to_string(log.path()).unwrap().contains("\"GET /x HTTP/3.0\" 200")
    });
    let metrics = gateway.status("/metrics");
    let counted = metrics.text().lines().any(|line| line.ends_with("version=\"3\"} 1"));
    assert!(counted, "{}", metrics.text());
}

#[test]
fn responses_over_tls_tell_of_it() {
    let upstream = Upstream::answering(OK);
    let told = |gateway: &Gateway, version: &str, path: &str| {
        let url = format!("https://{}{path}", gateway.proxy_ssl());
        let head = curl(&["-ski", version, &url]).to_lowercase();
        head.lines().find_map(|line| line.strip_prefix("alt-svc: ").map(str::to_owned))
    };
    let configuration = document(&[service("/x", upstream.address, "", "")], "");
    let running = gateway(&configuration).start();
    assert_eq!(running.proxy_ssl().port(), running.proxy_quic().port());
    let expected = format!("h3=\":{}\"; ma=86400", running.proxy_ssl().port());
    for version in ["--http1.1", "--http2"] {
        // Proxied, and answered by the gateway itself.
        assert_eq!(told(&running, version, "/x").as_ref(), Some(&expected));
        assert_eq!(told(&running, version, "/nowhere").as_ref(), Some(&expected));
    }
    assert_eq!(running.get("/x").header("alt-svc"), None);
    let elsewhere =
        gateway(&configuration).set("http3_alt_svc_port", "443").set("http3_alt_svc_max_age", "1h").start();
    assert_eq!(told(&elsewhere, "--http2", "/x").as_deref(), Some("h3=\":443\"; ma=3600"));
    let silent = gateway(&configuration).set("http3_alt_svc_max_age", "0").start();
    assert_eq!(told(&silent, "--http2", "/x"), None);
    let without =
        Gateway::builder(&configuration).set("proxy_listen", "127.0.0.1:0, 127.0.0.1:0 ssl http2").start();
    assert_eq!(told(&without, "--http2", "/x"), None);
}

#[test]
fn a_connection_is_for_the_names_of_its_certificate() {
    let upstream = Upstream::answering(OK);
    let (one, two) = (Identity::new("a.test"), Identity::new("b.test"));
    let certificate = |identity: &Identity, names: &str| {
        format!("- {{cert: {}, key: {}, snis: [{names}]}}\n", identity.cert_yaml(), identity.key_yaml())
    };
    let certificates =
        certificate(&one, "{name: a.test}, {name: c.test}") + &certificate(&two, "{name: b.test}");
    let services =
        [service("/", upstream.address, "", ""), service("/bound", upstream.address, "", "snis: [c.test]")];
    let gateway = gateway(&document(&services, &format!("certificates:\n{certificates}"))).start();
    let cases = [
        ("a.test", "A.test:8443", "/", 200),
        ("a.test", "c.test", "/", 200),
        ("unknown.test", "a.test", "/", 200),
        ("a.test", "b.test", "/", 421),
        ("a.test", "c.test", "/bound", 421),
        ("c.test", "c.test", "/bound", 200),
    ];
    for (sni, host, path, status) in cases {
        let (mut client, said) = Client::with(gateway.proxy_quic(), &json!({"sni": sni}));
        let own = if sni == "unknown.test" { "localhost" } else { "a.test" };
        assert_eq!(said["connected"], format!("CN={own}"), "{sni}");
        let fields = json!([[":method", "GET"], [":scheme", "https"], [":authority", host], [":path", path]]);
        assert_eq!(
            client.ask_with("a", fields, &json!({})).response("a").status(),
            status,
            "{sni} {host} {path}"
        );
    }
}

#[test]
fn a_route_that_wants_certificates_sends_clients_back_to_http2() {
    let (authority, upstream) = (Identity::new("authority"), Upstream::answering(OK));
    let id = "00000000-0000-0000-0000-00000000000a";
    let plugin = format!("plugins: [{{name: mtls-auth, config: {{ca_certificates: [{id}]}}}}]");
    let services = [
        service("/secret", upstream.address, "", &format!("hosts: [secret.test], {plugin}")),
        service("/open", upstream.address, "", ""),
    ];
    let more = format!("ca_certificates:\n- {{id: {id}, cert: {}}}\n", authority.cert_yaml());
    let gateway = gateway(&document(&services, &more)).start();
    let (mut client, _) = Client::with(gateway.proxy_quic(), &json!({"sni": "secret.test"}));
    let status = |client: &mut Client, path: &str| {
        let fields =
            json!([[":method", "GET"], [":scheme", "https"], [":authority", "secret.test"], [":path", path]]);
        client.ask_with("a", fields, &json!({})).response("a").status()
    };
    assert_eq!((status(&mut client, "/secret"), status(&mut client, "/open")), (421, 200));
    let head = |name: &str| {
        let to = format!("{name}:443:{}", gateway.proxy_ssl());
        curl(&["-ski", "--connect-to", &to, &format!("https://{name}/open")]).to_lowercase()
    };
    assert!(head("other.test").contains("alt-svc"), "{}", head("other.test"));
    assert!(!head("secret.test").contains("alt-svc"), "{}", head("secret.test"));
}

//! Challenges that handshakes answer (RFC 8737).
use super::{certificate, declared, is_discreet, is_of_ca, order, presented, spaced};
use crate::harness::{
    Gateway, Identity, Pebble, PebblePlan, RedisServer, TlsPeer, closed_port, eventually, handshake,
};
use serde_json::{Value, json};

const BY_HANDSHAKE: [&str; 2] = ["-alpn", "acme-tls/1"];

fn by_handshake(more: &Value) -> Value {
    let mut more = more.clone();
    more["challenge"] = "tls-alpn-01".into();
    more
}

/// A node and its CA, which reaches the node by TLS alone.
fn with_ca(more: &Value) -> (Gateway, Pebble) {
    let plan = PebblePlan::on_free_ports();
    let gateway = declared(&plan.directory(), &plan.trusted(), &by_handshake(more)).start();
    let ca = plan.start(closed_port(), &json!({ "tlsPort": gateway.proxy_ssl().port() }));
    (gateway, ca)
}

/// What a client sees that asks for `a.test` by these protocols.
fn seen(node: &Gateway, alpn: &str) -> String {
    handshake(node.proxy_ssl(), &["-servername", "a.test", "-showcerts", "-alpn", alpn])
}

/// Whether the certificate is one that answers challenges.
fn is_proof(seen: &str) -> bool {
    let (_, pem) = x509_parser::pem::parse_x509_pem(spaced(seen).as_bytes()).expect("a certificate");
    let certificate = pem.parse_x509().unwrap();
    certificate.extensions().iter().any(|it| it.oid.to_id_string() == "1.3.6.1.5.5.7.1.31" && it.critical)
}

#[test]
fn a_ca_validates_names_and_addresses_by_handshakes() {
    let (gateway, ca) = with_ca(&json!({ "allow_any_domain": true, "renew_threshold_days": 36500 }));
    assert_eq!(order(&gateway, "a.test", 201), "certificate for host a.test is created");
    assert!(is_of_ca(&presented(gateway.proxy_ssl(), "a.test")));
    order(&gateway, "127.0.0.1", 201);
    assert_eq!(certificate(&gateway, "127.0.0.1")["host"], json!("127.0.0.1"));
    eventually("a first handshake orders one", || is_of_ca(&presented(gateway.proxy_ssl(), "x.b.test")));
    let before = ca.issued();
    eventually("it is renewed", || {
        assert_eq!(gateway.ask_admin("PATCH", "/acme", "{}").status, 202);
        std::thread::park_timeout(std::time::Duration::from_millis(500));
        ca.issued() > before
    });
    is_discreet(&gateway);
}

/// The node with a database has the certificate among its entities, where ordinary handshakes find it.
#[test]
fn a_certificate_of_the_configuration_does_not_hide_a_challenge() {
    let plan = PebblePlan::on_free_ports();
    let gateway = Gateway::empty().set("database", "sqlite");
    let gateway = gateway.set("lua_ssl_trusted_certificate", &plan.trusted()).start();
    let ca = plan.start(closed_port(), &json!({ "tlsPort": gateway.proxy_ssl().port() }));
    let config = super::plugin(&plan.directory(), &by_handshake(&json!({})));
    assert_eq!(gateway.ask_admin("POST", "/plugins?wait=true", &config.to_string()).status, 201);
    let own = Identity::new("a.test");
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let body = json!({ "cert": read(own.cert()), "key": read(own.key()), "snis": ["a.test"] });
    assert_eq!(gateway.ask_admin("POST", "/certificates?wait=true", &body.to_string()).status, 201);
    assert!(presented(gateway.proxy_ssl(), "a.test").contains("CN=a.test"));
    order(&gateway, "a.test", 201);
    eventually("the node presents it", || is_of_ca(&presented(gateway.proxy_ssl(), "a.test")));
    assert_eq!(ca.issued(), 1);
}

/// Two nodes that share a server of Redis: one orders, the CA asks the other one.
#[test]
fn any_node_answers() {
    let (plan, server) = (PebblePlan::on_free_ports(), RedisServer::start());
    let redis = json!({ "host": "127.0.0.1", "port": server.port });
    let more = by_handshake(&json!({ "storage": "redis", "storage_config": { "redis": redis } }));
    let node = || declared(&plan.directory(), &plan.trusted(), &more).start();
    let (one, other) = (node(), node());
    let _ca = plan.start(closed_port(), &json!({ "tlsPort": other.proxy_ssl().port() }));
    order(&one, "a.test", 201);
    assert!(!server.keys().iter().any(|key| key.contains("#tls-alpn-01")), "{:?}", server.keys());
}

#[test]
fn a_cas_handshake_alone_gets_the_certificate_of_a_challenge() {
    let (server, authority) = (RedisServer::start(), Identity::new("localhost"));
    let redis = json!({ "host": "127.0.0.1", "port": server.port });
    let more = by_handshake(&json!({ "storage": "redis", "storage_config": { "redis": redis } }));
    let own = Identity::new("own.test");
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let stored = json!({ "key": read(own.key()), "cert": read(own.cert()) }).to_string();
    server.ask(&["set", "kong_acme:cert_key:a.test", &stored]);
    server.ask(&["set", "a.test#tls-alpn-01", "token.thumbprint"]);
    server.ask(&["set", "c.test#tls-alpn-01", "token.thumbprint"]);
    let gateway = declared("http://127.0.0.1:1/", &authority.cert().display().to_string(), &more).start();

    let of_ca = seen(&gateway, "acme-tls/1");
    assert!(is_proof(&of_ca) && of_ca.contains("ALPNprotocol:acme-tls/1"), "{of_ca}");
    for alpn in ["http/1.1", "h2,http/1.1", "acme-tls/1,http/1.1", "http/1.1,acme-tls/1"] {
        let ordinary = seen(&gateway, alpn);
        assert!(ordinary.contains("CN=own.test") && !is_proof(&ordinary), "{alpn}: {ordinary}");
        assert!(!ordinary.contains("ALPNprotocol:acme-tls/1"), "{alpn}: {ordinary}");
    }
    assert!(presented(gateway.proxy_ssl(), "a.test").contains("CN=own.test"), "without ALPN");

    let mut peer = TlsPeer::connect_with(gateway.proxy_ssl(), "a.test", &BY_HANDSHAKE);
    assert_eq!(peer.rest_after("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"), "", "it carries no HTTP");
    // Another name, which has no order; one that may get no certificate.
    for name in ["x.b.test", "c.test"] {
        let refused = handshake(gateway.proxy_ssl(), &[&["-servername", name], &BY_HANDSHAKE[..]].concat());
        assert!(refused.contains("nopeercertificateavailable"), "{name}: {refused}");
    }
    let answer = gateway.send("GET /.well-known/acme-challenge/x HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(answer.text().contains("no Route matched"), "{}", answer.text());
    is_discreet(&gateway);
}

#[test]
fn with_http_01_a_handshake_answers_no_challenge() {
    let (server, authority) = (RedisServer::start(), Identity::new("localhost"));
    let redis = json!({ "host": "127.0.0.1", "port": server.port });
    let more = json!({ "storage": "redis", "storage_config": { "redis": redis } });
    server.ask(&["set", "a.test#tls-alpn-01", "token.thumbprint"]);
    let gateway = declared("http://127.0.0.1:1/", &authority.cert().display().to_string(), &more).start();
    let refused = seen(&gateway, "acme-tls/1");
    assert!(refused.contains("nopeercertificateavailable"), "{refused}");
}

#[test]
fn a_name_that_leads_elsewhere_gets_none() {
    let plan = PebblePlan::on_free_ports();
    let gateway = declared(&plan.directory(), &plan.trusted(), &by_handshake(&json!({}))).start();
    let _ca = plan.start(gateway.proxy(), &json!({ "tlsPort": closed_port().port() }));
    let message = order(&gateway, "a.test", 500);
    assert!(message.contains("the CA could not validate the name: "), "{message}");
    assert!(message.ends_with("port 443 of the name must lead to this node"), "{message}");
    let test = json!({ "host": "a.test", "test_http_challenge_flow": true });
    let answer = gateway.ask_admin("POST", "/acme", &test.to_string());
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.text().contains("config.challenge is not http-01"), "{}", answer.text());
}

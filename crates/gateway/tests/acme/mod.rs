//! acme against pebble, the CA that Let's Encrypt tests clients with, and against CAs that do not do what they should.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod failures;
mod hashicorp;
mod storages;
mod tls_alpn;

use crate::harness::{Builder, Gateway, Identity, Pebble, PebblePlan, curl, document, eventually, handshake};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// A plugin for this CA, with what a test says beside.
fn plugin(directory: &str, more: &Value) -> Value {
    let mut config = json!({
        "account_email": "ops@example.com", "api_uri": directory, "tos_accepted": true, "cert_type": "ecc",
        "domains": ["a.test", "*.b.test"],
    });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "name": "acme", "config": config })
}

/// A node without a database.
fn declared(directory: &str, trusted: &str, more: &Value) -> Builder {
    with_entities(&plugin(directory, more), "", trusted)
}

fn with_entities(plugin: &Value, more: &str, trusted: &str) -> Builder {
    let builder = Gateway::builder(&document(&[], &format!("plugins: [{plugin}]\n{more}")));
    builder.set("lua_ssl_trusted_certificate", trusted).set("log_level", "debug").set("workers", "2")
}

/// A node and its CA.
fn with_ca(more: &Value, of_ca: &Value) -> (Gateway, Pebble) {
    let plan = PebblePlan::on_free_ports();
    let gateway = declared(&plan.directory(), &plan.trusted(), more).start();
    let ca = plan.start(gateway.proxy(), of_ca);
    (gateway, ca)
}

/// What a client sees that asks for a name.
fn presented(address: SocketAddr, name: &str) -> String {
    handshake(address, &["-servername", name])
}

fn is_of_ca(handshake: &str) -> bool {
    handshake.contains("PebbleIntermediateCA")
}

#[track_caller]
fn order(gateway: &Gateway, host: &str, status: u16) -> String {
    let answer = gateway.ask_admin("POST", "/acme", &json!({ "host": host }).to_string());
    assert_eq!(answer.status, status, "{}\n{}", answer.text(), gateway.log());
    answer.json()["message"].as_str().unwrap().to_owned()
}

fn certificate(gateway: &Gateway, host: &str) -> Value {
    let answer = gateway.admin(&format!("/acme/certificates/{host}"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["data"].clone()
}

/// Secrets are in no log.
#[track_caller]
fn is_discreet(gateway: &Gateway) {
    let log = gateway.log();
    for secret in
        ["PRIVATE KEY", "hunter2", "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"]
    {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn orders_at_the_same_time_have_one_account() {
    let (gateway, ca) = with_ca(&json!({}), &json!({}));
    std::thread::scope(|scope| {
        for number in 0..6 {
            let gateway = &gateway;
            scope.spawn(move || order(gateway, &format!("n{number}.b.test"), 201));
        }
    });
    let log = ca.log();
    assert!(log.contains("There are now 1 accounts") && !log.contains("There are now 2 accounts"), "{log}");
}

#[test]
fn a_first_handshake_orders_a_certificate_that_later_ones_get() {
    let (gateway, ca) = with_ca(&json!({}), &json!({}));
    let tls = gateway.proxy_ssl();
    let first = presented(tls, "a.test");
    assert!(!first.is_empty() && !is_of_ca(&first), "{first}");
    eventually("a.test has a certificate", || is_of_ca(&presented(tls, "A.test")));
    eventually("x.y.b.test has a certificate", || is_of_ca(&presented(tls, "x.y.b.test")));
    for name in ["b.test", "c.test"] {
        assert!(!is_of_ca(&presented(tls, name)), "{name}");
    }
    assert!(!is_of_ca(&handshake(tls, &["-noservername"])));
    assert_eq!(ca.issued(), 2);

    let shown = certificate(&gateway, "a.test");
    assert_eq!((&shown["host"], &shown["valid"]), (&json!("a.test"), &json!(true)), "{shown}");
    assert_eq!(shown["pubkey_type"], json!("id-ecPublicKey"));
    assert!(shown["issuer_cn"].as_str().unwrap().starts_with("Pebble Intermediate CA"), "{shown}");
    assert_eq!(shown["digest"].as_str().unwrap().len(), 20 * 3 - 1);
    let listed = gateway.admin("/acme/certificates").json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 2, "{listed}");
    assert_eq!(gateway.admin("/acme/certificates?invalid_only=true").json(), json!({ "data": [] }));
    let missing = gateway.admin("/acme/certificates/c.test");
    assert_eq!(
        (missing.status, missing.json()["message"].as_str()),
        (404, Some("Certificate for host c.testnot found in storage"))
    );
    is_discreet(&gateway);
}

#[test]
fn the_admin_api_orders_for_allowed_hosts() {
    let (gateway, _ca) = with_ca(&json!({ "cert_type": "rsa", "rsa_key_size": 2048 }), &json!({}));
    assert_eq!(order(&gateway, "a.test", 201), "certificate for host a.test is created");
    assert!(is_of_ca(&presented(gateway.proxy_ssl(), "a.test")));
    assert_eq!(certificate(&gateway, "a.test")["pubkey_type"], json!("rsaEncryption"));
    let again = order(&gateway, "a.test", 500);
    assert!(
        again.starts_with("failed to update certificate: a certificate for a.test is being ordered"),
        "{again}"
    );
    let refused = |body: &Value| {
        let answer = gateway.ask_admin("POST", "/acme", &body.to_string());
        assert_eq!(answer.status, 400, "{}", answer.text());
        answer.json()["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(refused(&json!({})), "host must be provided and containing a single domain");
    assert_eq!(
        refused(&json!({ "host": ["a.test"] })),
        "host must be provided and containing a single domain"
    );
    assert_eq!(refused(&json!({ "host": "a.test:80" })), "port is not allowed in host");
    let sanity =
        "problem found running sanity check for c.test: host is not included in plugin config.domains";
    assert_eq!(refused(&json!({ "host": "c.test" })), sanity);
    assert_eq!(refused(&json!({ "host": "c.test", "test_http_challenge_flow": true })), sanity);
    for host in ["127.0.0.1/admin?.b.test", "evil@c.b.test", "-.b.test", "a b.b.test"] {
        let said = refused(&json!({ "host": host, "test_http_challenge_flow": true }));
        assert_eq!(said, format!("problem found running sanity check for {host}: it is no host name"));
    }
    let form = ["--silent", "-d", "host=c.test", "-d", "test_http_challenge_flow=true"];
    let admin = format!("http://{}/acme", gateway.admin_addresses()[0]);
    assert_eq!(curl(&[&form[..], &[&admin]].concat()), json!({ "message": sanity }).to_string());
    is_discreet(&gateway);
}

#[test]
fn challenges_are_answered_by_plain_http_alone_without_a_route() {
    let (gateway, _ca) = with_ca(&json!({}), &json!({}));
    let ask = |host: &str, token: &str| {
        let request = format!("GET /.well-known/acme-challenge/{token} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = gateway.send(&request);
        (answer.status, answer.text().to_owned())
    };
    for token in ["x", "no-such-token", "no/token", "no%20token"] {
        assert_eq!(ask("a.test", token), (404, "Not found\n".to_owned()), "{token}");
    }
    assert_eq!(ask("a.test.", "x"), (404, "Not found\n".to_owned()), "a dot may follow the name");
    let no_route = "no Route matched with those values";
    assert!(ask("c.test", "x").1.contains(no_route));
    assert!(ask("a.test", "").1.contains(no_route));
    let over_tls = curl(&[
        "--silent",
        "--insecure",
        "--header",
        "Host: a.test",
        &format!("https://{}/.well-known/acme-challenge/x", gateway.proxy_ssl()),
    ]);
    assert!(over_tls.contains(no_route), "{over_tls}");
}

#[test]
fn an_address_gets_a_certificate_unless_that_is_off() {
    let any = json!({ "allow_any_domain": true });
    let (gateway, _ca) = with_ca(&any, &json!({}));
    assert_eq!(order(&gateway, "127.0.0.1", 201), "certificate for host 127.0.0.1 is created");
    assert_eq!(certificate(&gateway, "127.0.0.1")["host"], json!("127.0.0.1"));
    let identity = Identity::new("localhost");
    let without = json!({ "allow_any_domain": true, "enable_ipv4_common_name": false });
    let gateway = declared("https://127.0.0.1:1/", &identity.cert().display().to_string(), &without).start();
    assert!(order(&gateway, "127.0.0.1", 400).ends_with("not included in plugin config.domains"));
}

#[test]
fn certificates_are_renewed_with_the_same_key() {
    // Everything is due always.
    let (gateway, ca) = with_ca(&json!({ "renew_threshold_days": 36500 }), &json!({}));
    order(&gateway, "a.test", 201);
    let key = || handshake(gateway.proxy_ssl(), &["-servername", "a.test", "-showcerts"]);
    let before = certificate(&gateway, "a.test")["serial_number"].clone();
    let public_key = |text: &str| {
        let (_, pem) = x509_parser::pem::parse_x509_pem(text.as_bytes()).unwrap();
        pem.parse_x509().unwrap().public_key().raw.to_vec()
    };
    let key_before = public_key(&spaced(&key()));
    // The lock of the order lasts for ten seconds more.
    eventually("the certificate is renewed", || {
        let answer = gateway.ask_admin("PATCH", "/acme", "{}");
        assert_eq!(
            (answer.status, answer.json()),
            (202, json!({ "message": "Renewal process started successfully" }))
        );
        std::thread::park_timeout(std::time::Duration::from_millis(500));
        certificate(&gateway, "a.test")["serial_number"] != before
    });
    eventually("the new one is presented", || ca.issued() == 2 && is_of_ca(&key()));
    assert_eq!(public_key(&spaced(&key())), key_before);
}

/// PEM without the spaces that the handshake's text has lost.
fn spaced(text: &str) -> String {
    text.replace("BEGINCERTIFICATE", "BEGIN CERTIFICATE").replace("ENDCERTIFICATE", "END CERTIFICATE")
}

#[test]
fn a_ca_may_ask_for_an_external_account() {
    let secret = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let of_ca =
        json!({ "externalAccountBindingRequired": true, "externalAccountMACKeys": { "kid-1": secret } });
    let (gateway, _ca) = with_ca(&json!({ "eab_kid": "kid-1", "eab_hmac_key": secret }), &of_ca);
    order(&gateway, "a.test", 201);
    is_discreet(&gateway);
    let (gateway, _ca) = with_ca(&json!({}), &of_ca);
    let message = order(&gateway, "a.test", 500);
    assert!(
        message.ends_with("it requires an external account binding: set eab_kid and eab_hmac_key"),
        "{message}"
    );
    let wrong = json!({ "eab_kid": "kid-1", "eab_hmac_key": "aHVudGVyMg" });
    let (gateway, _ca) = with_ca(&wrong, &of_ca);
    let message = order(&gateway, "a.test", 500);
    assert!(message.contains("the CA refused the account") && !message.contains("aHVudGVyMg"), "{message}");
    is_discreet(&gateway);
}

#[test]
fn the_account_may_have_a_key_of_ones_own() {
    let plan = PebblePlan::on_free_ports();
    let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let keys = json!([
        { "kid": "mine", "name": "mine", "set": { "name": "cas" }, "pem": { "private_key": pem, "public_key": "" } },
    ]);
    let mut keys = keys;
    keys[0]["pem"].as_object_mut().unwrap().remove("public_key");
    let more = format!("key_sets: [{{name: cas}}]\nkeys: {keys}\n");
    let config = plugin(&plan.directory(), &json!({ "account_key": { "key_id": "mine", "key_set": "cas" } }));
    let gateway = with_entities(&config, &more, &plan.trusted()).start();
    let _ca = plan.start(gateway.proxy(), &json!({}));
    order(&gateway, "a.test", 201);
    is_discreet(&gateway);
    let config = plugin(&plan.directory(), &json!({ "account_key": { "key_id": "other" } }));
    let gateway = with_entities(&config, &more, &plan.trusted()).start();
    let message = order(&gateway, "a.test", 500);
    assert!(message.ends_with("there is no such key: check account_key"), "{message}");
}

#[test]
fn the_preferred_chain_is_taken() {
    let plan = PebblePlan::on_free_ports();
    let before = declared(&plan.directory(), &plan.trusted(), &json!({})).start();
    let ca = plan.start(before.proxy(), &json!({}));
    let roots = [ca.root(0), ca.root(1)];
    for (host, preferred) in [("a.b.test", &roots[1]), ("b.b.test", &roots[0])] {
        let config = plugin(&plan.directory(), &json!({ "preferred_chain": preferred }));
        let configuration = document(&[], &format!("plugins: [{config}]\n"));
        assert!(before.reload(&configuration).status.success());
        order(&before, host, 201);
        let shown = handshake(before.proxy_ssl(), &["-servername", host, "-showcerts"]);
        assert!(shown.contains(&format!("i:CN={}", preferred.replace(' ', ""))), "{preferred}: {shown}");
    }
}

//! TLS towards clients, seen by OpenSSL.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Identity, Peer, TlsPeer, Upstream, document, eventually, handshake, service};
use serde_json::json;
use std::io::Write;
use std::process::{Command, Stdio};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// A certificate entity for an identity and the names it serves.
fn certificate(identity: &Identity, names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("{{name: \"{name}\"}}")).collect();
    format!(
        "- {{cert: {}, key: {}, snis: [{}]}}\n",
        identity.cert_yaml(),
        identity.key_yaml(),
        names.join(", ")
    )
}

#[test]
fn the_certificate_follows_the_server_name_in_kong_s_order() {
    let identities = ["exact", "suffix", "prefix", "any"].map(Identity::new);
    let [exact, suffix, prefix, any] = &identities;
    let certificates = [
        certificate(exact, &["www.shop.test"]),
        certificate(suffix, &["*.shop.test"]),
        certificate(prefix, &["www.other.*"]),
    ];
    let specific = format!("_format_version: \"3.0\"\ncertificates:\n{}", certificates.concat());
    let gateway = Gateway::start(&specific);
    let subject = |arguments: &[&str]| handshake(gateway.proxy_ssl(), arguments);
    let serves = |name: &str, expected: &str| {
        let said = subject(&["-servername", name]);
        assert!(said.contains(&format!("subject=CN={expected}\n")), "{name}: no {expected} in {said}");
    };
    let names = [
        ("www.shop.test", "exact"),
        ("WWW.Shop.Test", "exact"),
        ("api.shop.test", "suffix"),
        ("www.other.test", "prefix"),
    ];
    names.iter().for_each(|(name, expected)| serves(name, expected));
    // The last ones are no names of hosts; as if the client had named none.
    for name in ["unknown.test", "a_b.test", "_", "127.0.0.1"] {
        serves(name, "localhost");
    }
    assert!(subject(&["-noservername"]).contains("subject=CN=localhost\n"));
    let output = gateway.reload(&format!("{specific}{}", certificate(any, &["*"])));
    assert!(output.status.success(), "{output:?}");
    names.iter().for_each(|(name, expected)| serves(name, expected));
    serves("unknown.test", "any");
}

#[test]
fn a_certificate_whose_rsa_key_is_too_short_is_not_presented() {
    let weak = certificate(&Identity::rsa("weak.test", 1024), &["weak.test"]);
    let gateway = Gateway::start(&format!("_format_version: \"3.0\"\ncertificates:\n{weak}"));
    let said = handshake(gateway.proxy_ssl(), &["-servername", "weak.test"]);
    assert!(said.contains("subject=CN=localhost\n"), "{said}");
    assert!(gateway.log().contains("an RSA key of 1024 bits"), "{}", gateway.log());
}

#[test]
fn a_key_of_another_certificate_is_refused_at_its_place() {
    let (one, other) = (Identity::new("one"), Identity::new("other"));
    let mixed = format!("- {{cert: {}, key: {}}}\n", one.cert_yaml(), other.key_yaml());
    let good = certificate(&other, &["other.test"]);
    let (_, said) =
        Gateway::builder(&format!("_format_version: \"3.0\"\ncertificates:\n{good}{mixed}")).fail();
    let expected = "kong.yml:4:3: certificates[1]: the private key does not belong to the certificate";
    assert!(said.contains(expected), "{said}");
}

/// Of the kinds that `openssl x509 -req` and `kong hybrid gen_cert` make.
#[test]
fn certificates_of_version_1_are_served_like_others() {
    let authority = Identity::new("authority.test");
    let (named, default) =
        (Identity::self_signed_version_1("old.test"), Identity::version_1("default.test", &authority));
    let entity = certificate(&named, &["old.test"]);
    let gateway = Gateway::builder(&format!("_format_version: \"3.0\"\ncertificates:\n{entity}"))
        .set("ssl_cert", default.cert().to_str().unwrap())
        .set("ssl_cert_key", default.key().to_str().unwrap())
        .start();
    for version in ["-tls1_2", "-tls1_3"] {
        for (name, expected) in [("old.test", "old.test"), ("other.test", "default.test")] {
            let said = handshake(gateway.proxy_ssl(), &[version, "-servername", name]);
            assert!(said.contains(&format!("subject=CN={expected}\n")), "{name}: {said}");
            assert!(said.contains("New,TLSv1."), "{name}: {said}");
        }
    }
    let trusted = named.cert().display().to_string();
    let said = handshake(gateway.proxy_ssl(), &["-servername", "old.test", "-CAfile", &trusted]);
    assert!(said.contains("Verifyreturncode:0(ok)"), "{said}");
}

#[test]
fn a_certificate_of_version_1_is_served_once_it_is_stored() {
    let (identity, other) =
        (Identity::self_signed_version_1("old.test"), Identity::self_signed_version_1("other.test"));
    let read = |file| std::fs::read_to_string(file).unwrap();
    let gateway = Gateway::empty().start();
    let entity =
        |key| json!({ "cert": read(identity.cert()), "key": read(key), "snis": ["old.test"] }).to_string();
    let wrong = gateway.ask_admin("POST", "/certificates", &entity(other.key()));
    assert!(wrong.status == 400 && wrong.text().contains("does not belong"), "{}", wrong.text());
    let stored = gateway.ask_admin("POST", "/certificates?wait=true", &entity(identity.key()));
    assert_eq!(stored.status, 201, "{}", stored.text());
    let said = handshake(gateway.proxy_ssl(), &["-servername", "old.test"]);
    assert!(said.contains("subject=CN=old.test\n"), "{said}");
}

#[test]
fn a_key_of_another_certificate_of_version_1_is_refused() {
    let (one, other) =
        (Identity::self_signed_version_1("one.test"), Identity::self_signed_version_1("other.test"));
    let mixed = format!("- {{cert: {}, key: {}}}\n", one.cert_yaml(), other.key_yaml());
    let (_, said) = Gateway::builder(&format!("_format_version: \"3.0\"\ncertificates:\n{mixed}")).fail();
    assert!(said.contains("certificates[0]: the private key does not belong to the certificate"), "{said}");
}

#[test]
fn both_versions_of_tls_are_spoken_and_sessions_resumed() {
    let gateway = Gateway::start("_format_version: \"3.0\"\n");
    let address = gateway.proxy_ssl();
    assert!(handshake(address, &["-tls1_3"]).contains("New,TLSv1.3"));
    assert!(handshake(address, &["-tls1_2"]).contains("New,TLSv1.2"));
    assert!(!handshake(address, &["-tls1_1"]).contains("TLSv1.1,Cipheris"));
    assert!(handshake(address, &["-tls1_2", "-reconnect"]).contains("Reused,TLSv1.2"));
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("session").display().to_string();
    TlsSession(&session).keep(&gateway);
    assert!(handshake(address, &["-tls1_3", "-sess_in", &session]).contains("Reused,TLSv1.3"));
}

/// A file that a TLS 1.3 session is kept in. Its ticket comes with the first answer.
struct TlsSession<'a>(&'a str);

impl TlsSession<'_> {
    fn keep(&self, gateway: &Gateway) {
        let mut child = Command::new("openssl")
            .args(["s_client", "-quiet", "-tls1_3", "-sess_out", self.0, "-connect"])
            .arg(gateway.proxy_ssl().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        write!(input, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_reload_replaces_certificates_and_leaves_open_connections() {
    let (before, after) = (Identity::new("before"), Identity::new("after"));
    let upstream = Upstream::answering(OK);
    let configured = |identity: &Identity| {
        let certificates = format!("certificates:\n{}", certificate(identity, &["a.test"]));
        document(&[service("/", upstream.address, "", "")], &certificates)
    };
    let gateway = Gateway::start(&configured(&before));
    let mut open = TlsPeer::connect(gateway.proxy_ssl(), "a.test");
    assert_eq!(open.get("/"), ("HTTP/1.1 200 OK".to_owned(), "hi".to_owned()));
    let output = gateway.reload(&configured(&after));
    assert!(output.status.success(), "{output:?}");
    assert!(handshake(gateway.proxy_ssl(), &["-servername", "a.test"]).contains("subject=CN=after\n"));
    assert_eq!(open.get("/"), ("HTTP/1.1 200 OK".to_owned(), "hi".to_owned()));
}

#[test]
fn cipher_suites_and_tickets_are_those_of_the_settings() {
    let gateway = |settings: &[(&str, &str)]| {
        let builder = Gateway::builder("_format_version: \"3.0\"\n");
        settings.iter().fold(builder, |builder, (name, value)| builder.set(name, value)).start()
    };
    let custom = ("ssl_cipher_suite", "custom");
    let named = ("ssl_ciphers", "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256:AES128-SHA");
    let [aes, chacha, strong] =
        ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES256-GCM-SHA384"];
    let offers =
        |gateway: &Gateway, ciphers: &str| handshake(gateway.proxy_ssl(), &["-tls1_2", "-cipher", ciphers]);
    let both = format!("{strong}:{aes}:{chacha}");
    let ours = gateway(&[custom, named]);
    assert!(offers(&ours, &both).contains(&format!("Cipheris{chacha}")));
    assert!(
        !offers(&ours, strong).contains("Cipheris(?)ECDHE")
            && offers(&ours, strong).contains("Cipheris(NONE)")
    );
    assert!(ours.log().contains("AES128-SHA"), "{}", ours.log());
    assert!(handshake(ours.proxy_ssl(), &["-tls1_3"]).contains("New,TLSv1.3"));
    let theirs =
        gateway(&[custom, named, ("ssl_prefer_server_ciphers", "off"), ("ssl_session_tickets", "off")]);
    assert!(offers(&theirs, &both).contains(&format!("Cipheris{aes}")));
    let ticket = "TLSsessionticket:";
    assert!(offers(&ours, aes).contains(ticket) && !offers(&theirs, aes).contains(ticket));
    assert!(handshake(theirs.proxy_ssl(), &["-tls1_2", "-reconnect"]).contains("Reused,TLSv1.2"));
}

#[test]
fn a_handshake_that_never_comes_is_not_waited_for_forever() {
    let gateway =
        Gateway::builder("_format_version: \"3.0\"\n").set("client_header_timeout", "300ms").start();
    let mut silent = Peer::connect(gateway.proxy_ssl());
    let mut begun = Peer::connect(gateway.proxy_ssl());
    begun.send([22, 3, 1]);
    assert!(silent.is_closed());
    assert!(begun.is_closed());
    eventually("both are counted", || gateway.acted("handshake_time") == 2);
}

#[test]
fn plain_http_where_tls_is_spoken_is_answered_in_clear() {
    let gateway = Gateway::start("_format_version: \"3.0\"\n");
    let mut peer = Peer::connect(gateway.proxy_ssl());
    let answer = peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response();
    assert_eq!((answer.status, answer.header("connection")), (400, Some("close")));
    assert_eq!(answer.json()["message"], "The plain HTTP request was sent to HTTPS port");
    assert_eq!(peer.head(), None, "the connection is closed");
}

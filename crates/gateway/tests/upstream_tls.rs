//! TLS towards upstreams, seen by OpenSSL, nginx and rustls: whom the gateway trusts, whom it asks for, and who it says
//! it is.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Identity, NginxOverTls, TlsUpstream, Upstream, document, eventually, service};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

const ONE: &str = "00000000-0000-0000-0000-00000000000a";
const TWO: &str = "00000000-0000-0000-0000-00000000000b";

fn https(path: &str, host: &str, fields: &str, route_fields: &str) -> String {
    service(path, host, fields, route_fields).replace("http://", "https://")
}

/// Entities of certificates with their keys.
fn certificates(identities: &[(&str, &Identity)]) -> String {
    let entity = |(id, identity): &(&str, &Identity)| {
        format!("- {{id: {id}, cert: {}, key: {}}}\n", identity.cert_yaml(), identity.key_yaml())
    };
    format!("certificates:\n{}", identities.iter().map(entity).collect::<String>())
}

/// What the upstream answers to a client that asks for a host.
fn seen(gateway: &Gateway, path: &str, host: &str) -> String {
    let answer = gateway.connect().send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).response();
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.text().to_owned()
}

#[test]
fn upstreams_are_verified_as_their_service_says() {
    let (authority, other, client) =
        (Identity::new("authority"), Identity::new("other.test"), Identity::new("client"));
    let server = Identity::signed("inner.test", &authority);
    let plain = TlsUpstream::start(&server, &[]);
    let client_file = client.cert().display().to_string();
    let mutual =
        TlsUpstream::start(&server, &["-Verify", "1", "-verify_return_error", "-CAfile", &client_file]);
    let ca = |id: &str, identity: &Identity| format!("- {{id: {id}, cert: {}}}\n", identity.cert_yaml());
    let (right, wrong, own) = (
        "00000000-0000-0000-0000-00000000000a",
        "00000000-0000-0000-0000-00000000000b",
        "00000000-0000-0000-0000-00000000000c",
    );
    let more = format!(
        "ca_certificates:\n{}{}certificates:\n- {{id: {own}, cert: {}, key: {}}}\n",
        ca(right, &authority),
        ca(wrong, &other),
        client.cert_yaml(),
        client.key_yaml()
    );
    let https = |path: &str, upstream: &TlsUpstream, fields: &str| {
        service(path, upstream.address, fields, "").replace("http://", "https://")
    };
    let verified = |id: &str| format!("tls_verify: true, ca_certificates: [{id}]");
    let services = [
        https("/unverified", &plain, ""),
        https("/off", &plain, "tls_verify: false"),
        https("/right", &plain, &verified(right)),
        https("/wrong", &plain, &verified(wrong)),
        https("/system", &plain, "tls_verify: true"),
        https("/anonymous", &mutual, ""),
        https("/known", &mutual, &format!("client_certificate: {own}")),
        https("/both", &mutual, &format!("client_certificate: {own}, {}", verified(right))),
    ];
    let gateway = Gateway::start(&document(&services, &more));
    for (path, status) in [
        ("/unverified", 200),
        ("/off", 200),
        ("/right", 200),
        ("/wrong", 502),
        ("/system", 502),
        ("/anonymous", 502),
        ("/known", 200),
        ("/both", 200),
    ] {
        let response = gateway.get(path);
        assert_eq!(response.status, status, "{path}: {}", response.text());
        if status == 200 {
            assert!(response.text().contains("s_server -www"), "{path}: {}", response.text());
        }
    }
}

fn config(identity: &Identity) -> Arc<ServerConfig> {
    let certs = CertificateDer::pem_file_iter(identity.cert()).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(identity.key()).unwrap();
    Arc::new(ServerConfig::builder().with_no_client_auth().with_single_cert(certs, key).unwrap())
}

/// An upstream that ends each session in good order soon after its first response.
fn closing(identity: &Identity) -> Upstream {
    let config = config(identity);
    Upstream::start(move |peer, _| {
        let mut socket = peer.socket().try_clone().unwrap();
        let mut session = ServerConnection::new(config.clone()).unwrap();
        let mut stream = Stream::new(&mut session, &mut socket);
        let (mut request, mut bytes) = (Vec::new(), [0; 4096]);
        while !request.ends_with(b"hello") {
            let length = stream.read(&mut bytes).unwrap();
            request.extend_from_slice(&bytes[..length]);
        }
        stream.write_all(OK.as_bytes()).unwrap();
        thread::park_timeout(Duration::from_millis(100));
        session.send_close_notify();
        session.complete_io(&mut socket).unwrap();
    })
}

/// A connection that was closed in good order while idle carries no other request, not even one that could not be
/// sent twice.
#[test]
fn an_upstream_s_close_notify_is_noticed() {
    let upstream = closing(&Identity::new("inner.test"));
    let services = service("/", upstream.address, "", "").replace("http://", "https://");
    let gateway = Gateway::start(&document(&[services], ""));
    let mut client = gateway.connect();
    for round in 0..3 {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        let response = client.response();
        assert_eq!(response.status, 200, "round {round}: {}", response.text());
        thread::park_timeout(Duration::from_millis(300));
    }
    assert_eq!(upstream.connections(), 3);
}

/// An upstream that answers all requests of a session.
fn keeping(identity: &Identity) -> Upstream {
    let config = config(identity);
    Upstream::start(move |peer, _| {
        let session = ServerConnection::new(config.clone()).unwrap();
        let mut stream = BufReader::new(StreamOwned::new(session, peer.into_socket()));
        let mut line = String::new();
        while matches!(stream.read_line(&mut line), Ok(1..)) {
            if line == "\r\n" && stream.get_mut().write_all(OK.as_bytes()).is_err() {
                return;
            }
            line.clear();
        }
    })
}

#[test]
fn names_that_clients_make_up_keep_no_other_name_s_connection_out_of_the_pool() {
    let upstream = keeping(&Identity::new("inner.test"));
    let services = [https("/", &upstream.address.to_string(), "", "preserve_host: true")];
    let gateway = Gateway::builder(&document(&services, "")).set("upstream_keepalive_pool_size", "2").start();
    for host in ["one.test", "two.test", "steady.test", "steady.test"] {
        assert_eq!(seen(&gateway, "/", host), "hi");
    }
    assert_eq!(upstream.connections(), 3);
}

/// As nginx behind Kong: the name is the host that the request names, without its port; an address is no name.
#[test]
fn the_name_that_is_asked_for_is_the_host_that_the_request_names() {
    let upstream = NginxOverTls::start(&Identity::new("x.test"), &[], "", "$ssl_server_name $http_host");
    let port = upstream.address.port();
    let mut hosts = tempfile::NamedTempFile::new().unwrap();
    writeln!(hosts, "127.0.0.1 named.test target.test").unwrap();
    let named = format!("named.test:{port}");
    let kept = "preserve_host: true";
    let services = [
        https("/named", &named, "", ""),
        https("/named-kept", &named, "", kept),
        https("/address", &upstream.address.to_string(), "", ""),
        https("/address-kept", &upstream.address.to_string(), "", kept),
        https("/target", "balanced", "", ""),
        https("/target-kept", "balanced", "", kept),
        https("/header", "headed", "", ""),
        https("/header-port", "headed-with-port", "", ""),
        https("/header-kept", "headed", "", kept),
    ];
    let target = format!("targets: [{{target: \"target.test:{port}\"}}]");
    let upstreams = format!(
        "upstreams:\n- {{name: balanced, {target}}}\n- {{name: headed, host_header: inner.test, {target}}}\n\
         - {{name: headed-with-port, host_header: \"inner.test:8443\", {target}}}\n"
    );
    let gateway = Gateway::builder(&document(&services, &upstreams))
        .set("dns_hostsfile", hosts.path().to_str().unwrap())
        .start();
    for (path, expected) in [
        ("/named", format!("named.test {named}")),
        ("/named-kept", "client.test client.test:81".to_owned()),
        ("/address", format!(" {}", upstream.address)),
        ("/address-kept", "client.test client.test:81".to_owned()),
        ("/target", format!("target.test target.test:{port}")),
        ("/target-kept", "client.test client.test:81".to_owned()),
        ("/header", "inner.test inner.test".to_owned()),
        ("/header-port", "inner.test inner.test:8443".to_owned()),
        ("/header-kept", "client.test client.test:81".to_owned()),
    ] {
        assert_eq!(seen(&gateway, path, "client.test:81"), expected, "{path}");
    }
}

#[test]
fn a_certificate_is_presented_of_the_service_then_the_upstream_then_the_settings() {
    presents(&["of-service", "of-upstream", "of-node"].map(Identity::new));
}

#[test]
fn certificates_of_version_1_are_presented_too() {
    presents(&["of-service", "of-upstream", "of-node"].map(Identity::self_signed_version_1));
}

/// Checks that these are presented: the first of a service, the second of an upstream, the third of the settings.
fn presents([of_service, of_upstream, of_node]: &[Identity; 3]) {
    let upstream = NginxOverTls::start(
        &Identity::new("x.test"),
        &[],
        "ssl_verify_client optional_no_ca;",
        "$ssl_client_s_dn",
    );
    let own = format!("client_certificate: {ONE}");
    let address = upstream.address.to_string();
    let services = [
        https("/service", &address, &own, ""),
        https("/upstream", "balanced", "", ""),
        https("/both", "balanced", &own, ""),
        https("/neither", &address, "", ""),
    ];
    let upstreams = format!(
        "upstreams:\n- {{name: balanced, client_certificate: {TWO}, targets: [{{target: \"{address}\"}}]}}\n"
    );
    let more = format!("{upstreams}{}", certificates(&[(ONE, of_service), (TWO, of_upstream)]));
    let text = document(&services, &more);
    let (cert, key) = (of_node.cert().display().to_string(), of_node.key().display().to_string());
    let files = [("client_ssl_cert", cert.as_str()), ("client_ssl_cert_key", key.as_str())];
    let on = ("client_ssl", "on");
    for (settings, default) in [
        (vec![], ""),
        (files.to_vec(), ""),
        ([&files[..], &[on]].concat(), "CN=of-node"),
        (vec![on], "CN=localhost"),
    ] {
        let builder = Gateway::builder(&text);
        let gateway =
            settings.iter().fold(builder, |builder, (name, value)| builder.set(name, value)).start();
        for (path, expected) in [
            ("/service", "CN=of-service"),
            ("/upstream", "CN=of-upstream"),
            ("/both", "CN=of-service"),
            ("/neither", default),
        ] {
            assert_eq!(seen(&gateway, path, "a"), expected, "{path} with {settings:?}");
        }
    }
}

#[test]
fn an_upstream_of_version_1_is_refused_where_it_is_verified_and_the_log_says_why() {
    let authority = Identity::new("authority");
    let upstream = TlsUpstream::start(&Identity::version_1("inner.test", &authority), &[]);
    let address = upstream.address.to_string();
    let verified = format!("tls_verify: true, ca_certificates: [{ONE}]");
    let services = [https("/verified", &address, &verified, ""), https("/any", &address, "", "")];
    let authorities = format!("ca_certificates:\n- {{id: {ONE}, cert: {}}}\n", authority.cert_yaml());
    let gateway = Gateway::start(&document(&services, &authorities));
    assert_eq!(["/verified", "/any"].map(|path| gateway.get(path).status), [502, 200]);
    let log = gateway.log();
    let advice = "is of X.509 version 1 and cannot be verified: issue one of version 3 with a subjectAltName";
    assert!(log.contains(advice), "{log}");
}

#[test]
fn a_failed_handshake_is_logged_in_plain_words_and_with_the_fix() {
    let (authority, other) = (Identity::new("authority"), Identity::new("other.test"));
    let started = |answer: &'static str| {
        Upstream::start(move |mut peer, _| {
            let _ = peer.reader().read(&mut [0; 1024]);
            peer.send(answer);
        })
    };
    let plain = started("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let closing = started("");
    let server = TlsUpstream::start(&Identity::signed("inner.test", &authority), &[]);
    let client = other.cert().display().to_string();
    let demanding = ["-Verify", "1", "-verify_return_error", "-CAfile", &client, "-tls1_2"];
    let mutual = TlsUpstream::start(&Identity::signed("inner.test", &authority), &demanding);
    let (port, address) = (server.address.port(), server.address.to_string());
    let trusting = format!("tls_verify: true, ca_certificates: [{ONE}]");
    let distrusting = format!("tls_verify: true, ca_certificates: [{TWO}]");
    let services = [
        https("/plain", &plain.address.to_string(), "", ""),
        https("/closing", &closing.address.to_string(), "", ""),
        https("/name", &format!("localhost:{port}"), &trusting, ""),
        https("/authority", &address, &distrusting, ""),
        https("/client", &mutual.address.to_string(), "", ""),
    ];
    let ca = |id: &str, identity: &Identity| format!("- {{id: {id}, cert: {}}}\n", identity.cert_yaml());
    let authorities = format!("ca_certificates:\n{}{}", ca(ONE, &authority), ca(TWO, &other));
    let gateway = Gateway::start(&document(&services, &authorities));
    for (path, what, fix) in [
        ("/plain", "the server answered without TLS (", "write `protocol: http` in the service"),
        ("/closing", "the server ended the TLS handshake (", "or the port at which the server speaks TLS"),
        (
            "/name",
            "the server's certificate is for other names (",
            "address the server by a name in the certificate",
        ),
        (
            "/authority",
            "the server's certificate is issued by no authority that is trusted (",
            "`ca_certificates`",
        ),
        ("/client", "or asked for a certificate (", "or configure the client's certificate"),
    ] {
        let answer = gateway.get(path);
        assert_eq!(answer.status, 502, "{path}");
        assert!(!answer.text().contains("TLS") && !answer.text().contains("ertificate"), "{}", answer.text());
        eventually("the log says it", || {
            gateway.log().lines().any(|line| line.contains(what) && line.contains(fix))
        });
    }
}

#[test]
fn an_authority_of_version_1_is_trusted() {
    let authority = Identity::self_signed_version_1("authority");
    let upstream = TlsUpstream::start(&Identity::signed("inner.test", &authority), &[]);
    let services = [https("/", &upstream.address.to_string(), "tls_verify: true", "")];
    let gateway = Gateway::builder(&document(&services, ""))
        .set("lua_ssl_trusted_certificate", authority.cert().to_str().unwrap())
        .start();
    assert_eq!(gateway.get("/").status, 200, "{}", gateway.log());
}

#[test]
fn a_certificate_of_the_settings_that_cannot_be_used_stops_the_start() {
    let (one, other) = (Identity::new("one"), Identity::new("other"));
    let (_, said) = Gateway::builder("_format_version: \"3.0\"\n")
        .set("client_ssl", "on")
        .set("client_ssl_cert", one.cert().to_str().unwrap())
        .set("client_ssl_cert_key", other.key().to_str().unwrap())
        .fail();
    let expected =
        "client_ssl_cert and client_ssl_cert_key: the private key does not belong to the certificate";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn probes_ask_for_the_host_of_the_upstream_and_present_its_certificate() {
    let known = Identity::new("probe");
    let asks = format!(
        "ssl_verify_client on; ssl_client_certificate {}; if ($ssl_server_name != inner.test) {{ return 500; }}",
        known.cert().display()
    );
    let upstream = NginxOverTls::start(&Identity::new("x.test"), &[], &asks, "ok");
    let checks = "{active: {type: https, https_verify_certificate: false, healthy: {interval: 0.1, successes: 1}, \
                  unhealthy: {interval: 0.1, http_statuses: [400, 500], http_failures: 1}}}";
    let of = |certificate: &str| {
        let target =
            format!("{certificate} host_header: inner.test, targets: [{{target: \"{}\"}}]", upstream.address);
        let upstreams = format!("upstreams:\n- {{name: some, healthchecks: {checks}, {target}}}\n");
        document(&[https("/", "some", "", "")], &format!("{upstreams}{}", certificates(&[(ONE, &known)])))
    };
    let gateway = Gateway::start(&of(""));
    eventually("the target refuses probes without a certificate", || gateway.get("/").status == 503);
    let output = gateway.reload(&of(&format!("client_certificate: {ONE},")));
    assert!(output.status.success(), "{output:?}");
    eventually("the target answers probes with one", || gateway.get("/").status == 200);
}

#[test]
fn the_depth_of_a_chain_is_bounded_where_the_service_says_so() {
    let root = Identity::new("root");
    let middle = Identity::intermediate("middle", &root);
    let reports = "$ssl_protocol";
    let server = NginxOverTls::start(&Identity::signed("x.test", &middle), &[&middle], "", reports);
    let verified = |path: &str, depth: &str| {
        let fields = format!("tls_verify: true, ca_certificates: [{ONE}]{depth}");
        https(path, &server.address.to_string(), &fields, "")
    };
    let services = [
        verified("/any", ""),
        verified("/one", ", tls_verify_depth: 1"),
        verified("/none", ", tls_verify_depth: 0"),
    ];
    let authority = format!("ca_certificates:\n- {{id: {ONE}, cert: {}}}\n", root.cert_yaml());
    let gateway = Gateway::start(&document(&services, &authority));
    assert_eq!(["/any", "/one", "/none"].map(|path| gateway.get(path).status), [200, 200, 502]);
}

/// The upstream closes every connection after its response.
#[test]
fn sessions_are_resumed_over_connections_and_reloads() {
    for version in ["TLSv1.2", "TLSv1.3"] {
        let only = format!("ssl_protocols {version};");
        let upstream =
            NginxOverTls::start(&Identity::new("x.test"), &[], &only, "$ssl_protocol $ssl_session_reused");
        let services = [https("/", &upstream.address.to_string(), "", "preserve_host: true")];
        let text = document(&services, "");
        let gateway = Gateway::builder(&text).set("workers", "1").start();
        assert_eq!(seen(&gateway, "/", "a.test"), format!("{version} ."));
        assert_eq!(seen(&gateway, "/", "a.test"), format!("{version} r"));
        assert!(gateway.reload(&format!("{text}consumers: [{{username: new}}]\n")).status.success());
        assert_eq!(seen(&gateway, "/", "a.test"), format!("{version} r"));
        assert_eq!(seen(&gateway, "/", "b.test"), format!("{version} ."), "another name");
    }
}

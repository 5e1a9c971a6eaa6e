//! Directives of nginx that Kong injects: those with an equivalent take effect, others are named, and what protects is
//! never passed over.
use super::EMPTY;
use crate::harness::{Gateway, Identity, TlsUpstream, Upstream, document, eventually, service};
use std::fs;

#[test]
fn directives_without_an_equivalent_are_named_once() {
    let gateway = Gateway::builder(EMPTY)
        .env("KONG_NGINX_PROXY_GZIP_TYPES", "text/css")
        .env("KONG_NGINX_PROXY_PROXY_BUFFERS", "64 160k")
        .env("KONG_NGINX_PROXY_SET_REAL_IP_FROM", "10.0.0.0/8")
        .env("KONG_NGINX_HTTP_CHARSET", "UTF-8")
        .env("KONG_NGINX_MAIN_PCRE_JIT", "on")
        .env("KONG_NGINX_STATUS_AUTH_BASIC", "off")
        .env("KONG_NGINX_SUPSTREAM_ZONE", "z 1m")
        .start();
    let log = gateway.log();
    for (variable, said) in [
        ("PROXY_GZIP_TYPES", "is ignored: responses are passed on as upstreams send them, so compress there"),
        ("PROXY_PROXY_BUFFERS", "needs no setting: buffers are borrowed"),
        ("PROXY_SET_REAL_IP_FROM", "is ignored: write trusted_ips"),
        ("HTTP_CHARSET", "is ignored: upstreams name the charset"),
        ("MAIN_PCRE_JIT", "needs no setting"),
        ("STATUS_AUTH_BASIC", "has no effect: it is off here"),
        ("SUPSTREAM_ZONE", "is ignored: there is no such directive here"),
    ] {
        assert_eq!(log.matches(&format!("KONG_NGINX_{variable} {said}")).count(), 1, "{variable}: {log}");
    }
}

#[test]
fn what_protects_keeps_the_node_from_starting() {
    for (variable, value, instead) in [
        ("KONG_NGINX_PROXY_DENY", "all", "use the plugin ip-restriction"),
        ("KONG_NGINX_ADMIN_ALLOW", "10.0.0.0/8", "use the plugin ip-restriction"),
        ("KONG_NGINX_ADMIN_AUTH_BASIC", "\"closed\"", "for the Admin API admin_auth"),
        ("KONG_NGINX_PROXY_SSL_VERIFY_CLIENT", "on", "use the plugin mtls-auth"),
        ("KONG_NGINX_PROXY_PROXY_SSL_CRL", "/crl.pem", "revocation lists are not read"),
        ("KONG_NGINX_PROXY_GRPC_SSL_VERIFY", "on", "write proxy_ssl_verify"),
        ("KONG_NGINX_HTTP_LIMIT_REQ", "zone=one", "use the plugin rate-limiting"),
    ] {
        let (status, said) = Gateway::builder(EMPTY).env(variable, value).fail();
        assert_eq!(status.code(), Some(1));
        assert!(
            said.contains(&format!("environment variable {variable}: ")) && said.contains(instead),
            "{said}"
        );
    }
}

#[test]
fn upstreams_are_verified_by_default_where_nginx_would() {
    let (authority, server) = (Identity::new("authority"), "inner.test");
    let server = Identity::signed(server, &authority);
    let upstream = TlsUpstream::start(&server, &[]);
    let https =
        |path: &str, fields: &str| service(path, upstream.address, fields, "").replace("http://", "https://");
    let services = [https("/default", ""), https("/off", "tls_verify: false")];
    let configuration = document(&services, "");
    let trusted = authority.cert().display().to_string();
    let other = Identity::new("other.test");
    let other = other.cert().display().to_string();
    for (block, trusted, status) in [
        ("PROXY", Some(&trusted), 200),
        ("HTTP", Some(&trusted), 200),
        ("PROXY", Some(&other), 502),
        ("HTTP", None, 502),
        // That of streams concerns them alone.
        ("SPROXY", Some(&other), 200),
    ] {
        let name = |directive: &str| format!("KONG_NGINX_{block}_PROXY_SSL_{directive}");
        let mut builder =
            Gateway::builder(&configuration).env(&name("VERIFY"), "on").env(&name("VERIFY_DEPTH"), "2");
        if let Some(file) = trusted {
            builder = builder.env(&name("TRUSTED_CERTIFICATE"), file);
        }
        let gateway = builder.start();
        assert_eq!(gateway.get("/default").status, status, "{block} {trusted:?}: {}", gateway.log());
        assert_eq!(gateway.get("/off").status, 200, "{block} {trusted:?}");
        assert!(!gateway.log().contains("KONG_NGINX_"), "{}", gateway.log());
    }
}

#[test]
fn the_head_of_a_response_fits_into_proxy_buffer_size() {
    let head = format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\nContent-Length: 0\r\n\r\n", "a".repeat(100_000));
    let upstream = Upstream::answering(head.leak());
    let configuration = document(&[service("/", upstream.address, "", "")], "");
    assert_eq!(Gateway::start(&configuration).get("/").status, 502);
    let larger = Gateway::builder(&configuration).env("KONG_NGINX_PROXY_PROXY_BUFFER_SIZE", "160k").start();
    assert_eq!(larger.get("/").status, 200);
}

#[test]
fn the_limit_of_files_is_that_of_the_directive() {
    let gateway = Gateway::builder(EMPTY).env("KONG_NGINX_MAIN_WORKER_RLIMIT_NOFILE", "512").start();
    let limits = fs::read_to_string(format!("/proc/{}/limits", gateway.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().nth(3), Some("512"), "{line}");
}

#[test]
fn worker_connections_bound_the_clients_that_are_served() {
    let gateway = Gateway::builder(EMPTY).env("KONG_NGINX_EVENTS_WORKER_CONNECTIONS", "4").start();
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut served: Vec<_> = (0..2).map(|_| gateway.connect()).collect();
    served.iter_mut().for_each(|client| assert_eq!(client.send(get).response().status, 404));
    let mut waiting = gateway.connect();
    waiting.send(get);
    let logged = || gateway.log().matches("2 connections are open").count();
    eventually("it is logged, each second", || logged() > 1);
    assert!(gateway.log().contains("raise worker_connections"), "{}", gateway.log());
    assert_eq!(gateway.acted("connections"), 1, "once, however long the client waits");
    served.clear();
    assert_eq!(waiting.response().status, 404);
}

#[test]
fn other_names_of_settings_are_those_of_directives() {
    let gateway = Gateway::builder(EMPTY)
        .env("KONG_TRUSTED_IPS", "127.0.0.1")
        .env("KONG_NGINX_PROXY_REAL_IP_HEADER", "X-Real-IP")
        .env("KONG_NGINX_PROXY_REAL_IP_RECURSIVE", "on")
        .env("KONG_NGINX_PROXY_KEEPALIVE_REQUESTS", "2")
        .env("KONG_NGINX_UPSTREAM_KEEPALIVE", "60")
        .env("KONG_NGINX_HTTP_SSL_SESSION_CACHE", "shared:SSL:20m")
        .env("KONG_NGINX_PROXY_SSL_PROTOCOLS", "TLSv1.3")
        .env("KONG_NGINX_PROXY_SSL_CIPHERS", "ECDHE-RSA-AES256-GCM-SHA384")
        .env("KONG_NGINX_PROXY_SSL_PREFER_SERVER_CIPHERS", "on")
        .start();
    assert!(
        !gateway.log().contains("KONG_NGINX_") && !gateway.log().contains("is not read"),
        "{}",
        gateway.log()
    );
    let mut client = gateway.connect();
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(client.send(get).response().header("connection"), None);
    assert_eq!(client.send(get).response().header("connection"), Some("close"));
}

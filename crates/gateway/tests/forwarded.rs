//! What an upstream is told of a request, and what a client of a response: paths, hosts, who asked, and none of what
//! ends at a hop.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::http2::{ask, block_on, connect};
use crate::harness::{Builder, Gateway, Head, PATIENCE, Upstream, document, service};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};

/// A consumer with a key, for routes that ask for one.
const CONSUMER: &str = "consumers:\n- {username: alice, custom_id: \"7\", keyauth_credentials: [{key: secret}]}\n- {username: nobody}\n";
const KEYED: &str = "plugins: [{name: key-auth, config: {anonymous: nobody}}]";

/// An upstream that hands over each head, and answers with hop-by-hop fields among others.
fn observed() -> (Upstream, Receiver<Head>) {
    let (seen, heads) = mpsc::channel();
    let seen = Mutex::new(seen);
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            let _ = seen.lock().unwrap().send(request.head);
            peer.send(
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer: mine\r\nConnection: X-Private, Keep-Alive\r\n\
                 X-Private: a\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\n\
                 Via: 1.1 before\r\nX-Public: b\r\n\r\nhi",
            );
        }
    });
    (upstream, heads)
}

struct Setup {
    gateway: Gateway,
    heads: Receiver<Head>,
    _upstream: Upstream,
}

impl Setup {
    fn new(
        upstream: (Upstream, Receiver<Head>),
        services: &[String],
        set: impl Fn(Builder) -> Builder,
    ) -> Setup {
        let gateway = set(Gateway::builder(&document(services, CONSUMER))).start();
        Setup { gateway, heads: upstream.1, _upstream: upstream.0 }
    }

    fn one(route_fields: &str, set: impl Fn(Builder) -> Builder) -> Setup {
        let upstream = observed();
        let services = [service("/", upstream.0.address, "", route_fields)];
        Setup::new(upstream, &services, set)
    }

    /// What the upstream is told of a request for `/a` with these header lines.
    #[track_caller]
    fn told(&self, headers: &str) -> Head {
        self.gateway.send(&format!("GET /a HTTP/1.1\r\n{headers}\r\n"));
        self.heads.recv_timeout(PATIENCE).expect("the upstream is asked")
    }
}

#[test]
fn the_identity_that_a_client_gives_itself_is_not_passed_on() {
    let setup = Setup::one(KEYED, |builder| builder);
    let forged = [
        "X-Consumer-ID",
        "X-Consumer-Custom-ID",
        "X-Consumer-Username",
        "X-Credential-Identifier",
        "X-Anonymous-Consumer",
    ];
    let fields: String =
        forged.iter().map(|name| format!("{name}: root\r\n{}: root\r\n", name.to_lowercase())).collect();
    let head = setup.told(&format!("Host: a\r\n{fields}apikey: secret\r\n"));
    assert_eq!(head.all("x-consumer-username"), ["alice"]);
    assert_eq!(head.all("x-consumer-custom-id"), ["7"]);
    assert_eq!(head.all("x-consumer-id").len(), 1);
    assert_eq!(head.all("x-credential-identifier").len(), 1);
    assert!(head.fields.iter().all(|(_, value)| value != "root"), "{head:?}");
    assert_eq!(head.field("x-anonymous-consumer"), None);
    let head = setup.told(&format!("Host: a\r\n{fields}"));
    assert_eq!(head.all("x-consumer-username"), ["nobody"]);
    assert_eq!(head.all("x-anonymous-consumer"), ["true"]);
    assert!(head.fields.iter().all(|(_, value)| value != "root"), "{head:?}");
}

#[test]
fn connection_cannot_take_away_what_the_gateway_adds() {
    let setup = Setup::one(KEYED, |builder| builder);
    let ours = [
        "X-Real-IP",
        "X-Consumer-Username",
        "X-Consumer-ID",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "X-Forwarded-Host",
        "X-Forwarded-Port",
        "X-Forwarded-Path",
        "X-Kong-Request-Id",
        "Via",
        "Host",
    ];
    let named = ours.join(", ");
    let head = setup.told(&format!(
        "Host: a\r\nConnection: close, {named}\r\nX-Forwarded-For: 1.2.3.4\r\napikey: secret\r\n"
    ));
    for name in ours {
        assert_eq!(head.all(name).len(), 1, "{name}: {head:?}");
    }
    assert_eq!(head.field("x-forwarded-for"), Some("1.2.3.4, 127.0.0.1"));
}

#[test]
fn what_ends_at_a_hop_is_removed_both_ways() {
    let setup = Setup::one("", |builder| builder);
    let client = setup.gateway.send(
        "GET /a HTTP/1.1\r\nHost: a\r\nConnection: X-Private, TE, Upgrade\r\nX-Private: a\r\nKeep-Alive: 5\r\nTE: trailers\r\n\
         Upgrade: h2c\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic eDp5\r\nTrailer: A\r\nX-Public: b\r\n\r\n",
    );
    let head = setup.heads.recv_timeout(PATIENCE).unwrap();
    for gone in ["X-Private", "Keep-Alive", "Upgrade", "Proxy-Connection", "Trailer", "Transfer-Encoding"] {
        assert_eq!(head.field(gone), None, "{gone}");
    }
    // Trailers are taken from the upstream as the client takes them.
    assert_eq!((head.field("te"), head.all("connection")), (Some("trailers"), vec!["TE"]));
    assert_eq!(head.field("x-public"), Some("b"));
    for gone in ["X-Private", "Keep-Alive", "Upgrade", "Connection"] {
        assert_eq!(client.header(gone), None, "{gone}");
    }
    assert_eq!((client.header("x-public"), client.header("server")), (Some("b"), Some("mine")));
    assert_eq!(client.head.all("via"), ["1.1 before", "1.1 weir"]);
}

/// Requests from 127.0.0.1, which `trusted_ips` may name, and what the upstream is told.
struct Forwarded {
    trusted: &'static str,
    set: &'static [(&'static str, &'static str)],
    headers: &'static str,
    told: &'static [(&'static str, Option<&'static str>)],
}

const FORWARDED: &[Forwarded] = &[
    Forwarded {
        trusted: "",
        set: &[],
        headers: "Host: A.Test:81\r\n",
        told: &[
            ("X-Forwarded-For", Some("127.0.0.1")),
            ("X-Real-IP", Some("127.0.0.1")),
            ("X-Forwarded-Proto", Some("http")),
            ("X-Forwarded-Host", Some("a.test")),
            ("X-Forwarded-Path", Some("/a")),
            ("X-Forwarded-Prefix", None),
        ],
    },
    Forwarded {
        trusted: "",
        set: &[],
        headers: "Host: a\r\nX-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 2.2.2.2\r\nX-Real-IP: 3.3.3.3\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Port: 1\r\nX-Forwarded-Path: /evil\r\nX-Forwarded-Prefix: /evil\r\n",
        told: &[
            ("X-Forwarded-For", Some("1.1.1.1, 2.2.2.2, 127.0.0.1")),
            ("X-Real-IP", Some("127.0.0.1")),
            ("X-Forwarded-Proto", Some("http")),
            ("X-Forwarded-Host", Some("a")),
            ("X-Forwarded-Path", Some("/a")),
            ("X-Forwarded-Prefix", None),
        ],
    },
    Forwarded {
        trusted: "127.0.0.0/8",
        set: &[],
        headers: "Host: a\r\nX-Forwarded-For: 1.1.1.1\r\nX-Real-IP: 3.3.3.3\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: front\r\nX-Forwarded-Port: 443\r\nX-Forwarded-Path: /before\r\nX-Forwarded-Prefix: /pre\r\n",
        told: &[
            ("X-Forwarded-For", Some("1.1.1.1, 127.0.0.1")),
            ("X-Real-IP", Some("3.3.3.3")),
            ("X-Forwarded-Proto", Some("https")),
            ("X-Forwarded-Port", Some("443")),
            ("X-Forwarded-Host", Some("front")),
            ("X-Forwarded-Path", Some("/before")),
            ("X-Forwarded-Prefix", Some("/pre")),
        ],
    },
    Forwarded {
        trusted: "127.0.0.1",
        set: &[],
        headers: "Host: a\r\nX-Real-IP: 3.3.3.3\r\n",
        told: &[("X-Forwarded-For", Some("3.3.3.3")), ("X-Real-IP", Some("3.3.3.3"))],
    },
    Forwarded {
        trusted: "127.0.0.1",
        set: &[("real_ip_header", "X-Forwarded-For")],
        headers: "Host: a\r\nX-Forwarded-For: 1.1.1.1, 10.0.0.1\r\n",
        told: &[("X-Forwarded-For", Some("1.1.1.1, 10.0.0.1, 127.0.0.1")), ("X-Real-IP", Some("10.0.0.1"))],
    },
    Forwarded {
        trusted: "127.0.0.1, 10.0.0.0/8",
        set: &[("real_ip_header", "X-Forwarded-For"), ("real_ip_recursive", "on")],
        headers: "Host: a\r\nX-Forwarded-For: 9.9.9.9, 1.1.1.1\r\nX-Forwarded-For: 10.0.0.1, 10.0.0.2\r\n",
        told: &[("X-Real-IP", Some("1.1.1.1"))],
    },
    Forwarded {
        trusted: "0.0.0.0/0",
        set: &[("real_ip_header", "X-Forwarded-For"), ("real_ip_recursive", "on")],
        headers: "Host: a\r\nX-Forwarded-For: 9.9.9.9, 1.1.1.1\r\n",
        told: &[("X-Real-IP", Some("9.9.9.9"))],
    },
    Forwarded {
        trusted: "10.0.0.0/8",
        set: &[("real_ip_header", "X-Forwarded-For"), ("real_ip_recursive", "on")],
        headers: "Host: a\r\nX-Forwarded-For: 1.1.1.1\r\n",
        told: &[("X-Real-IP", Some("127.0.0.1"))],
    },
    Forwarded {
        trusted: "127.0.0.1",
        set: &[],
        headers: "Host: a\r\nX-Real-IP: rubbish\r\n",
        told: &[("X-Real-IP", Some("127.0.0.1"))],
    },
];

#[test]
fn forwarded_fields_are_believed_of_trusted_peers_only() {
    for (index, case) in FORWARDED.iter().enumerate() {
        let setup = Setup::one("", |builder| {
            let builder = builder.set("trusted_ips", case.trusted);
            case.set.iter().fold(builder, |builder, (key, value)| builder.set(key, value))
        });
        let head = setup.told(case.headers);
        for (name, value) in case.told {
            let told = head.all(name);
            assert_eq!(told, value.iter().copied().collect::<Vec<_>>(), "case {index}: {name}");
        }
    }
}

#[test]
fn headers_upstream_decides_whether_the_upstream_learns_the_request_s_id() {
    let setup = Setup::one("", |builder| builder);
    setup.gateway.send("GET /a HTTP/1.1\r\nHost: a\r\nX-Kong-Request-Id: forged\r\n\r\n");
    let told = setup.heads.recv_timeout(PATIENCE).unwrap();
    assert_eq!(told.all("x-kong-request-id").iter().map(|id| id.len()).collect::<Vec<_>>(), [32]);
    let setup = Setup::one("", |builder| builder.set("headers_upstream", "off"));
    assert_eq!(setup.told("Host: a\r\nX-Kong-Request-Id: forged\r\n").field("x-kong-request-id"), None);
}

/// The service's path, the route's, whether it is stripped, the request's, and what the upstream is asked for.
const PATHS: &[(&str, &str, bool, &str, &str)] = &[
    // One normal form, whatever way it is written.
    ("", "/", false, "/a/../b", "/b"),
    ("", "/", false, "/a/./b/.", "/a/b/"),
    ("", "/", false, "/../../b", "/b"),
    ("", "/", false, "//a///b", "/a/b"),
    ("", "/", false, "/a/%2e%2E/b", "/b"),
    ("", "/", false, "/%61%7E%2d", "/a~-"),
    ("", "/", false, "/a%2fb%20%3F", "/a%2Fb%20%3F"),
    ("", "/", false, "/a?b=/../c&d=%2e//", "/a?b=/../c&d=%2e//"),
    ("", "/", false, "/a?", "/a?"),
    ("", "/api", true, "/x/..//api/%2e/secret", "/secret"),
    // strip_path
    ("", "/api", true, "/api", "/"),
    ("", "/api", true, "/api/", "/"),
    ("", "/api", true, "/api/a", "/a"),
    ("", "/api", true, "/apia", "/a"),
    ("", "/api/", true, "/api/a", "/a"),
    ("", "/api", false, "/api/a", "/api/a"),
    // The service's path before it.
    ("/base", "/api", true, "/api", "/base"),
    ("/base", "/api", true, "/api/", "/base/"),
    ("/base", "/api", true, "/api/a", "/base/a"),
    ("/base/", "/api", true, "/api/a", "/base/a"),
    ("/base", "/api", false, "/api/a", "/base/api/a"),
    ("/base/", "/api", false, "/api/a", "/base/api/a"),
    ("/base", "/", true, "/a", "/base/a"),
    ("/base", "/", true, "/", "/base"),
    // Regular expressions strip what they matched.
    ("", "~/v\\\\d+/(?<name>[a-z]+)", true, "/v1/abc/9", "/9"),
];

#[test]
fn paths_reach_the_upstream_in_one_form() {
    let upstream = observed();
    let address = upstream.0.address;
    let services: Vec<String> = PATHS
        .iter()
        .enumerate()
        .map(|(index, (base, path, strip, ..))| {
            format!(
                "- {{name: s{index}, url: \"http://{address}{base}\", routes: [{{name: r{index}, hosts: [\"h{index}\"], \
                 paths: [\"{path}\"], strip_path: {strip}}}]}}\n"
            )
        })
        .collect();
    let setup = Setup::new(upstream, &services, |builder| builder);
    for (index, (base, path, strip, asked, expected)) in PATHS.iter().enumerate() {
        setup.gateway.send(&format!("GET {asked} HTTP/1.1\r\nHost: h{index}\r\n\r\n"));
        let head = setup.heads.recv_timeout(PATIENCE).expect("the upstream is asked");
        let told = head.start.strip_prefix("GET ").and_then(|line| line.strip_suffix(" HTTP/1.1"));
        assert_eq!(told, Some(*expected), "{base:?} {path:?} {strip} {asked:?}");
        let stripped = *strip && *path != "/";
        assert_eq!(head.field("x-forwarded-prefix").is_some(), stripped, "{path:?} {strip} {asked:?}");
        assert_eq!(head.field("x-forwarded-path"), asked.split('?').next(), "{asked:?}");
    }
}

#[test]
fn the_host_is_the_service_s_unless_preserved() {
    let upstream = observed();
    let address = upstream.0.address;
    let services = [
        service("/own", address, "", ""),
        service("/kept", address, "", "preserve_host: true"),
        service("/named", "named", "", ""),
    ];
    let more = format!(
        "upstreams:\n- {{name: named, host_header: inner.test, targets: [{{target: \"{address}\"}}]}}\n"
    );
    let gateway = Gateway::start(&document(&services, &more));
    let own = address.to_string();
    for (path, host) in [("/own", own.as_str()), ("/kept", "Client.test:8000"), ("/named", "inner.test")] {
        gateway.send(&format!("GET {path} HTTP/1.1\r\nHost: Client.test:8000\r\n\r\n"));
        let head = upstream.1.recv_timeout(PATIENCE).unwrap();
        assert_eq!(head.all("host"), [host], "{path}");
    }
}

/// CGI programs take it for the setting of their own proxy (httpoxy).
#[test]
fn proxy_reaches_no_upstream() {
    let upstream = Upstream::echoing();
    let adds = "plugins: [{name: request-transformer, config: {add: {headers: [\"Proxy: http://added\"]}}}]";
    let services = [service("/", upstream.address, "", ""), service("/adds", upstream.address, "", adds)];
    let gateway = Gateway::builder(&document(&services, "")).set("proxy_listen", "127.0.0.1:0 http2").start();
    let is_there = |seen: &str| seen.to_lowercase().contains("\nproxy:");
    for path in ["/", "/adds"] {
        let seen = gateway.get_with(path, "Proxy: http://a\r\nproxy: http://b\r\nProxy-Info: kept\r\n");
        assert!(seen.text().contains("Proxy-Info: kept") && !is_there(seen.text()), "{}", seen.text());
        let request = http::Request::get(format!("http://localhost{path}")).header("proxy", "http://a");
        let seen = block_on(async {
            let (requests, _) = connect(gateway.proxy()).await;
            ask(&requests, request.body(()).unwrap()).await.unwrap()
        });
        assert!(!is_there(seen.body()), "{}", seen.body());
    }
    let (seen, requests) = mpsc::channel();
    let seen = Mutex::new(seen);
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            let _ = seen.lock().unwrap().send(request.trailers);
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        }
    });
    let gateway = Gateway::start(&document(&[service("/", upstream.address, "", "")], ""));
    let body = "2\r\nhi\r\n0\r\nProxy: http://a\r\nDigest: b\r\n\r\n";
    gateway.send(&format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
    assert_eq!(requests.recv_timeout(PATIENCE).unwrap(), [("Digest".to_owned(), "b".to_owned())]);
}

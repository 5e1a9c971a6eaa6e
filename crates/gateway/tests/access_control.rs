//! Plugins that decide who may pass, as clients and upstreams meet them.
#![allow(clippy::unwrap_used, clippy::expect_used)]
mod harness;

use harness::{Gateway, Message, Peer, Upstream, document, service};

fn plugins(of: &[&str]) -> String {
    format!("plugins: [{}]", of.join(", "))
}

/// What came back: the status, and the message of an error.
fn said(response: &Message) -> (u16, Option<String>) {
    let message = serde_json::from_slice::<serde_json::Value>(&response.body).ok();
    (response.status, message.and_then(|body| Some(body.get("message")?.as_str()?.to_owned())))
}

#[test]
fn pages_of_other_origins_are_told_what_they_may_do() {
    let upstream = Upstream::echoing();
    let cors = "{name: cors, config: {origins: ['https://a.test', 'https://.*\\.b\\.test'], credentials: true, \
                max_age: 600, exposed_headers: [X-A, X-B]}}";
    let services = [
        service("/open", upstream.address, "", &plugins(&[cors])),
        service("/keyed", upstream.address, "", &plugins(&[cors, "{name: key-auth}"])),
        service("/broken", harness::nobody(), "", &plugins(&[cors])),
    ];
    let gateway = Gateway::start(&document(&services, ""));
    let preflight = gateway.send(
        "OPTIONS /keyed HTTP/1.1\r\nHost: a\r\nOrigin: https://x.b.test\r\nAccess-Control-Request-Method: PUT\r\n\
         Access-Control-Request-Headers: x-one,x-two\r\n\r\n",
    );
    assert_eq!((preflight.status, preflight.text()), (200, ""));
    for (name, value) in [
        ("Access-Control-Allow-Origin", "https://x.b.test"),
        ("Access-Control-Allow-Credentials", "true"),
        ("Access-Control-Allow-Headers", "x-one,x-two"),
        ("Access-Control-Allow-Methods", "GET,HEAD,PUT,PATCH,POST,DELETE,OPTIONS,TRACE,CONNECT"),
        ("Access-Control-Max-Age", "600"),
        ("Vary", "Origin"),
        ("Content-Length", "0"),
    ] {
        assert_eq!(preflight.head.all(name), [value], "{name}");
    }
    assert_eq!(upstream.connections(), 0, "a preflight is answered here");
    for (path, status) in [("/open", 200), ("/keyed", 401), ("/broken", 502)] {
        for (origin, allowed) in [("https://a.test", Some("https://a.test")), ("https://c.test", None)] {
            let response = gateway.get_with(path, &format!("Origin: {origin}\r\n"));
            assert_eq!(response.status, status);
            assert_eq!(response.header("access-control-allow-origin"), allowed, "{path} {origin}");
            assert_eq!(response.header("access-control-expose-headers"), Some("X-A,X-B"), "{path} {origin}");
        }
    }
}

#[test]
fn consumers_pass_by_their_groups() {
    let upstream = Upstream::echoing();
    let key = "{name: key-auth, config: {anonymous: guest}}";
    let acl = |config: &str| format!("{{name: acl, config: {{{config}}}}}");
    let services = [
        service("/staff", upstream.address, "", &plugins(&[key, &acl("allow: [staff]")])),
        service(
            "/others",
            upstream.address,
            "",
            &plugins(&[key, &acl("deny: [staff], hide_groups_header: true")]),
        ),
        service("/nobody", upstream.address, "", &plugins(&[&acl("allow: [staff]")])),
        service("/open", upstream.address, "", ""),
    ];
    let consumers = "consumers:\n\
        - {username: alice, keyauth_credentials: [{key: a}], acls: [{group: staff}, {group: friends}]}\n\
        - {username: bob, keyauth_credentials: [{key: b}], acls: [{group: friends}]}\n\
        - {username: carol, keyauth_credentials: [{key: c}]}\n\
        - {username: guest}\n";
    let gateway = Gateway::start(&document(&services, consumers));
    let forged =
        "X-Consumer-Groups: staff\r\nX-Authenticated-Groups: staff\r\nx_authenticated_groups: staff\r\n";
    let forbidden = || (403, Some("You cannot consume this service".to_owned()));
    let unauthorized = || (401, Some("Unauthorized".to_owned()));
    let fine = || (200, None);
    for (path, answers) in [
        ("/staff", [fine(), forbidden(), forbidden(), unauthorized()]),
        ("/others", [forbidden(), fine(), fine(), unauthorized()]),
        ("/nobody", [unauthorized(), unauthorized(), unauthorized(), unauthorized()]),
    ] {
        for (key, answer) in ["a", "b", "c", "none"].into_iter().zip(answers) {
            let response = gateway.get_with(path, &format!("apikey: {key}\r\n{forged}"));
            assert_eq!(said(&response), answer, "{path} {key}");
        }
    }
    let groups = |path, key| {
        let told = gateway.get_with(path, &format!("apikey: {key}\r\n{forged}"));
        let lines = told.text().lines().filter(|line| line.to_lowercase().contains("groups"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(groups("/staff", "a"), ["X-Consumer-Groups: staff, friends"]);
    assert_eq!(groups("/others", "b"), [""; 0]);
    assert_eq!(groups("/open", "a"), [""; 0]);
}

#[test]
fn clients_pass_by_their_addresses() {
    let upstream = Upstream::echoing();
    let by = |config: &str| plugins(&[&format!("{{name: ip-restriction, config: {{{config}}}}}")]);
    let services = [
        service("/near", upstream.address, "", &by("allow: [127.0.0.0/8]")),
        service("/far", upstream.address, "", &by("allow: ['2001:db8::/32'], deny: ['2001:db8::6']")),
        service("/hidden", upstream.address, "", &by("deny: [127.0.0.1], status: 404, message: Not found")),
    ];
    let gateway = Gateway::builder(&document(&services, "")).set("trusted_ips", "127.0.0.1").start();
    let refused = |address: &str| (403, Some(format!("IP address not allowed: {address}")));
    for (path, client, answer) in [
        ("/near", "", (200, None)),
        ("/near", "198.51.100.7", refused("198.51.100.7")),
        ("/far", "", refused("127.0.0.1")),
        ("/far", "2001:db8::5", (200, None)),
        ("/far", "2001:DB8:0::6", refused("2001:db8::6")),
        ("/hidden", "", (404, Some("Not found".to_owned()))),
        ("/hidden", "198.51.100.7", (200, None)),
    ] {
        let header = if client.is_empty() { String::new() } else { format!("X-Real-IP: {client}\r\n") };
        assert_eq!(said(&gateway.get_with(path, &header)), answer, "{path} {client}");
    }
}

/// Without `protocols` of its own the plugin is for sessions too, as in Kong.
#[test]
fn sessions_are_let_in_by_the_address_of_their_client() {
    let upstream = Upstream::echoing();
    for (plugin, admitted) in [
        ("config: {allow: [127.0.0.0/8]}", true),
        ("config: {deny: [127.0.0.0/8]}", false),
        ("protocols: [http], config: {deny: [127.0.0.0/8]}", true),
    ] {
        let configuration = format!(
            "_format_version: '3.0'\nservices:\n- {{name: s, url: 'tcp://{}', routes: [{{name: r, protocols: [tcp], \
             sources: [{{ip: 127.0.0.0/8}}]}}]}}\nplugins: [{{name: ip-restriction, {plugin}}}]\n",
            upstream.address
        );
        let gateway = Gateway::builder(&configuration).set("stream_listen", "127.0.0.1:0").start();
        let mut client = Peer::connect(gateway.stream(0));
        let said = client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").finish_sending().rest();
        assert_eq!(!said.is_empty(), admitted, "{plugin}");
    }
}

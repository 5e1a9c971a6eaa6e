//! azure-functions with an app on this machine: its name has an SRV record, which says the port.
use crate::harness::{Gateway, Identity, NameServer, NginxOverTls, Service, Upstream, unescape};
use serde_json::json;
use std::net::SocketAddr;

const HOST: &str = "shop.azure.test";

/// A gateway for which the app is at an address, and the name server that says so.
fn gateway(app: SocketAddr, fields: &str, settings: &[(&str, &str)]) -> (Gateway, NameServer) {
    let record = Service { name: HOST, priority: 1, weight: 1, port: app.port(), host: "one.azure.test" };
    let names = NameServer::with_services(".test", vec![record]);
    let document = format!(
        "_format_version: \"3.0\"\nroutes:\n- name: r\n  paths: [/orders]\n  plugins:\n  - name: azure-functions\n    \
         config: {{appname: shop, hostdomain: azure.test, functionname: /place/, {fields}}}\n"
    );
    let builder = Gateway::builder(&document)
        .set("dns_resolver", &names.address.to_string())
        .set("dns_hostsfile", "/dev/null");
    (settings.iter().fold(builder, |builder, (name, value)| builder.set(name, value)).start(), names)
}

#[test]
fn the_function_gets_the_request_and_the_client_its_response() {
    let app = Upstream::echoing();
    let (gateway, _names) = gateway(app.address, "https: false, apikey: hunter2, clientid: me", &[]);
    let body = "hello";
    let response = gateway.send(&format!(
        "PUT /orders/7?a=b%20c HTTP/1.1\r\nHost: gateway.test\r\nX-Tag: x\r\nx-functions-key: forged\r\n\
         Connection: X-Hop\r\nX-Hop: 1\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!((response.status, response.header("via")), (200, Some("1.1 weir")));
    let asked = response.text().to_ascii_lowercase();
    let lines: Vec<&str> = asked.lines().collect();
    assert_eq!(lines[0], "put /api/place/7?a=b%20c http/1.1");
    assert_eq!(lines.last(), Some(&body));
    let keys: Vec<_> = lines.iter().filter(|line| line.starts_with("x-functions-key")).collect();
    assert_eq!(keys, [&"x-functions-key: hunter2"]);
    for line in ["host: shop.azure.test", "x-functions-clientid: me", "x-tag: x", "content-length: 5"] {
        assert!(lines.contains(&line), "{line}: {asked}");
    }
    assert!(!asked.contains("x-hop"), "{asked}");
    assert!(!gateway.log().contains("hunter2"));
}

#[test]
fn the_functions_status_and_headers_are_the_clients() {
    let answer = "HTTP/1.1 418 Teapot\\r\\nSet-Cookie: a=1\\r\\nSet-Cookie: b=2\\r\\nKeep-Alive: 5\\r\\nContent-Length: 2\\r\\n\\r\\nno";
    let app = Upstream::answering(&String::from_utf8(unescape(answer)).unwrap());
    let (gateway, _names) = gateway(app.address, "https: false, routeprefix: '/'", &[]);
    let response = gateway.get("/orders");
    assert_eq!((response.status, response.text()), (418, "no"));
    assert_eq!(response.head.all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(response.header("keep-alive"), None);
}

#[test]
fn a_function_that_fails_is_an_error() {
    for broken in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal", "nonsense\r\n\r\n"] {
        let app = Upstream::start(move |mut peer, _| {
            peer.request();
            peer.send(broken).finish_sending();
        });
        let (gateway, _names) = gateway(app.address, "https: false", &[]);
        let response = gateway.get("/orders");
        assert_eq!(
            (response.status, &response.json()["message"]),
            (500, &json!("An unexpected error occurred"))
        );
        assert!(gateway.log().contains("azure-functions: the function did not answer"), "{}", gateway.log());
    }
    let silent = Upstream::start(|mut peer, _| {
        peer.rest();
    });
    let (gateway, _names) = gateway(silent.address, "https: false, timeout: 200", &[]);
    assert_eq!(gateway.get("/orders").status, 500);
    assert!(gateway.log().contains("the server took too long"), "{}", gateway.log());
}

#[test]
fn certificates_are_verified_if_that_is_wanted() {
    let identity = Identity::new(HOST);
    let app = NginxOverTls::start(&identity, &[], "", "$ssl_server_name $http_host $request_uri");
    let asked = format!("{HOST} {HOST} /api/place/");
    let (open, _names) = gateway(app.address, "https_verify: false", &[]);
    assert_eq!(open.get("/orders").text(), asked, "{}", open.log());
    let (strict, _names) = gateway(app.address, "https_verify: true", &[]);
    assert_eq!(strict.get("/orders").status, 500);
    assert!(strict.log().contains("or set config.https_verify: false"), "{}", strict.log());
    let cert = identity.cert();
    let trusted = [("lua_ssl_trusted_certificate", cert.to_str().unwrap())];
    let (trusting, _names) = gateway(app.address, "https_verify: true", &trusted);
    assert_eq!(trusting.get("/orders").text(), asked, "{}", trusting.log());
}

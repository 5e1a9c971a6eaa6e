//! The gateway's own answers, as clients of Kong know them, and what it adds to those of upstreams.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Message, Upstream, closed_port, document, one_route, service};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer: mine\r\n\r\nhi";
const NO_ROUTE: &str = "no Route matched with those values";

/// A service with a route that must be reached over TLS, one with none behind it, and an open one.
fn gateway(set: &[(&str, &str)]) -> (Gateway, Upstream) {
    let upstream = Upstream::answering(OK);
    let address = upstream.address;
    let secure = |status: u16| {
        service(
            &format!("/secure{status}"),
            address,
            "",
            &format!("protocols: [https], https_redirect_status_code: {status}"),
        )
    };
    let services: Vec<String> = [426, 301, 302, 307, 308]
        .map(secure)
        .into_iter()
        .chain([service("/open", address, "", "")])
        .collect();
    let serviceless = "routes:\n- {name: alone, paths: [/alone]}\n";
    let builder = Gateway::builder(&document(&services, serviceless));
    (set.iter().fold(builder, |builder, (key, value)| builder.set(key, value)).start(), upstream)
}

fn is_id(id: Option<&str>) -> bool {
    id.is_some_and(|id| id.len() == 32 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}

#[test]
fn errors_come_in_the_form_that_the_client_accepts() {
    let (gateway, _upstream) = gateway(&[]);
    for (accept, form) in [
        ("", "json"),
        ("*/*", "json"),
        ("application/json", "json"),
        ("application/*", "json"),
        ("image/png", "json"),
        ("text/plain", "plain"),
        ("text/*", "plain"),
        ("text/html", "html"),
        ("TEXT/HTML; charset=utf-8", "html"),
        ("application/xml", "xml"),
        ("text/html;q=0.5, application/xml;q=0.9", "xml"),
        ("text/html;q=0, text/plain;q=0.1", "plain"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "html"),
    ] {
        let header = if accept.is_empty() { String::new() } else { format!("Accept: {accept}\r\n") };
        let response = gateway.get_with("/nowhere", &header);
        assert_eq!(response.status, 404);
        let id = response.header("x-kong-request-id").unwrap();
        let (content_type, body) = match form {
            "json" => (
                "application/json",
                format!("{{\n  \"message\":\"{NO_ROUTE}\",\n  \"request_id\":\"{id}\"\n}}"),
            ),
            "plain" => ("text/plain", format!("{NO_ROUTE}\nrequest_id: {id}\n")),
            "html" => ("text/html", format!("<p>{NO_ROUTE}.</p>\n    <p>request_id: {id}</p>")),
            _ => ("application/xml", format!("<message>{NO_ROUTE}</message>\n  <requestid>{id}</requestid>")),
        };
        assert_eq!(
            response.header("content-type"),
            Some(format!("{content_type}; charset=utf-8").as_str()),
            "{accept}"
        );
        assert!(response.text().contains(&body), "{accept}: {}", response.text());
        if matches!(form, "json" | "plain") {
            assert_eq!(response.text(), body);
        }
    }
}

#[test]
fn responses_tell_how_long_they_took_and_which_request_they_answer() {
    let (gateway, _upstream) = gateway(&[]);
    let number =
        |response: &Message, name: &str| response.header(name).map(|text| text.parse::<u64>().expect(name));
    let proxied = gateway.get("/open");
    assert!(
        number(&proxied, "x-kong-proxy-latency").is_some()
            && number(&proxied, "x-kong-upstream-latency").is_some()
    );
    assert_eq!(proxied.header("x-kong-response-latency"), None);
    assert_eq!((proxied.header("via"), proxied.header("server")), (Some("1.1 weir"), Some("mine")));
    let own = gateway.get("/nowhere");
    assert!(number(&own, "x-kong-response-latency").is_some());
    assert_eq!((own.header("x-kong-proxy-latency"), own.header("x-kong-upstream-latency")), (None, None));
    assert!(own.header("server").unwrap().starts_with("weir/") && own.header("date").is_some());
    assert_eq!(own.header("via"), None);
    assert!(is_id(proxied.header("x-kong-request-id")) && is_id(own.header("x-kong-request-id")));
    assert_ne!(proxied.header("x-kong-request-id"), own.header("x-kong-request-id"));
}

#[test]
fn the_headers_setting_chooses_what_is_added() {
    let added = [
        "Via",
        "X-Kong-Proxy-Latency",
        "X-Kong-Upstream-Latency",
        "X-Kong-Upstream-Status",
        "X-Kong-Request-Id",
    ];
    let own = ["Server", "X-Kong-Response-Latency", "X-Kong-Request-Id"];
    for (setting, proxied, answered) in [
        ("off", &[][..], &[][..]),
        ("X-Kong-Upstream-Status", &["X-Kong-Upstream-Status"][..], &[][..]),
        ("off, X-Kong-Upstream-Status", &["X-Kong-Upstream-Status"][..], &[][..]),
        ("server_tokens", &["Via"][..], &["Server"][..]),
        (
            "latency_tokens, X-Kong-Request-Id",
            &["X-Kong-Proxy-Latency", "X-Kong-Upstream-Latency", "X-Kong-Request-Id"][..],
            &["X-Kong-Response-Latency", "X-Kong-Request-Id"][..],
        ),
    ] {
        let (gateway, _upstream) = gateway(&[("headers", setting)]);
        let present = |path: &str, names: &[&'static str]| {
            let response = gateway.get(path);
            names.iter().copied().filter(|name| response.header(name).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(present("/open", &added), proxied, "{setting}");
        assert_eq!(present("/nowhere", &own), answered, "{setting}");
    }
}

#[test]
fn routes_for_tls_alone_say_so_over_plain_http() {
    let (gateway, upstream) = gateway(&[]);
    let response = gateway.get("/secure426/x?y=z");
    assert_eq!((response.status, response.text()), (426, "{\"message\":\"Please use HTTPS protocol\"}"));
    assert_eq!(response.header("upgrade"), Some("TLS/1.2, HTTP/1.1"));
    assert_eq!(response.head.all("connection"), ["Upgrade"]);
    for status in [301, 302, 307, 308] {
        let path = format!("/secure{status}/x?y=z");
        let response = gateway.send(&format!("GET {path} HTTP/1.1\r\nHost: shop.test:8000\r\n\r\n"));
        assert_eq!(response.status, status);
        assert_eq!(response.header("location"), Some(format!("https://shop.test{path}").as_str()));
    }
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn a_trusted_peer_says_that_it_has_taken_the_tls_off() {
    let forwarded = "X-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.test\r\n";
    let (trusting, _upstream) = gateway(&[("trusted_ips", "127.0.0.1")]);
    assert_eq!(trusting.get_with("/secure426/x", forwarded).status, 200);
    let response = trusting.get_with("/secure301/x", "X-Forwarded-Host: shop.test\r\n");
    assert_eq!((response.status, response.header("location")), (301, Some("https://shop.test/secure301/x")));
    let (wary, _upstream) = gateway(&[]);
    assert_eq!(wary.get_with("/secure426/x", forwarded).status, 426);
    let response = wary.get_with("/secure301/x", forwarded);
    assert_eq!((response.status, response.header("location")), (301, Some("https://localhost/secure301/x")));
}

#[test]
fn a_route_without_a_service_has_nothing_to_offer() {
    let (gateway, _upstream) = gateway(&[]);
    let response = gateway.get("/alone");
    assert_eq!(response.status, 503);
    assert_eq!(response.json()["message"], "no Service found with those values");
}

#[test]
fn kong_debug_names_route_and_service_where_it_may() {
    let names = ["Kong-Route-Name", "Kong-Service-Name", "Kong-Route-Id", "Kong-Service-Id"];
    let (allowed, _upstream) = gateway(&[("allow_debug_header", "on")]);
    let response = allowed.get_with("/open", "Kong-Debug: 1\r\n");
    assert_eq!(names.map(|name| response.header(name).is_some()), [true; 4]);
    assert_eq!(
        (response.header("kong-route-name"), response.header("kong-service-name")),
        (Some("r-open"), Some("s-open"))
    );
    let (forbidden, _upstream) = gateway(&[]);
    for (gateway, headers) in
        [(&allowed, ""), (&allowed, "Kong-Debug: 0\r\n"), (&forbidden, "Kong-Debug: 1\r\n")]
    {
        let response = gateway.get_with("/open", headers);
        assert_eq!(names.map(|name| response.header(name)), [None; 4], "{headers}");
    }
}

#[test]
fn an_answer_to_head_has_the_head_of_one_to_get() {
    let (gateway, _upstream) = gateway(&[]);
    let mut client = gateway.connect();
    let head = client.send("HEAD /nowhere HTTP/1.1\r\nHost: a\r\n\r\n").response_to("HEAD");
    let get = client.send("GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n").response();
    assert_eq!((head.status, head.header("content-length")), (404, get.header("content-length")));
}

/// What becomes of a request that says how far it may go.
enum Hop {
    /// The gateway answers.
    Answered,
    /// It reaches the upstream, with this value of `Max-Forwards`.
    Forwarded(Option<&'static str>),
}

const HOPS: &[(&str, &str, Hop)] = &[
    ("OPTIONS *", "", Hop::Answered),
    ("OPTIONS *", "Max-Forwards: 5\r\n", Hop::Answered),
    ("OPTIONS /open", "", Hop::Forwarded(None)),
    ("OPTIONS /open", "Max-Forwards: 0\r\n", Hop::Answered),
    ("OPTIONS /open", "Max-Forwards: 00\r\n", Hop::Answered),
    ("OPTIONS /open", "Max-Forwards: 1\r\n", Hop::Forwarded(Some("0"))),
    ("OPTIONS /open", "Max-Forwards: 10\r\n", Hop::Forwarded(Some("9"))),
    ("OPTIONS /open", "max-forwards: many\r\n", Hop::Forwarded(Some("many"))),
    ("OPTIONS /open", "Max-Forwards: -1\r\n", Hop::Forwarded(Some("-1"))),
    ("GET /open", "Max-Forwards: 0\r\n", Hop::Forwarded(Some("0"))),
];

#[test]
fn options_go_as_far_as_they_may() {
    let upstream = Upstream::echoing();
    let gateway = Gateway::start(&document(&[service("/open", upstream.address, "", "")], ""));
    let mut client = gateway.connect();
    for (line, fields, hop) in HOPS {
        client.send(format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        let response = client.response();
        assert_eq!(response.status, 200, "{line} {fields}");
        let Hop::Forwarded(value) = hop else {
            assert_eq!(
                (response.text(), response.header("content-length")),
                ("", Some("0")),
                "{line} {fields}"
            );
            continue;
        };
        let lines = response.text().lines();
        let seen = lines
            .filter_map(|line| line.split_once(": "))
            .find(|(name, _)| name.eq_ignore_ascii_case("max-forwards"));
        assert_eq!(seen.map(|(_, value)| value), *value, "{line} {fields}");
    }
    let trace = client.send("TRACE /open HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n").response();
    assert_eq!(trace.status, 405);
}

#[test]
fn errors_of_the_proxy_itself_have_the_default_type() {
    const MESSAGE: &str = "An invalid response was received from the upstream server";
    for (default, headers, form) in [
        ("", "", "text/plain"),
        ("application/json", "", "application/json"),
        ("text/html", "", "text/html"),
        ("application/xml", "", "application/xml"),
        ("", "Content-Type: application/json\r\n", "application/json"),
        ("", "Accept: text/html;q=0.1, application/xml;q=0.5\r\n", "application/xml"),
        ("application/xml", "Accept: */*\r\n", "application/json"),
    ] {
        let settings = [("error_default_type", default)];
        let set = settings.into_iter().filter(|(_, value)| !value.is_empty());
        let builder = Gateway::builder(&one_route(closed_port()));
        let gateway = set.fold(builder, |builder, (key, value)| builder.set(key, value)).start();
        let response = gateway.get_with("/", headers);
        assert_eq!(response.status, 502);
        let content_type = format!("{form}; charset=utf-8");
        assert_eq!(response.header("content-type"), Some(&*content_type), "{default} {headers}");
        assert!(response.text().contains(MESSAGE), "{}", response.text());
        if form == "text/plain" {
            let id = response.header("x-kong-request-id").unwrap();
            assert_eq!(response.text(), format!("{MESSAGE}\nrequest_id: {id}\n"));
        }
    }
}

#[test]
fn templates_of_errors_can_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let template = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let gateway = Gateway::builder(&one_route(closed_port()))
        .set("error_template_html", &template("html", "<b style=\"width: 100%\">%s</b>"))
        .set("error_template_json", &template("json", "{\"error\":\"%s\",\"id\":\"%s\"}"))
        .set("error_template_xml", &template("xml", "<e>%s</e>"))
        .set("error_template_plain", &template("plain", "100%% gone: %s\n"))
        .start();
    const MESSAGE: &str = "An invalid response was received from the upstream server";
    for (accept, body) in [
        ("", format!("100% gone: {MESSAGE}\n")),
        ("Accept: text/html\r\n", format!("<b style=\"width: 100%\">{MESSAGE}</b>")),
        ("Accept: application/xml\r\n", format!("<e>{MESSAGE}</e>")),
    ] {
        assert_eq!(gateway.get_with("/", accept).text(), body);
    }
    let json = gateway.get_with("/", "Accept: application/json\r\n");
    assert_eq!(
        (json.json()["error"].as_str(), json.json()["id"].as_str()),
        (Some(MESSAGE), json.header("x-kong-request-id"))
    );
    let (_, said) =
        Gateway::builder(&one_route(closed_port())).set("error_template_html", "/no/file.html").fail();
    assert!(said.contains("error_template_html: /no/file.html cannot be read"), "{said}");
}

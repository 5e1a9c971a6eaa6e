//! A page of another origin in Chromium that calls services by gRPC-Web, and shows what it gets.
use super::gateway;
use crate::grpc_web::{frame, pieces};
use crate::harness::http2_upstream::Http2Upstream;
use crate::harness::{Counterpart, Gateway, Upstream, chromium};
use http::HeaderMap;
use serde_json::{Value as Json, json};
use std::sync::Mutex;

const PAGE: &str = include_str!("page.html");

/// Serves the page, and whatever else it is asked for after the closure has seen it.
fn site(asked: impl Fn(&str) + Send + Sync + 'static) -> Upstream {
    Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            asked(&request.head.start);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n",
                PAGE.len()
            );
            peer.send(head + PAGE);
        }
    })
}

/// What the browser gives for these expressions on the page, and what it complained of. `credentials` are those of `fetch`.
fn browse(site: &Upstream, gateway: &Gateway, credentials: &str, expressions: &[&str]) -> (Vec<Json>, Json) {
    let service = format!("http://{}/routeguide.RouteGuide", gateway.proxy());
    let page = format!("http://{}/?credentials={credentials}&service={service}", site.address);
    let mut seen = chromium(&page, expressions);
    let complaints = seen.pop().unwrap();
    (seen, complaints)
}

/// The lines of the page after each of these calls, and what the browser complained of.
fn shown(site: &Upstream, gateway: &Gateway, credentials: &str, calls: &[&str]) -> (Vec<Vec<String>>, Json) {
    let lines = "document.body.innerText.split('\\n').map(line => line.trim()).filter(line => line)";
    let steps: Vec<_> = calls.iter().flat_map(|call| [*call, HAS_ENDED, lines]).collect();
    let (seen, complaints) = browse(site, gateway, credentials, &steps);
    let texts = seen.chunks(3).map(|step| serde_json::from_value(step[2].clone()).unwrap());
    (texts.collect(), complaints)
}

const HAS_ENDED: &str = "wait:document.querySelector('#status').textContent";
const UNARY: &str = "start('GetFeature', point(407838351, -746143763)";
const STREAM: &str =
    "start('ListFeatures', rectangle(point(405000000, -742000000), point(408000000, -740000000))";
const NAMES: [&str; 3] = [
    "6324 8th Avenue, Brooklyn, NY 11220, USA",
    "100 Mount Pleasant Avenue, Newark, NJ 07104, USA",
    "3387 Richmond Terrace, Staten Island, NY 10303, USA",
];

/// Calls a method of each kind in binary and as text, and one that the server does not have.
#[track_caller]
fn works(site: &Upstream, credentials: &str, plugins: &str) {
    let server = Counterpart::example("server");
    let gateway = gateway(server.address, "paths: [/routeguide.RouteGuide]", plugins);
    let calls = [
        format!("{UNARY}, false)"),
        format!("{UNARY}, true)"),
        format!("{STREAM}, false)"),
        format!("{STREAM}, true)"),
        "start('Nothing', [], false)".to_owned(),
    ];
    let (seen, complaints) = shown(site, &gateway, credentials, &calls.each_ref().map(|call| &**call));
    let with_end = |names: &[&'static str]| [names, &["grpc-status:0", "grpc-message:"]].concat();
    let unary = with_end(&["Patriots Path, Mendham, NJ 07945, USA"]);
    let unknown = ["grpc-status:12", "grpc-message:unknown method Nothing for service routeguide.RouteGuide"];
    let expected = [unary.clone(), unary, with_end(&NAMES), with_end(&NAMES), unknown.to_vec()];
    assert_eq!(seen, expected, "{complaints}");
    assert_eq!(complaints, json!([]));
}

#[test]
fn a_page_calls_without_cookies() {
    works(&site(|_| {}), "omit", "{name: grpc-web}");
}

#[test]
fn a_page_calls_with_its_cookies_where_cors_lets_it() {
    let site = site(|_| {});
    let origin = format!("http://{}", site.address);
    let cors = |origin: &str| {
        format!(
            "{{name: cors, config: {{origins: ['{origin}'], credentials: true, methods: [POST]}}}}, \
             {{name: grpc-web, config: {{allow_origin_header: '{origin}'}}}}"
        )
    };
    works(&site, "include", &cors(&origin));
    let server = Counterpart::example("server");
    let other = gateway(server.address, "paths: [/routeguide.RouteGuide]", &cors("http://other.test"));
    let (seen, complaints) = shown(&site, &other, "include", &[&format!("{UNARY}, false)")]);
    assert_eq!(seen, [["TypeError: Failed to fetch"]]);
    assert!(complaints[0].as_str().unwrap().contains("blocked by CORS policy"), "{complaints}");
}

/// An upstream whose stream ends well, and a site that has it send a message for each path `/next/NAME`, and end for `/last`.
fn stream() -> (Http2Upstream, Upstream) {
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
    let (upstream, sender) = pieces(Some(trailers));
    let sender = Mutex::new(Some(sender));
    let site = site(move |start| {
        let mut sender = sender.lock().unwrap();
        let path = start.split(' ').nth(1).unwrap();
        if let Some(name) = path.strip_prefix("/next/") {
            let message = [&[10, u8::try_from(name.len()).unwrap()], name.as_bytes()].concat();
            sender.as_ref().unwrap().send(frame(0, &message)).unwrap();
        } else if path == "/last" {
            drop(sender.take());
        }
    });
    (upstream, site)
}

#[test]
fn a_page_sees_each_message_of_a_stream_as_it_comes() {
    for is_text in [false, true] {
        let (upstream, site) = stream();
        let gateway = gateway(upstream.address, "paths: [/routeguide.RouteGuide]", "{name: grpc-web}");
        let get = |path: &str| format!("get:http://{}/{path}", site.address);
        let count = |count: u32| format!("wait:document.querySelectorAll('li').length === {count}");
        let call = format!("start('ListFeatures', [], {is_text})");
        let end = HAS_ENDED.to_owned();
        let steps = [call, get("next/one"), count(1), get("next/two"), count(2), get("last"), end];
        let (seen, complaints) = browse(&site, &gateway, "omit", &steps.each_ref().map(|step| &**step));
        assert_eq!((&seen[6], complaints), (&json!("grpc-status:0\r\ngrpc-message:\r\n"), json!([])));
    }
}

//! Where a plugin sends a request.

use super::{Behaviour, Gateway, Server};
use crate::testing::{entity, id};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use std::sync::Arc;
use weir_model::Document;
use weir_plugin::*;

/// Does what a request's headers say.
struct Chooser;

#[derive(Debug, Clone, Record)]
struct Config {}

impl Plugin for Chooser {
    const NAME: &'static str = "chooser";
    const PRIORITY: i32 = 10;
    type Config = Config;

    fn new(_: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self)
    }
}

impl Hooks for Chooser {
    fn access(&self, exchange: &mut Exchange) -> Flow {
        let value =
            |name| exchange.request.headers.get(name).map(|value| String::from_utf8(value.to_vec()).unwrap());
        let (target, upstream, retries) = (value("X-Target"), value("X-Upstream"), value("X-Retries"));
        let (tls, timeout) = (value("X-Tls"), value("X-Timeout"));
        if let Some(target) = target {
            let (host, port) = target.rsplit_once(':').unwrap();
            exchange.set_target(host, port.parse().unwrap()).unwrap();
        }
        if let Some(Err(error)) = upstream.map(|name| exchange.set_upstream(&name)) {
            return Flow::Respond(LocalResponse::message(500, &error.to_string()));
        }
        retries.into_iter().for_each(|retries| exchange.set_retries(retries.parse().unwrap()));
        tls.into_iter().for_each(|tls| exchange.set_upstream_tls(tls == "on"));
        timeout.into_iter().for_each(|ms| exchange.set_timeouts(60_000, 60_000, ms.parse().unwrap()));
        Flow::Continue
    }
}

static PLUGINS: &[Definition] = &[define::<Chooser>()];

/// A gateway before this server, with an upstream `blue` of another.
fn gateway(configured: &Server, blue: &Server, more: Json) -> Gateway {
    let mut service = json!({ "id": id(0x51), "host": "127.0.0.1", "port": configured.address.port() });
    service.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    let ca = match service.as_object_mut().unwrap().remove("ca") {
        Some(cert) => vec![entity(json!({ "id": id(0x91), "cert": cert }))],
        None => Vec::new(),
    };
    let document = Document {
        services: vec![entity(service)],
        routes: vec![entity(json!({ "id": id(0x61), "paths": ["/"], "service": id(0x51) }))],
        upstreams: vec![entity(json!({ "id": id(0x71), "name": "blue" }))],
        targets: vec![entity(
            json!({ "id": id(0x81), "upstream": id(0x71), "target": blue.address.to_string() }),
        )],
        ca_certificates: ca,
        plugins: vec![entity(json!({ "id": id(0xf1), "name": "chooser", "config": {} }))],
        ..Document::default()
    };
    Gateway::start(&document, PLUGINS)
}

/// A server's TLS by a certificate for this name, and that of the authority that has issued it.
fn tls(name: &str) -> (Arc<ServerConfig>, String) {
    let key = || KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = key();
    let ca = params.self_signed(&ca_key).unwrap().pem();
    let (key, issuer) = (key(), Issuer::new(params, ca_key));
    let own = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_no_client_auth().with_single_cert(vec![own.der().clone()], key).unwrap();
    (Arc::new(config), ca)
}

#[test]
fn each_request_goes_to_its_own_target_and_connections_are_not_mixed() {
    let (configured, a, b) =
        (Server::answering("configured"), Server::answering("a"), Server::answering("b"));
    let gateway = gateway(&configured, &b, json!({}));
    let mut client = gateway.connect();
    let own = format!("configured as {}", configured.address);
    for _ in 0..3 {
        assert_eq!(client.get(&format!("X-Target: {}\r\n", a.address)), (200, "a as 127.0.0.1".into()));
        assert_eq!(client.get(&format!("X-Target: {}\r\n", b.address)), (200, "b as 127.0.0.1".into()));
        assert_eq!(client.get(""), (200, own.clone()));
        let localhost = format!("X-Target: localhost:{}\r\n", a.address.port());
        assert_eq!(client.get(&localhost), (200, "a as localhost".into()));
    }
    // One for each name of `a`, one for `b`, one for the service.
    assert_eq!((a.connections(), b.connections(), configured.connections()), (2, 1, 1));
}

#[test]
fn an_upstream_is_chosen_by_name_and_must_exist() {
    let (configured, blue) = (Server::answering("configured"), Server::answering("blue"));
    let gateway = gateway(&configured, &blue, json!({}));
    let mut client = gateway.connect();
    let of_target = format!("blue as {}", blue.address);
    for _ in 0..2 {
        assert_eq!(client.get("X-Upstream: blue\r\n"), (200, of_target.clone()));
    }
    assert_eq!(client.get("X-Target: blue:1\r\n"), (200, "blue as blue".into()));
    let (status, text) = client.get("X-Upstream: red\r\n");
    assert_eq!(status, 500);
    assert!(text.contains("could not find an Upstream named 'red'"), "{text}");
    assert_eq!((blue.connections(), configured.connections()), (1, 0));
}

#[test]
fn retries_stay_with_the_target() {
    let (configured, blue) = (Server::answering("configured"), Server::answering("blue"));
    let closing = Server::start("closing", Behaviour::Closes, None);
    let gateway = gateway(&configured, &blue, json!({ "retries": 0 }));
    let mut client = gateway.connect();
    let to = format!("X-Target: {}\r\n", closing.address);
    assert_eq!(client.get(&to).0, 502);
    assert_eq!(closing.connections(), 1);
    assert_eq!(client.get(&format!("{to}X-Retries: 2\r\n")).0, 502);
    assert_eq!((closing.connections(), configured.connections()), (4, 0));
    assert_eq!(client.get("X-Retries: 5\r\n").0, 200);
}

#[test]
fn a_request_may_have_less_time_than_its_service() {
    let (configured, blue) = (Server::start("silent", Behaviour::Silent, None), Server::answering("blue"));
    let gateway = gateway(&configured, &blue, json!({ "retries": 0 }));
    assert_eq!(gateway.connect().get("X-Timeout: 50\r\n").0, 504);
}

#[test]
fn tls_is_spoken_where_a_plugin_says_so() {
    let (config, _) = tls("localhost");
    let secure = Server::start("secure", Behaviour::Answers, Some(config));
    let plain = Server::answering("plain");
    let gateway = gateway(&plain, &plain, json!({}));
    let mut client = gateway.connect();
    let to_secure = format!("X-Target: localhost:{}\r\nX-Tls: on\r\n", secure.address.port());
    for _ in 0..2 {
        assert_eq!(client.get(&to_secure), (200, "secure as localhost".into()));
        assert_eq!(client.get("X-Tls: off\r\n").0, 200);
    }
    // The same host and port in clear is another connection, which the server does not understand.
    let in_clear = format!("X-Target: localhost:{}\r\nX-Tls: off\r\nX-Retries: 0\r\n", secure.address.port());
    assert_eq!(client.get(&in_clear).0, 502);
    assert_eq!((secure.connections(), plain.connections()), (2, 1));
}

#[test]
fn a_target_over_tls_is_verified_as_the_service_says() {
    let ((good, ca), (other, _)) = (tls("localhost"), tls("localhost"));
    let good = Server::start("good", Behaviour::Answers, Some(good));
    let other = Server::start("other", Behaviour::Answers, Some(other));
    let verifying = json!({
        "protocol": "https", "tls_verify": true, "ca_certificates": [id(0x91)], "ca": ca, "retries": 0,
    });
    let gateway = gateway(&good, &good, verifying);
    let mut client = gateway.connect();
    let to = |server: &Server, host: &str| format!("X-Target: {host}:{}\r\n", server.address.port());
    assert_eq!(client.get(&to(&good, "localhost")), (200, "good as localhost".into()));
    assert_eq!(client.get(&to(&other, "localhost")).0, 502);
    // The certificate is for another name.
    assert_eq!(client.get(&to(&good, "127.0.0.1")).0, 502);
}

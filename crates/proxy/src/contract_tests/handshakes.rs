//! What plugins have a say in of TLS handshakes.

use super::{Gateway, Server};
use crate::testing::{entity, id};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use weir_model::Document;
use weir_net::tls::{CertifiedKey, certified_key};
use weir_plugin::*;

/// Does what the server name says, and answers with what it knows of the client's certificate.
struct Doorman {
    own: CertificateKey,
}

#[derive(Debug, Clone, Record)]
struct Config {
    /// The certificate for some clients, and its key.
    pub cert: String,
    pub key: String,
}

impl Plugin for Doorman {
    const NAME: &'static str = "doorman";
    const PRIORITY: i32 = 10;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self { own: CertificateKey::from_pem(&config.cert, &config.key)? })
    }
}

impl Hooks for Doorman {
    fn certificate(&self, handshake: &mut Handshake) -> HandshakeFlow {
        assert!(handshake.peer.ip().is_loopback() && handshake.local.port() > 0);
        if handshake.offers(b"acme-tls/1") {
            handshake.select_alpn(b"acme-tls/1");
            handshake.set_certificate(&self.own);
        }
        match handshake.sni.as_deref() {
            Some("ask.test") => handshake.request_client_certificate(),
            Some("own.test") => handshake.set_certificate(&self.own),
            Some("no.test") => return HandshakeFlow::Refuse,
            Some("panic.test") => panic!("on purpose"),
            Some("wait.test") => {
                return HandshakeFlow::Wait(Box::pin(async {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let rest: HandshakeResume = Box::new(|handshake| {
                        handshake.request_client_certificate();
                        HandshakeFlow::Continue
                    });
                    rest
                }));
            }
            _ => {}
        }
        HandshakeFlow::Continue
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let named =
            exchange.client_certificate().map(|certificate| certificate.common_name().map(str::to_owned));
        let text = format!("asked {}, presented {named:?}", exchange.is_asked_for_certificate());
        Flow::Respond(LocalResponse::raw(200, None, text))
    }
}

static PLUGINS: &[Definition] = &[define::<Doorman>()];

fn issued(name: &str) -> (String, String) {
    let issued = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    (issued.cert.pem(), issued.signing_key.serialize_pem())
}

fn gateway(scope: Json) -> (Gateway, Arc<CertifiedKey>) {
    let (cert, key) = issued("own.test");
    let own = certified_key(cert.as_bytes(), key.as_bytes()).unwrap();
    (Gateway::start(&document(scope, &cert, &key), PLUGINS), Arc::new(own))
}

/// A route whose plugin presents this certificate.
fn document(scope: Json, cert: &str, key: &str) -> Document {
    let upstream = Server::answering("upstream");
    let mut plugin = json!({ "id": id(0xf1), "name": "doorman", "config": { "cert": cert, "key": key } });
    plugin.as_object_mut().unwrap().extend(scope.as_object().cloned().unwrap_or_default());
    Document {
        services: vec![entity(
            json!({ "id": id(0x51), "host": "127.0.0.1", "port": upstream.address.port() }),
        )],
        routes: vec![entity(json!({ "id": id(0x61), "paths": ["/"], "service": id(0x51) }))],
        plugins: vec![entity(plugin)],
        ..Document::default()
    }
}

#[test]
fn a_plugin_asks_some_clients_for_a_certificate() {
    let (gateway, _) = gateway(json!({}));
    let (cert, key) = issued("client");
    let identity = Arc::new(certified_key(cert.as_bytes(), key.as_bytes()).unwrap());
    let asked = |name: &str| {
        let identity = Some(identity.clone());
        gateway.connect_tls(name, &[b"http/1.1"], identity).unwrap().get("")
    };
    let presented = "asked true, presented Some(Some(\"rcgen self signed cert\"))".to_owned();
    assert_eq!(asked("ask.test"), (200, presented.clone()));
    assert_eq!(asked("wait.test"), (200, presented));
    assert_eq!(asked("other.test"), (200, "asked false, presented None".into()));
    let without = gateway.connect_tls("ask.test", &[], None).unwrap().get("");
    assert_eq!(without, (200, "asked true, presented None".into()));
}

#[test]
fn a_plugin_refuses_a_handshake() {
    let (gateway, _) = gateway(json!({}));
    for name in ["no.test", "panic.test"] {
        let refused = gateway.connect_tls(name, &[], None).err().unwrap();
        assert!(refused.to_string().contains("alert"), "{name}: {refused}");
    }
    assert_eq!(gateway.connect_tls("other.test", &[], None).unwrap().get("").0, 200);
}

#[test]
fn a_plugin_presents_a_certificate_of_its_own() {
    let (gateway, own) = gateway(json!({}));
    let mut client = gateway.connect_tls("own.test", &[b"http/1.1"], None).unwrap();
    assert_eq!(client.0.get_ref().conn.peer_certificates().unwrap(), own.cert);
    assert_eq!(client.get("").0, 200);
    let other = gateway.connect_tls("other.test", &[], None).unwrap();
    assert_ne!(other.0.get_ref().conn.peer_certificates().unwrap(), own.cert);
}

#[test]
fn a_challenge_of_acme_is_answered_by_a_handshake_alone() {
    let (gateway, own) = gateway(json!({}));
    let mut client = gateway.connect_tls("a.test", &[b"acme-tls/1"], None).unwrap();
    let session = &client.0.get_ref().conn;
    assert_eq!(session.alpn_protocol(), Some(&b"acme-tls/1"[..]));
    assert_eq!(session.peer_certificates().unwrap(), own.cert);
    let mut rest = Vec::new();
    assert_eq!(std::io::Read::read_to_end(&mut client.0, &mut rest).unwrap(), 0);
}

#[test]
fn what_was_presented_over_tcp_is_presented_over_quic_but_for_challenges_of_acme() {
    let (gateway, own) = gateway(json!({}));
    for (name, alpn) in [("own.test", &b"http/1.1"[..]), ("a.test", b"acme-tls/1")] {
        let client = gateway.connect_tls(name, &[alpn], None).unwrap();
        assert_eq!(client.0.get_ref().conn.peer_certificates().unwrap(), own.cert, "{name}");
    }
    assert_eq!(gateway.presented_over_quic("own.test"), own.cert);
    assert_ne!(gateway.presented_over_quic("a.test"), own.cert, "it was for one handshake");
}

#[test]
fn what_was_presented_is_known_until_other_plugins_decide() {
    let (cert, key) = issued("own.test");
    let own = certified_key(cert.as_bytes(), key.as_bytes()).unwrap();
    let gateway = Gateway::start(&document(json!({}), &cert, &key), PLUGINS);
    assert_ne!(gateway.presented_over_quic("own.test"), own.cert, "it is not known yet");
    gateway.connect_tls("own.test", &[b"http/1.1"], None).unwrap();
    // Read again, with another service.
    gateway.publish(&document(json!({}), &cert, &key));
    assert_eq!(gateway.presented_over_quic("own.test"), own.cert);
    let (other, its_key) = issued("own.test");
    gateway.publish(&document(json!({}), &other, &its_key));
    assert_ne!(gateway.presented_over_quic("own.test"), own.cert, "it is another configuration's");
    gateway.publish(&Document::default());
    assert_ne!(gateway.presented_over_quic("own.test"), own.cert);
}

#[test]
fn what_a_handshake_decides_by_a_plugin_that_is_gone_meanwhile_is_not_presented_to_others() {
    let (cert, key) = issued("own.test");
    let own = certified_key(cert.as_bytes(), key.as_bytes()).unwrap();
    let (other, its_key) = issued("own.test");
    for next in [Document::default(), document(json!({}), &other, &its_key)] {
        let gateway = Gateway::start(&document(json!({}), &cert, &key), PLUGINS);
        let held = gateway.begin_handshake("own.test");
        gateway.publish(&next);
        assert_eq!(held.finish(), own.cert, "it began before");
        assert_ne!(gateway.presented_over_quic("own.test"), own.cert);
        // Nothing changes about who decides.
        gateway.publish(&next);
        assert_ne!(gateway.presented_over_quic("own.test"), own.cert);
    }
}

#[test]
fn only_a_global_plugin_has_a_say() {
    let (gateway, _) = gateway(json!({ "route": id(0x61) }));
    let answer = gateway.connect_tls("no.test", &[], None).unwrap().get("");
    assert_eq!(answer, (200, "asked false, presented None".into()));
}

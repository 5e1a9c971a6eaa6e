//! TLS against rustls as a server, with a certificate that signs itself.
use super::server::{Server, plain};
use super::{millis, plan, run};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{HandshakeKind, ServerConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use weirlab::load::{Pace, Plan};

fn config() -> Arc<ServerConfig> {
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(vec![signed.cert.der().clone()], key).unwrap())
}

#[test]
fn answers_over_tls() {
    let body = "x".repeat(100_000);
    let server = Server::start_tls(config(), |_| {}, move |_, writer| plain(writer, 200, &body));
    let outcome = run(&Plan { tls: true, host: "localhost".to_owned(), ..plan(&server) });
    assert!(outcome.good > 10 && outcome.errors.is_empty(), "{} {:?}", outcome.good, outcome.errors);
    // HTTP is counted, not TLS.
    assert!(outcome.bytes.abs_diff(outcome.answers * 100_043) <= 4 * 100_043, "{}", outcome.bytes);
    // Connections that are kept are opened before the window.
    assert_eq!((server.connections(), outcome.connections_opened), (4, Some(0)));
}

#[test]
fn every_handshake_is_a_full_one() {
    let full = Arc::new(AtomicUsize::new(0));
    let counting = full.clone();
    let shaken = move |tls: &rustls::ServerConnection| {
        counting.fetch_add(usize::from(tls.handshake_kind() == Some(HandshakeKind::Full)), Ordering::SeqCst);
    };
    let server = Server::start_tls(config(), shaken, |_, writer| plain(writer, 200, "once"));
    let outcome = run(&Plan { tls: true, keep_alive: false, duration: millis(1000), ..plan(&server) });
    assert!(outcome.good >= 5 && outcome.errors.is_empty(), "{} {:?}", outcome.good, outcome.errors);
    assert!(full.load(Ordering::SeqCst) as u64 >= outcome.good);
    assert!(outcome.connect.quantile(0.5).is_none_or(|median| median > millis(0)));
}

#[test]
fn an_open_loop_over_tls() {
    let server = Server::start_tls(
        config(),
        |_| {},
        |_, writer| {
            thread::sleep(millis(5));
            plain(writer, 200, "")
        },
    );
    let outcome =
        run(&Plan { tls: true, pace: Pace::Poisson(100.0), duration: millis(1000), ..plan(&server) });
    assert!(outcome.good > 40 && outcome.errors.is_empty(), "{} {:?}", outcome.good, outcome.errors);
    assert!(outcome.latencies.service.quantile(0.5).unwrap() >= millis(5));
}

#[test]
fn a_server_without_tls_is_an_error_of_tls() {
    let server = Server::start(|_, writer| plain(writer, 400, "plain HTTP"));
    let outcome = run(&Plan { tls: true, connections: 1, timeout: millis(200), ..plan(&server) });
    assert!(outcome.answers == 0 && outcome.errors.contains_key("tls"), "{:?}", outcome.errors);
}

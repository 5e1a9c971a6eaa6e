//! Handshakes with upstreams.

use super::*;
use crate::tls::client;
use rcgen::{BasicConstraints, IsCa, Issuer};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::SingleCertAndKey;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// A chain of certificates for `up.test`, from the root down.
struct Chain {
    root: CertificateDer<'static>,
    key: Arc<CertifiedKey>,
}

fn chain(intermediates: usize) -> Chain {
    let new_key = || KeyPair::generate().unwrap();
    let ca = |name: String| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let (params, key) = (ca("root".into()), new_key());
    let root = params.self_signed(&key).unwrap();
    let mut issuer = Issuer::new(params, key);
    let mut sent = Vec::new();
    for i in 0..intermediates {
        let (params, key) = (ca(format!("intermediate {i}")), new_key());
        sent.insert(0, params.signed_by(&key, &issuer).unwrap().into());
        issuer = Issuer::new(params, key);
    }
    let key = new_key();
    let leaf = CertificateParams::new(["up.test".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    sent.insert(0, leaf.into());
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    Chain { root: root.into(), key: Arc::new(CertifiedKey::from_der(sent, key, &provider()).unwrap()) }
}

async fn upstream(key: Arc<CertifiedKey>, version: &'static rustls::SupportedProtocolVersion) -> SocketAddr {
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    serve(Arc::new(config)).await
}

const VERSIONS: [&rustls::SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

#[tokio::test]
async fn without_verification_any_certificate_will_do() {
    for version in VERSIONS {
        for issued in [ecdsa("other.test"), rsa("other.test")] {
            let key = pem::certified_key(issued.cert.as_bytes(), issued.key.as_bytes()).unwrap();
            let address = upstream(Arc::new(key), version).await;
            let seen = connect(address, &trusting(), "up.test").await.unwrap();
            assert_eq!(seen.cert, der(&issued));
            assert_eq!(connect(address, &trusting(), "127.0.0.1").await.unwrap().kind, HandshakeKind::Full);
        }
    }
}

#[tokio::test]
async fn without_verification_the_server_must_still_hold_the_key() {
    for version in VERSIONS {
        for (shown, held) in [(ecdsa("up.test"), ecdsa("up.test")), (ecdsa("up.test"), rsa("up.test"))] {
            let held = pem::certified_key(held.cert.as_bytes(), held.key.as_bytes()).unwrap();
            let stolen = CertifiedKey::new(ca_certificates(&shown.cert).unwrap(), held.key);
            let address = upstream(Arc::new(stolen), version).await;
            let refusal = connect(address, &trusting(), "up.test").await.unwrap_err();
            assert!(refusal.to_string().contains("invalid peer certificate"), "{refusal}");
        }
    }
}

#[tokio::test]
async fn verification_wants_a_trusted_chain_and_the_right_name() {
    let (known, stranger) = (chain(1), chain(1));
    let client = client_config(Some(Verify { roots: vec![known.root], depth: None }), None).unwrap();
    for version in VERSIONS {
        let address = upstream(known.key.clone(), version).await;
        connect(address, &client, "up.test").await.unwrap();
        let refusal = connect(address, &client, "other.test").await.unwrap_err();
        assert!(refusal.to_string().contains("not valid for name"), "{refusal}");
        let address = upstream(stranger.key.clone(), version).await;
        let refusal = connect(address, &client, "up.test").await.unwrap_err();
        assert!(refusal.to_string().contains("invalid peer certificate"), "{refusal}");
    }
}

#[tokio::test]
async fn a_certificate_that_is_itself_trusted_needs_its_name_and_time_alone() {
    let day = |year| rcgen::date_time_ymd(year, 1, 1);
    for is_ca in [IsCa::NoCa, IsCa::ExplicitNoCa, IsCa::Ca(BasicConstraints::Unconstrained)] {
        for (from, to, refused) in
            [(2020, 2100, None), (2020, 2021, Some("expired")), (2099, 2100, Some("not valid yet"))]
        {
            let own = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(["up.test".to_owned()]).unwrap();
            (params.is_ca, params.not_before, params.not_after) = (is_ca, day(from), day(to));
            let cert: CertificateDer<'_> = params.self_signed(&own).unwrap().into();
            let key = PrivateKeyDer::Pkcs8(own.serialize_der().into());
            let key = CertifiedKey::from_der(vec![cert.clone()], key, &provider()).unwrap();
            let address = upstream(Arc::new(key), &rustls::version::TLS13).await;
            let verify = |root| {
                let verify = Verify { roots: vec![root], depth: Some(0) };
                client_config(Some(verify), None).unwrap()
            };
            match (connect(address, &verify(cert.clone()), "up.test").await, refused) {
                (Ok(_), None) => {}
                (Err(refusal), Some(why)) => assert!(refusal.to_string().contains(why), "{refusal}"),
                (outcome, _) => panic!("{is_ca:?} from {from} to {to}: {outcome:?}"),
            }
            connect(address, &verify(cert), "other.test").await.unwrap_err();
            let look_alike = params.self_signed(&KeyPair::generate().unwrap()).unwrap().into();
            connect(address, &verify(look_alike), "up.test").await.unwrap_err();
        }
    }
}

#[tokio::test]
async fn verification_limits_the_intermediate_certificates() {
    for intermediates in 0..=2 {
        let chain = chain(intermediates);
        let address = upstream(chain.key.clone(), &rustls::version::TLS13).await;
        for depth in 0..=2 {
            let verify = Verify { roots: vec![chain.root.clone()], depth: Some(depth) };
            let outcome = connect(address, &client_config(Some(verify), None).unwrap(), "up.test").await;
            assert_eq!(outcome.is_ok(), intermediates <= depth.into(), "{intermediates} at depth {depth}");
        }
    }
}

#[tokio::test]
async fn certificates_that_are_sent_needlessly_do_not_count() {
    let (chain, other) = (chain(0), chain(2));
    let mut key = CertifiedKey::clone(&chain.key);
    key.cert.extend(other.key.cert[1..].iter().cloned());
    let address = upstream(Arc::new(key), &rustls::version::TLS13).await;
    let verify = Verify { roots: vec![chain.root], depth: Some(0) };
    connect(address, &client_config(Some(verify), None).unwrap(), "up.test").await.unwrap();
}

#[tokio::test]
async fn a_client_certificate_is_presented_when_asked_for() {
    let (up, gateway) = (chain(0), chain(0));
    let mut roots = RootCertStore::empty();
    roots.add(gateway.root).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(up.key)));
    let address = serve(Arc::new(config)).await;
    connect(address, &trusting(), "up.test").await.unwrap_err();
    connect(address, &client_config(None, Some(gateway.key)).unwrap(), "up.test").await.unwrap();
}

/// A server whose sessions can be resumed.
async fn resumable(chain: &Chain, version: &'static rustls::SupportedProtocolVersion) -> SocketAddr {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(chain.key.clone())));
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().unwrap();
    serve(Arc::new(config)).await
}

#[tokio::test]
async fn sessions_with_upstreams_are_resumed() {
    let chain = chain(0);
    for version in VERSIONS {
        let verify = Verify { roots: vec![chain.root.clone()], depth: Some(1) };
        let client = client_config(Some(verify), None).unwrap();
        let address = resumable(&chain, version).await;
        assert_eq!(connect(address, &client, "up.test").await.unwrap().kind, HandshakeKind::Full);
        assert_eq!(connect(address, &client, "up.test").await.unwrap().kind, HandshakeKind::Resumed);
    }
}

#[tokio::test]
async fn no_session_is_resumed_after_its_certificate_has_expired() {
    static YEARS: AtomicU64 = AtomicU64::new(0);
    fn in_years() -> UnixTime {
        let seconds = UnixTime::now().as_secs() + YEARS.load(SeqCst) * 365 * 24 * 60 * 60;
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }
    let chain = chain(0);
    for version in VERSIONS {
        let verify = Verify { roots: vec![chain.root.clone()], depth: None };
        let client = client::config(Some(verify), None, in_years).unwrap();
        let address = resumable(&chain, version).await;
        let kind = async || connect(address, &client, "up.test").await.unwrap().kind;
        // The certificate is valid until the year 4096.
        for (years, second) in
            [(0, HandshakeKind::Resumed), (3000, HandshakeKind::Full), (0, HandshakeKind::Resumed)]
        {
            YEARS.store(years, SeqCst);
            assert_eq!(
                [kind().await, kind().await],
                [HandshakeKind::Full, second],
                "{version:?} in {years} years"
            );
            // What is left to resume.
            kind().await;
        }
    }
}

#[test]
fn roots_must_be_certificates() {
    let verify = |roots| client_config(Some(Verify { roots, depth: None }), None).unwrap_err().subject;
    assert_eq!(verify(Vec::new()), Subject::CaCertificate(None));
    assert_eq!(verify(vec![CertificateDer::from(b"no DER".to_vec())]), Subject::CaCertificate(None));
}

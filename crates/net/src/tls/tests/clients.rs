//! Handshakes with clients.

use super::*;
use rustls::pki_types::CertificateDer;

fn only(version: Version) -> TlsOptions {
    TlsOptions { protocols: vec![version], ..TlsOptions::default() }
}

#[tokio::test]
async fn both_versions_are_spoken() {
    let issued = ecdsa("a.test");
    for (version, expected) in
        [(Version::Tls12, ProtocolVersion::TLSv1_2), (Version::Tls13, ProtocolVersion::TLSv1_3)]
    {
        let address = serve(server(&only(version), &issued).config).await;
        let seen = connect(address, &trusting(), "a.test").await.unwrap();
        assert_eq!((seen.version, seen.cert), (expected, der(&issued)));
        assert_eq!(seen.alpn.as_deref(), Some(&b"http/1.1"[..]));
    }
}

#[tokio::test]
async fn the_modern_suites_refuse_tls_1_2() {
    let modern = TlsOptions { cipher_suites: CipherSuites::Modern, ..TlsOptions::default() };
    let address = serve(server(&modern, &ecdsa("a.test")).config).await;
    let old = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let refusal = connect(address, &Arc::new(old), "a.test").await.unwrap_err();
    assert!(refusal.to_string().contains("ProtocolVersion"), "{refusal}");
    assert_eq!(connect(address, &trusting(), "a.test").await.unwrap().version, ProtocolVersion::TLSv1_3);
}

#[test]
fn no_protocol_left_is_an_error() {
    let none = TlsOptions { cipher_suites: CipherSuites::Modern, ..only(Version::Tls12) };
    let error = ServerTls::new(&none, Certificates::only(default())).err().unwrap();
    assert_eq!(error.problem, Problem::NoProtocol);
}

#[tokio::test]
async fn sessions_are_resumed_also_after_a_reload() {
    for version in [Version::Tls12, Version::Tls13] {
        let server = server(&only(version), &ecdsa("a.test"));
        let (address, client) = (serve(server.config.clone()).await, trusting());
        let kind = async |client| connect(address, client, "a.test").await.unwrap().kind;
        assert_eq!(kind(&client).await, HandshakeKind::Full);
        assert_eq!(kind(&client).await, HandshakeKind::Resumed);
        let renewed = ecdsa("a.test");
        server.replace(certificates(&renewed));
        assert_eq!(kind(&client).await, HandshakeKind::Resumed);
        let seen = connect(address, &trusting(), "a.test").await.unwrap();
        assert_eq!((seen.kind, seen.cert), (HandshakeKind::Full, der(&renewed)));
    }
}

#[tokio::test]
async fn a_connection_outlives_a_reload() {
    let server = server(&TlsOptions::default(), &ecdsa("a.test"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let connector = TlsConnector::from(trusting());
    let name = ServerName::try_from("a.test").unwrap();
    let acceptor = TlsAcceptor::from(server.config.clone());
    let (client, accepted) = tokio::join!(connector.connect(name, socket), acceptor.accept(accepted));
    let (mut client, mut accepted) = (client.unwrap(), accepted.unwrap());
    server.replace(certificates(&ecdsa("a.test")));
    client.write_all(b"ping").await.unwrap();
    client.flush().await.unwrap();
    let mut received = [0; 4];
    accepted.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"ping");
}

#[tokio::test]
async fn a_session_is_not_resumed_under_another_name() {
    let (one, two) = (ecdsa("one.test"), ecdsa("two.test"));
    let both = document(
        vec![certificate(1, &one), certificate(2, &two)],
        vec![sni("one.test", 1), sni("two.test", 2)],
    );
    let server =
        ServerTls::new(&TlsOptions::default(), Certificates::build(&both, default()).unwrap()).unwrap();
    let (address, client) = (serve(server.config.clone()).await, trusting());
    for (name, issued) in [("one.test", &one), ("two.test", &two)] {
        let seen = connect(address, &client, name).await.unwrap();
        assert_eq!((seen.kind, seen.cert), (HandshakeKind::Full, der(issued)));
    }
}

#[tokio::test]
async fn old_ticket_keys_are_forgotten() {
    let brief = TlsOptions { session_timeout: std::time::Duration::from_secs(2), ..TlsOptions::default() };
    let config = server(&brief, &ecdsa("a.test")).config;
    assert_eq!(config.ticketer.lifetime(), 2);
    let ticket = config.ticketer.encrypt(b"session").unwrap();
    assert_eq!(config.ticketer.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
    let forgotten = async {
        while config.ticketer.decrypt(&ticket).is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), forgotten).await.unwrap();
}

#[tokio::test]
async fn the_generated_certificate_serves_localhost() {
    let generated = default();
    let server = ServerTls::new(&TlsOptions::default(), Certificates::only(generated.clone())).unwrap();
    let address = serve(server.config.clone()).await;
    let roots: Vec<CertificateDer<'static>> = generated.cert.clone();
    let client = client_config(Some(Verify { roots, depth: None }), None).unwrap();
    for name in ["localhost", "127.0.0.1", "::1"] {
        connect(address, &client, name).await.unwrap();
    }
    connect(address, &client, "example.com").await.unwrap_err();
}

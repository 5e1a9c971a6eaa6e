//! Handshakes with OpenSSL.

use super::*;
use std::path::Path;
use std::process::{Command, Stdio};

/// What `openssl` prints.
async fn openssl(arguments: &[&str]) -> String {
    let mut command = Command::new("openssl");
    command.args(arguments).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    String::from_utf8_lossy(&output.expect("openssl is installed").stdout).replace(' ', "")
}

async fn both_key_types() -> SocketAddr {
    let (own, alt) = (rsa("both.test"), ecdsa("both.test"));
    let both = Certificate { cert_alt: Some(alt.cert), key_alt: Some(alt.key), ..certificate(1, &own) };
    let certificates = Certificates::build(&document(vec![both], vec![sni("both.test", 1)]), default());
    serve(ServerTls::new(&TlsOptions::default(), certificates.unwrap()).unwrap().config).await
}

#[tokio::test]
async fn openssl_gets_the_certificate_it_can_use() {
    let address = both_key_types().await.to_string();
    for (arguments, expected) in [
        ("-tls1_3 -servername both.test -sigalgs RSA-PSS+SHA256", ["TLSv1.3", "RSA-PSS", "CN=both.test"]),
        ("-tls1_3 -servername both.test -sigalgs ECDSA+SHA256", ["TLSv1.3", "ECDSA", "CN=both.test"]),
        ("-tls1_2 -servername both.test -cipher aRSA", ["TLSv1.2", "ECDHE-RSA", "CN=both.test"]),
        ("-tls1_2 -servername both.test -cipher aECDSA", ["TLSv1.2", "ECDHE-ECDSA", "CN=both.test"]),
        ("-tls1_3 -servername other.test", ["TLSv1.3", "ECDSA", "CN=localhost"]),
        ("-tls1_3 -noservername -alpn http/1.1", ["TLSv1.3", "ALPNprotocol:http/1.1", "CN=localhost"]),
        ("-tls1_2 -servername both.test -reconnect", ["TLSv1.2", "Reused,TLSv1.2", "CN=both.test"]),
        (
            "-tls1_2 -servername both.test -no_ticket -reconnect",
            ["TLSv1.2", "Reused,TLSv1.2", "CN=both.test"],
        ),
    ] {
        let mut command = vec!["s_client", "-connect", &address];
        command.extend(arguments.split(' '));
        let output = openssl(&command).await;
        for text in expected {
            assert!(output.contains(text), "{arguments}: no {text} in\n{output}");
        }
    }
}

#[tokio::test]
async fn upstreams_with_version_1_certificates_are_accepted_without_verification() {
    let folder = tempfile::tempdir().unwrap();
    let issued = version_1(folder.path()).await;
    let key = KeyPair::from_pem(&issued.key).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let key = provider().key_provider.load_private_key(key).unwrap();
    let certified = Arc::new(CertifiedKey::new(ca_certificates(&issued.cert).unwrap(), key));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified.clone())));
        let address = serve(Arc::new(config)).await;
        assert_eq!(connect(address, &trusting(), "up.test").await.unwrap().cert, der(&issued));
    }
}

/// A certificate of the kind that `openssl x509 -req` makes without extensions.
async fn version_1(folder: &Path) -> Issued {
    let path = |name| folder.join(name).to_string_lossy().into_owned();
    let (key, request, cert) = (path("key.pem"), path("request.pem"), path("cert.pem"));
    let new = "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=old -keyout";
    let mut command: Vec<_> = new.split(' ').collect();
    command.extend([&key, "-out", &request]);
    openssl(&command).await;
    openssl(&["x509", "-req", "-in", &request, "-signkey", &key, "-out", &cert]).await;
    let read = |path| std::fs::read_to_string(path).unwrap();
    let text = openssl(&["x509", "-in", &cert, "-noout", "-text"]).await;
    assert!(text.contains("Version:1"), "{text}");
    Issued { cert: read(cert), key: read(key) }
}

#[tokio::test]
async fn what_openssl_req_x509_makes_can_be_trusted_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name).to_string_lossy().into_owned();
    let (key, cert) = (path("key.pem"), path("cert.pem"));
    let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=up.test -addext \
               subjectAltName=DNS:up.test -keyout";
    let mut command: Vec<_> = new.split_whitespace().collect();
    command.extend([&*key, "-out", &cert]);
    openssl(&command).await;
    let read = |path| std::fs::read_to_string(path).unwrap();
    let issued = Issued { cert: read(cert), key: read(key) };
    let address = serve(server(&TlsOptions::default(), &issued).config).await;
    let verify = Verify { roots: ca_certificates(&issued.cert).unwrap(), depth: None };
    let client = client_config(Some(verify), None).unwrap();
    connect(address, &client, "up.test").await.unwrap();
    connect(address, &client, "other.test").await.unwrap_err();
}

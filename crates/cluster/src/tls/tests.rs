//! Handshakes with OpenSSL, with certificates of X.509 version 1 as Kong generates them.
use super::*;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use weir_net::connect;
use weir_net::tls::ca_certificates;

/// The files of a certificate and its key.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    /// As Kong's: version 1, P-384, no names but the common name, valid from now for so many days.
    fn of_kong(days: i32) -> Files {
        let files = Files { folder: tempfile::tempdir().unwrap() };
        files.openssl("req -new -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -subj /CN=kong_clustering -keyout key -out request");
        files.openssl(&format!(
            "x509 -req -sha256 -days {days} -set_serial 0 -signkey key -in request -out cert"
        ));
        files
    }

    fn generated() -> Files {
        let files = Files { folder: tempfile::tempdir().unwrap() };
        let generated = generate(std::time::Duration::from_secs(3600)).unwrap();
        std::fs::write(files.path("cert"), generated.certificate).unwrap();
        std::fs::write(files.path("key"), generated.key).unwrap();
        files
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        let output = command.args(arguments.split(' ')).current_dir(self.folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn identity(&self) -> Identity {
        let read = |name| std::fs::read_to_string(self.path(name)).unwrap();
        Identity::read(&read("cert"), &read("key")).unwrap()
    }
}

/// A control plane that sends each client what it thinks of it.
async fn control_plane(identity: &Identity, trust: &Trust) -> SocketAddr {
    let tls = ServerTls::new(identity, trust).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(tls.config.clone());
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(tcp).await else { continue };
            let chain = stream.get_ref().1.peer_certificates().map(<[_]>::to_vec);
            let verdict = match tls.admit(chain.as_deref()).await {
                Ok(_) => "admitted".to_owned(),
                Err(error) => error.to_string(),
            };
            let _ = stream.write_all(verdict.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    address
}

/// What `openssl s_client` gets, with this certificate or without any.
async fn s_client(address: SocketAddr, presents: Option<&Files>, options: &str) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-ign_eof", "-servername", SHARED_NAME, "-connect", &address.to_string()]);
    command.args(options.split(' '));
    if let Some(files) = presents {
        command.arg("-cert").arg(files.path("cert")).arg("-key").arg(files.path("key"));
    }
    command.stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[tokio::test]
async fn the_shared_certificate_admits() {
    for files in [Files::of_kong(30), Files::generated()] {
        let address = control_plane(&files.identity(), &Trust::Shared).await;
        let trusted = files.path("cert").display().to_string();
        let verify = format!("-verify_return_error -verify_hostname {SHARED_NAME} -CAfile {trusted}");
        for version in ["-tls1_2", "-tls1_3"] {
            let got = s_client(address, Some(&files), &format!("{version} {verify}")).await;
            assert!(got.contains("admitted") && got.contains("Verify return code: 0"), "{got}");
        }
    }
}

#[tokio::test]
async fn another_certificate_is_refused_with_the_reason() {
    let (shared, other) = (Files::of_kong(30), Files::of_kong(30));
    let address = control_plane(&shared.identity(), &Trust::Shared).await;
    for version in ["-tls1_2", "-tls1_3"] {
        let got = s_client(address, Some(&other), version).await;
        assert!(got.contains("is not that of the control plane"), "{got}");
        let got = s_client(address, None, version).await;
        assert!(got.contains("it presented no certificate"), "{got}");
    }
}

/// An authority, and certificates that it issued.
fn issued(by: &rcgen::CertifiedIssuer<'_, rcgen::KeyPair>, expired: bool) -> Identity {
    let mut params = rcgen::CertificateParams::new(vec!["cp.test".to_owned()]).unwrap();
    if expired {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    }
    let key = rcgen::KeyPair::generate().unwrap();
    Identity::read(&params.signed_by(&key, by).unwrap().pem(), &key.serialize_pem()).unwrap()
}

fn authority(name: &str) -> rcgen::CertifiedIssuer<'static, rcgen::KeyPair> {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap()
}

fn pki(by: &rcgen::CertifiedIssuer<'_, rcgen::KeyPair>, server_name: &str, ocsp: Ocsp) -> Trust {
    let authorities = ca_certificates(&by.pem()).unwrap();
    Trust::Pki { authorities, server_name: Some(server_name.to_owned()), ocsp }
}

/// What a data plane gets of a control plane.
async fn data_plane(to: SocketAddr, identity: &Identity, trust: &Trust) -> Result<String, String> {
    use tokio::io::AsyncReadExt;
    let tls = ClientTls::new(identity, trust).unwrap();
    let tcp = TcpStream::connect(to).await.unwrap();
    let connected = connect::tls(tcp, tls.config.clone(), tls.name("127.0.0.1"), None).await;
    let mut stream = connected.map_err(|error| error.to_string())?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.map_err(|error| error.to_string())?;
    Ok(text)
}

#[tokio::test]
async fn authorities_vouch_for_both_sides() {
    let (ours, theirs) = (authority("ours"), authority("theirs"));
    let (cp, dp) = (issued(&ours, false), issued(&ours, false));
    let trust = pki(&ours, "cp.test", Ocsp::Off);
    let address = control_plane(&cp, &trust).await;
    assert_eq!(data_plane(address, &dp, &trust).await.as_deref(), Ok("admitted"));
    for (identity, reason) in [(issued(&theirs, false), "UnknownIssuer"), (issued(&ours, true), "expired")] {
        let refused = data_plane(address, &identity, &trust).await.unwrap();
        assert!(refused.contains("its certificate is refused") && refused.contains(reason), "{refused}");
    }
    let wrong_name = data_plane(address, &dp, &pki(&ours, "other.test", Ocsp::Off)).await.unwrap_err();
    assert!(wrong_name.contains("not valid for name"), "{wrong_name}");
    let wrong_authority = data_plane(address, &dp, &pki(&theirs, "cp.test", Ocsp::Off)).await.unwrap_err();
    assert!(wrong_authority.contains("UnknownIssuer"), "{wrong_authority}");
}

/// Certificates without a responder.
#[tokio::test]
async fn without_a_responder_only_optional_ocsp_admits() {
    let ours = authority("ours");
    let (cp, dp) = (issued(&ours, false), issued(&ours, false));
    for (ocsp, expected) in
        [(Ocsp::Optional, "admitted"), (Ocsp::On, "whether its certificate was revoked is unknown")]
    {
        let trust = pki(&ours, "cp.test", ocsp);
        let address = control_plane(&cp, &trust).await;
        let got = data_plane(address, &dp, &trust).await.unwrap();
        assert!(got.starts_with(expected), "{got}");
    }
}

/// `openssl s_server`, which ends with this value.
struct Server(std::process::Child, SocketAddr);

impl Server {
    fn start(cert: &Path, key: &Path, version: &str) -> Server {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("openssl");
        command.args(["s_server", "-Verify", "4", "-accept", &format!("127.0.0.1:{port}"), version, "-www"]);
        command.arg("-cert").arg(cert).arg("-key").arg(key).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        Server(child, SocketAddr::from(([127, 0, 0, 1], port)))
    }

    async fn connect(&self, tls: &ClientTls) -> Result<(), String> {
        let tcp = loop {
            match TcpStream::connect(self.1).await {
                Ok(tcp) => break tcp,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
        };
        let connected = connect::tls(tcp, tls.config.clone(), tls.name("127.0.0.1"), None).await;
        connected.map(drop).map_err(|error| error.to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_data_plane_takes_the_shared_certificate_alone() {
    let (shared, other, expired) = (Files::of_kong(30), Files::of_kong(30), Files::of_kong(-1));
    for version in ["-tls1_2", "-tls1_3"] {
        let server = Server::start(&shared.path("cert"), &shared.path("key"), version);
        let tls = |files: &Files| ClientTls::new(&files.identity(), &Trust::Shared).unwrap();
        assert_eq!(server.connect(&tls(&shared)).await, Ok(()), "{version}");
        let refused = server.connect(&tls(&other)).await.unwrap_err();
        assert!(refused.contains("the control plane has another certificate"), "{refused}");
        let late = Server::start(&expired.path("cert"), &expired.path("key"), version);
        let refused = late.connect(&tls(&expired)).await.unwrap_err();
        assert!(refused.contains("expired"), "{refused}");
    }
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let (one, other) = (Files::of_kong(30), Files::of_kong(30));
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    let error = Identity::read(&read(one.path("cert")), &read(other.path("key"))).unwrap_err();
    assert!(error.to_string().starts_with("cluster_cert and cluster_cert_key: "), "{error}");
    assert!(one.identity().expires().is_some());
}

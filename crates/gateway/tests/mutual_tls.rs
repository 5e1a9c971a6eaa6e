//! Certificates of clients: who is asked, whose are good, and what the upstream is told.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Identity, Message, TlsPeer, Upstream, document, handshake, service};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, SignatureScheme, StreamOwned,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;

const ONE: &str = "00000000-0000-0000-0000-00000000000a";
const TWO: &str = "00000000-0000-0000-0000-00000000000b";

/// Two authorities, and who they vouch for.
struct Cast {
    one: Identity,
    two: Identity,
    ann: Identity,
    bob: Identity,
    server: Identity,
}

impl Cast {
    fn new() -> Cast {
        let (one, two) = (Identity::new("authority one"), Identity::new("authority two"));
        let (ann, bob) = (Identity::signed("ann.test", &one), Identity::signed("bob.test", &two));
        Cast { server: Identity::new("server"), one, two, ann, bob }
    }

    /// Entities beside services: the authorities, a certificate for these names, consumers.
    fn beside(&self, names: &[&str]) -> String {
        let names: Vec<_> = names.iter().map(|name| format!("{{name: \"{name}\"}}")).collect();
        let (one, two) = (self.one.cert_yaml(), self.two.cert_yaml());
        format!(
            "ca_certificates:\n- {{id: {ONE}, cert: {one}}}\n- {{id: {TWO}, cert: {two}}}\n\
             certificates:\n- {{cert: {}, key: {}, snis: [{}]}}\n\
             consumers:\n- {{username: ann.test}}\n- {{username: guest}}\n",
            self.server.cert_yaml(),
            self.server.key_yaml(),
            names.join(", ")
        )
    }
}

fn asks(authority: &str, more: &str) -> String {
    format!("plugins: [{{name: mtls-auth, config: {{ca_certificates: [{authority}]{more}}}}}]")
}

/// What curl gets for a URL's host and path, with more arguments: the status and the body.
fn curl(gateway: &Gateway, url: &str, client: Option<&Identity>, more: &[&str]) -> (u16, String) {
    let mut command = Command::new("curl");
    command.args([
        "--silent",
        "--insecure",
        "--http1.1",
        "--max-time",
        "20",
        "--write-out",
        "\n%{http_code}",
    ]);
    command.args(["--connect-to", &format!("::{}", gateway.proxy_ssl())]).args(more);
    if let Some(client) = client {
        command.arg("--cert").arg(client.cert()).arg("--key").arg(client.key());
    }
    let output = command.arg(format!("https://{url}")).output().expect("curl runs");
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

#[test]
fn a_route_takes_the_certificates_of_its_own_authorities_and_tells_the_upstream() {
    let (cast, upstream) = (Cast::new(), Upstream::echoing());
    let on = |host: &str, plugin: &str| format!("hosts: [{host}], {plugin}");
    let forwarding = asks(ONE, ", forward_certificate: true");
    let services = [
        service("/one", upstream.address, "", &on("a.test", &forwarding)),
        service("/two", upstream.address, "", &on("a.test", &asks(TWO, ", skip_consumer_lookup: true"))),
        service("/guests", upstream.address, "", &on("a.test", &asks(ONE, ", anonymous: guest"))),
        service("/open", upstream.address, "", ""),
    ];
    let gateway = Gateway::start(&document(&services, &cast.beside(&["a.test"])));
    let get = |path: &str, client, more: &[&str]| curl(&gateway, &format!("a.test{path}"), client, more);

    let (status, seen) = get("/one", Some(&cast.ann), &[]);
    assert_eq!(status, 200, "{seen}");
    let der = pem_content(&cast.ann);
    for line in [
        "X-Client-Cert-Dn: CN=ann.test".to_owned(),
        "X-Client-Cert-San: ann.test,127.0.0.1".to_owned(),
        format!("Client-Cert: :{der}:"),
        "X-Consumer-Username: ann.test".to_owned(),
        "X-Credential-Identifier: ann.test".to_owned(),
    ] {
        assert!(seen.lines().any(|found| found == line), "no {line} in {seen}");
    }
    let refused = "TLS certificate failed verification";
    let (status, body) = get("/one", Some(&cast.bob), &[]);
    assert!(status == 401 && body.contains(refused), "{body}");
    let (status, body) = get("/one", None, &[]);
    assert!(status == 401 && body.contains("No required TLS certificate was sent"), "{body}");

    let (status, seen) = get("/two", Some(&cast.bob), &[]);
    assert!(status == 200 && seen.contains("X-Client-Cert-Dn: CN=bob.test"), "{seen}");
    assert!(!seen.contains("X-Consumer") && !seen.contains("Client-Cert: :"), "{seen}");
    assert_eq!(get("/two", Some(&cast.ann), &[]).0, 401);

    for client in [None, Some(&cast.bob)] {
        let (status, seen) = get("/guests", client, &[]);
        assert!(status == 200 && seen.contains("X-Consumer-Username: guest"), "{seen}");
        assert!(!seen.contains("X-Client-Cert"), "{seen}");
    }
    let forged =
        ["-H", "X-Client-Cert-Dn: CN=root", "-H", "Client-Cert: :AA==:", "-H", "X_Client_Cert_San: root"];
    for path in ["/open", "/guests"] {
        let (status, seen) = get(path, None, &forged);
        assert!(status == 200 && !seen.to_lowercase().replace('_', "-").contains("client-cert"), "{seen}");
    }
}

/// The base64 text of a certificate.
fn pem_content(identity: &Identity) -> String {
    let text = std::fs::read_to_string(identity.cert()).unwrap();
    text.lines().filter(|line| !line.starts_with('-')).collect()
}

/// Where no consumer is looked up, the certificate itself says what acl asks about.
#[test]
fn names_in_certificates_are_groups() {
    let (cast, upstream) = (Cast::new(), Upstream::echoing());
    let on = |by: &str, group: &str| {
        let mtls =
            format!("{{ca_certificates: [{TWO}], skip_consumer_lookup: true, authenticated_group_by: {by}}}");
        let acl = format!("{{name: acl, config: {{allow: [{group}]}}}}");
        format!("hosts: [a.test], plugins: [{{name: mtls-auth, config: {mtls}}}, {acl}]")
    };
    let services = [
        service("/cn", upstream.address, "", &on("CN", "bob.test")),
        service("/dn", upstream.address, "", &on("DN", "'CN=bob.test'")),
        service("/others", upstream.address, "", &on("CN", "ann.test")),
        service("/none", upstream.address, "", &on("null", "bob.test")),
    ];
    let gateway = Gateway::start(&document(&services, &cast.beside(&["a.test"])));
    for (path, status, told) in [
        ("/cn", 200, "X-Authenticated-Groups: bob.test"),
        ("/dn", 200, "X-Authenticated-Groups: CN=bob.test"),
        ("/others", 403, "You cannot consume this service"),
        ("/none", 401, "Unauthorized"),
    ] {
        let forged = ["-H", "X-Authenticated-Groups: ann.test"];
        let (found, body) = curl(&gateway, &format!("a.test{path}"), Some(&cast.bob), &forged);
        assert!(
            found == status && body.contains(told) && !body.contains("ann.test"),
            "{path}: {found} {body}"
        );
    }
}

#[test]
fn only_clients_of_the_names_that_want_one_are_asked() {
    let (cast, upstream) = (Cast::new(), Upstream::echoing());
    let names = ["a.test", "b.test", "x.c.test"];
    let of = |wants: &str| {
        document(
            &[
                service("/a", upstream.address, "", &format!("hosts: [a.test], {}", asks(ONE, ""))),
                service("/c", upstream.address, "", &format!("snis: [\"x.c.test\"], {}", asks(ONE, ""))),
                service("/b", upstream.address, "", &format!("hosts: [b.test]{wants}")),
            ],
            &cast.beside(&names),
        )
    };
    let gateway = Gateway::start(&of(""));
    let asked = |name: &str| {
        let seen = handshake(gateway.proxy_ssl(), &["-servername", name, "-tls1_2"]);
        assert!(seen.contains("New,TLSv1.2"), "{seen}");
        seen.contains("ClientCertificateTypes:")
    };
    assert_eq!(names.map(asked), [true, false, true]);
    let (status, body) = curl(&gateway, "b.test/a", Some(&cast.ann), &["-H", "Host: a.test"]);
    assert!(status == 421 && body.contains("another name"), "{body}");
    let explained = |sni: &str| {
        let asked = format!(r#"{{"scheme": "https", "host": "a.test", "path": "/a"{sni}}}"#);
        let told = explain(&gateway, &asked).json()["answer"].clone();
        (told["status"].as_u64().unwrap(), told["message"].as_str().unwrap().to_owned())
    };
    assert_eq!(explained(""), (401, "No required TLS certificate was sent".to_owned()));
    assert_eq!(explained(r#", "sni": "b.test""#).0, 421);
    let mut open = TlsPeer::connect(gateway.proxy_ssl(), "b.test");
    assert_eq!(open.get("/none").0, "HTTP/1.1 404 Not Found");
    assert!(gateway.reload(&of(&format!(", {}", asks(TWO, "")))).status.success());
    assert_eq!(names.map(asked), [true, true, true]);
    assert_eq!(open.get("/none").0, "HTTP/1.1 404 Not Found");
    assert!(gateway.reload(&document(&[], "")).status.success());
    assert_eq!(names.map(asked), [false, false, false]);
}

fn explain(gateway: &Gateway, body: &str) -> Message {
    gateway.ask_admin("POST", "/explain", body)
}

/// A client that shows a certificate and remembers its sessions.
fn client(identity: &Identity) -> Arc<ClientConfig> {
    let (chain, key) =
        (CertificateDer::from_pem_file(identity.cert()), PrivateKeyDer::from_pem_file(identity.key()));
    let config = ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(AnyServer));
    Arc::new(config.with_client_auth_cert(vec![chain.unwrap()], key.unwrap()).unwrap())
}

/// Asks for paths on one connection; the statuses, and whether the session was resumed.
fn ask(
    gateway: &Gateway,
    config: &Arc<ClientConfig>,
    name: &'static str,
    paths: &[&str],
) -> (Vec<u16>, bool) {
    let session = ClientConnection::new(config.clone(), name.try_into().unwrap()).unwrap();
    let mut stream =
        BufReader::new(StreamOwned::new(session, TcpStream::connect(gateway.proxy_ssl()).unwrap()));
    let statuses = paths.iter().map(|path| {
        write!(stream.get_mut(), "HEAD {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        let head: Vec<_> =
            stream.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
        head[0].split(' ').nth(1).unwrap().parse().unwrap()
    });
    let statuses = statuses.collect();
    (statuses, stream.get_ref().conn.handshake_kind() == Some(HandshakeKind::Resumed))
}

#[test]
fn each_route_looks_for_itself_on_one_connection_and_on_resumed_sessions() {
    let (cast, upstream) = (Cast::new(), Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    let of = |two: &str| {
        let plugin =
            |authority| format!("hosts: [a.test], {}", asks(authority, ", skip_consumer_lookup: true"));
        let services = [
            service("/one", upstream.address, "", &plugin(ONE)),
            service("/two", upstream.address, "", &plugin(two)),
        ];
        document(&services, &cast.beside(&["a.test"]))
    };
    let gateway = Gateway::start(&of(TWO));
    let (ann, paths) = (client(&cast.ann), ["/one", "/two", "/one"]);
    assert_eq!(ask(&gateway, &ann, "a.test", &paths), (vec![200, 401, 200], false));
    assert_eq!(ask(&gateway, &ann, "a.test", &paths), (vec![200, 401, 200], true));
    assert!(gateway.reload(&of(ONE)).status.success());
    assert_eq!(ask(&gateway, &ann, "a.test", &paths), (vec![200, 200, 200], true));
}

#[test]
fn a_session_that_began_unasked_is_not_resumed_past_the_question() {
    let (cast, upstream) = (Cast::new(), Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    let of = |plugin: &str| {
        let services = [service("/one", upstream.address, "", &format!("hosts: [a.test]{plugin}"))];
        document(&services, &cast.beside(&["a.test"]))
    };
    let (gateway, ann) = (Gateway::start(&of("")), client(&cast.ann));
    assert_eq!(ask(&gateway, &ann, "a.test", &["/one"]), (vec![200], false));
    assert_eq!(ask(&gateway, &ann, "a.test", &["/one"]), (vec![200], true));
    assert!(gateway.reload(&of(&format!(", {}", asks(ONE, "")))).status.success());
    assert_eq!(ask(&gateway, &ann, "a.test", &["/one"]), (vec![200], false));
}

/// Trusts any server, because the gateway's own certificate is not what is tested.
#[derive(Debug)]
pub(crate) struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

#[test]
fn what_cannot_vouch_is_refused_when_it_is_configured() {
    let (cast, upstream) = (Cast::new(), Upstream::echoing());
    let unknown = "00000000-0000-0000-0000-0000000000ff";
    let services = [service("/a", upstream.address, "", &asks(unknown, ""))];
    let (_, said) = Gateway::builder(&document(&services, &cast.beside(&[]))).fail();
    assert!(said.contains(unknown), "{said}");
}

#[test]
fn why_a_certificate_is_refused_is_logged() {
    let (cast, upstream) = (Cast::new(), Upstream::echoing());
    let services = [service("/one", upstream.address, "", &format!("hosts: [a.test], {}", asks(ONE, "")))];
    let gateway = Gateway::start(&document(&services, &cast.beside(&["a.test"])));
    let old = Identity::version_1("ann.test", &cast.one);
    for (client, subject, reason) in [
        (&old, "CN=ann.test", "issue an X.509 version 3 certificate"),
        (&cast.bob, "CN=bob.test", "UnknownIssuer"),
    ] {
        let (status, body) = curl(&gateway, "a.test/one", Some(client), &[]);
        assert!(status == 401 && body.contains("TLS certificate failed verification"), "{body}");
        let log = gateway.log();
        let is_told = |line: &str| line.contains(subject) && line.contains(reason);
        assert!(log.lines().any(is_told), "no {reason} of {subject} in {log}");
    }
    assert_eq!(curl(&gateway, "a.test/one", Some(&cast.ann), &[]).0, 200);
}

//! OCSP stapling, with OpenSSL as the responder and as the client.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Identity, Upstream, eventually, handshake};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// What a responder answers with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Says {
    Good,
    Revoked,
    /// Good, signed by a responder to which the authority has given a certificate for that.
    Delegated,
    /// Good, signed with a certificate that the authority has given for something else.
    Misused,
    /// Good, signed by somebody else.
    Forged,
    /// A part of what is good.
    Part,
}

impl Says {
    /// Who signs the answers, unless the authority does.
    fn signer(self, authority: &Identity) -> Option<Identity> {
        let issued =
            |usage| Identity::signed_with("responder.test", authority, &format!("extendedKeyUsage={usage}"));
        match self {
            Says::Forged => Some(Identity::new("authority")),
            Says::Delegated => Some(issued("OCSPSigning")),
            Says::Misused => Some(issued("serverAuth")),
            Says::Good | Says::Revoked | Says::Part => None,
        }
    }
}

/// A certificate, its authority and its responder.
struct Stand {
    server: Identity,
    authority: Arc<Identity>,
    asked: Arc<AtomicUsize>,
    _responder: Upstream,
}

impl Stand {
    fn new(says: Says) -> Stand {
        let authority = Arc::new(Identity::new("authority"));
        let other = says.signer(&authority);
        let asked = Arc::new(AtomicUsize::new(0));
        let index = Arc::new(OnceLock::<String>::new());
        let (by, counted, known) = (authority.clone(), asked.clone(), index.clone());
        let responder = Upstream::start(move |mut peer, _| {
            while let Some(request) = peer.request() {
                assert_eq!(request.header("content-type"), Some("application/ocsp-request"));
                counted.fetch_add(1, Ordering::SeqCst);
                let signer = other.as_ref().unwrap_or(&by);
                let mut answer = answer(&request.body, &by, signer, known.wait());
                if says == Says::Part {
                    answer.truncate(answer.len() - 40);
                }
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
                peer.send([head.as_bytes(), &answer].concat());
            }
        });
        let place = format!("authorityInfoAccess=OCSP;URI:http://{}/ocsp", responder.address);
        let server = Identity::signed_with("a.test", &authority, &place);
        let status =
            if says == Says::Revoked { "R\t491231235959Z\t250101000000Z" } else { "V\t491231235959Z\t" };
        index.set(format!("{status}\t{}\tunknown\t/CN=a.test\n", serial(&server.cert()))).unwrap();
        Stand { server, authority, asked, _responder: responder }
    }

    fn configuration(&self, more: &str) -> String {
        let read = |path| std::fs::read_to_string(path).unwrap();
        let chain = read(self.server.cert()) + &read(self.authority.cert());
        format!(
            "_format_version: \"3.0\"\ncertificates:\n- {{id: 00000000-0000-0000-0000-00000000000a, cert: {chain:?}, key: {}, \
             snis: [{{name: a.test}}]}}\n{more}",
            self.server.key_yaml()
        )
    }
}

fn serial(cert: &Path) -> String {
    let output =
        Command::new("openssl").args(["x509", "-noout", "-serial", "-in"]).arg(cert).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().trim_start_matches("serial=").to_owned()
}

/// The answer of OpenSSL's responder to a request.
fn answer(request: &[u8], authority: &Identity, signer: &Identity, index: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("index"), index).unwrap();
    std::fs::write(file("request"), request).unwrap();
    let mut command = Command::new("openssl");
    command.args(["ocsp", "-nmin", "60", "-index"]).arg(file("index")).arg("-reqin").arg(file("request"));
    command
        .arg("-CA")
        .arg(authority.cert())
        .arg("-rsigner")
        .arg(signer.cert())
        .arg("-rkey")
        .arg(signer.key());
    let output = command.arg("-respout").arg(file("response")).output().unwrap();
    std::fs::read(file("response")).unwrap_or_else(|_| unreachable!("{output:?}"))
}

fn stapled(gateway: &Gateway) -> String {
    handshake(gateway.proxy_ssl(), &["-servername", "a.test", "-status"])
}

#[test]
fn a_proof_is_fetched_shown_and_kept_over_reloads() {
    let stand = Stand::new(Says::Good);
    let gateway = Gateway::builder(&stand.configuration("")).set("ssl_stapling", "on").start();
    eventually("the proof is shown", || stapled(&gateway).contains("CertStatus:good"));
    assert!(stapled(&gateway).contains("OCSPResponseStatus:successful"));
    assert!(gateway.reload(&stand.configuration("consumers: [{username: ann}]\n")).status.success());
    assert!(stapled(&gateway).contains("CertStatus:good"));
    assert_eq!(stand.asked.load(Ordering::SeqCst), 1);
}

#[test]
fn a_proof_is_shown_that_a_delegated_responder_signed() {
    let stand = Stand::new(Says::Delegated);
    let gateway = Gateway::builder(&stand.configuration("")).set("ssl_stapling", "on").start();
    eventually("the proof is shown", || stapled(&gateway).contains("CertStatus:good"));
}

#[test]
fn what_proves_nothing_is_not_shown() {
    for says in [Says::Revoked, Says::Misused, Says::Forged, Says::Part] {
        let stand = Stand::new(says);
        let gateway = Gateway::builder(&stand.configuration("")).set("ssl_stapling", "on").start();
        eventually("the answer is refused", || gateway.log().contains("does not say that it stands"));
        assert!(gateway.log().contains("CN=a.test"), "{}", gateway.log());
        assert_eq!(stand.asked.load(Ordering::SeqCst), 1, "{says:?}");
        assert!(stapled(&gateway).contains("OCSPresponse:noresponsesent"), "{says:?}");
    }
}

#[test]
fn nobody_is_asked_unless_it_is_on() {
    let stand = Stand::new(Says::Good);
    let gateway = Gateway::start(&stand.configuration(""));
    assert!(stapled(&gateway).contains("OCSPresponse:noresponsesent"));
    assert_eq!(stand.asked.load(Ordering::SeqCst), 0);
}

#[test]
fn a_certificate_without_its_issuer_is_told_of() {
    let stand = Stand::new(Says::Good);
    let issuer = format!("{:?}", std::fs::read_to_string(stand.authority.cert()).unwrap());
    let alone = stand.configuration("").replace(issuer.trim_matches('"'), "");
    let gateway = Gateway::builder(&alone).set("ssl_stapling", "on").start();
    eventually("it is told", || gateway.log().contains("append the issuer's to its chain"));
    assert!(gateway.log().contains("CN=a.test"), "{}", gateway.log());
    assert_eq!(stand.asked.load(Ordering::SeqCst), 0);
}

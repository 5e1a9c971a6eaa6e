//! Class 23: names in certificates that end early for some readers, requests for a host on the connection of another, and
//! sessions that begin at one name and go on at another.
use crate::harness::{Gateway, Identity, NameServer, TlsUpstream, Upstream, document, service};
use crate::mutual_tls::AnyServer;
use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, NamedGroup, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;

const ONE: &str = "00000000-0000-0000-0000-00000000000a";
const TWO: &str = "00000000-0000-0000-0000-00000000000b";

/// An authority.
struct Authority {
    certificate: Identity,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = named(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let certificate = Identity::from_pem(&certificate.pem(), &key.serialize_pem());
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    /// A certificate for these DNS names, whatever they hold.
    fn sign(&self, common_name: &str, names: &[&str]) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = named(common_name, names).signed_by(&key, &self.issuer).unwrap();
        Identity::from_pem(&certificate.pem(), &key.serialize_pem())
    }
}

fn named(common_name: &str, names: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.subject_alt_names =
        names.iter().map(|name| SanType::DnsName(Ia5String::try_from(*name).unwrap())).collect();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

fn authorities(authorities: &[(&str, &Authority)]) -> String {
    let entity =
        |(id, it): &(&str, &Authority)| format!("- {{id: {id}, cert: {}}}\n", it.certificate.cert_yaml());
    format!("ca_certificates:\n{}", authorities.iter().map(entity).collect::<String>())
}

#[test]
fn an_upstream_is_not_taken_for_another_whose_name_begins_alike() {
    let (authority, names) = (Authority::new("authority"), NameServer::of(".test"));
    let verify = format!("tls_verify: true, retries: 0, ca_certificates: [{ONE}]");
    let ask = |identity: &Identity| {
        let upstream = TlsUpstream::start(identity, &[]);
        let host = format!("inner.test:{}", upstream.address.port());
        let services = [service("/", host, &verify, "").replace("http://", "https://")];
        let gateway = Gateway::builder(&document(&services, &authorities(&[(ONE, &authority)])))
            .set("dns_resolver", &names.address.to_string())
            .set("dns_hostsfile", "/dev/null")
            .start();
        gateway.get("/").status
    };
    for (name, certified, status) in [
        ("inner.test", &["inner.test"][..], 200),
        ("its name in upper case", &["INNER.TEST"], 200),
        ("NUL behind the name", &["inner.test\0.evil.test"], 502),
        ("NUL before the name", &["evil.test\0inner.test"], 502),
        ("NUL at the end", &["inner.test\0"], 502),
        ("a line break", &["inner.test\n.evil.test"], 502),
        ("the common name alone", &["evil.test"], 502),
        ("no name", &[], 502),
        ("any name", &["*"], 502),
        ("a part of a label", &["inne*.test"], 502),
        ("a name below it", &["a.inner.test"], 502),
        ("a domain with a dot", &[".test"], 502),
    ] {
        assert_eq!(ask(&authority.sign("inner.test", certified)), status, "{name}");
    }
}

fn asks(authority: &str, more: &str) -> String {
    format!("plugins: [{{name: mtls-auth, config: {{ca_certificates: [{authority}]{more}}}}}]")
}

/// A gateway whose routes /one and /two ask for certificates of one authority each, at a.test and b.test; /open.test does
/// not. ann.test and bob.test are consumers.
fn gateway(upstream: &Upstream, one: &Authority, two: &Authority) -> Gateway {
    let on = |host: &str, plugin: &str| format!("hosts: [{host}], {plugin}");
    let services = [
        service("/one", upstream.address, "", &on("a.test", &asks(ONE, ""))),
        service("/names", upstream.address, "", &on("a.test", &asks(ONE, ", skip_consumer_lookup: true"))),
        service("/two", upstream.address, "", &on("b.test", &asks(TWO, ""))),
        service("/open", upstream.address, "", "hosts: [open.test]"),
    ];
    let server = Identity::new("server");
    let more = format!(
        "{}certificates:\n- {{cert: {}, key: {}, snis: [{{name: a.test}}, {{name: b.test}}, {{name: open.test}}]}}\n\
         consumers:\n- {{username: ann.test}}\n- {{username: bob.test}}\n",
        authorities(&[(ONE, one), (TWO, two)]),
        server.cert_yaml(),
        server.key_yaml()
    );
    Gateway::builder(&document(&services, &more))
        .set("proxy_listen", "127.0.0.1:0, 127.0.0.1:0 ssl http2")
        .start()
}

/// What curl gets for a URL: the status and the body.
fn curl(gateway: &Gateway, client: &Identity, arguments: &[&str]) -> (u16, String) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--insecure", "--max-time", "60", "--write-out", "\n%{http_code}"]);
    command.args(["--connect-to", &format!("::{}", gateway.proxy_ssl())]).args(arguments);
    let output =
        command.arg("--cert").arg(client.cert()).arg("--key").arg(client.key()).output().expect("curl runs");
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

#[test]
fn a_client_is_not_taken_for_another_whose_name_begins_alike() {
    let (one, two, upstream) = (Authority::new("one"), Authority::new("two"), Upstream::echoing());
    let gateway = gateway(&upstream, &one, &two);
    let ask = |client: &Identity, path: &str| curl(&gateway, client, &[&format!("https://a.test{path}")]);
    let ann = one.sign("ann.test", &["ann.test"]);
    assert_eq!(ask(&ann, "/one").0, 200);
    for (common_name, names) in [
        ("ann.test\0.evil.test", &["ann.test\0.evil.test"][..]),
        ("evil.test", &["ann.test\0"]),
        ("evil.test", &["ann.test\r\nX-Consumer-Username: root"]),
        ("evil.test", &["ann.test,bob.test"]),
        ("ANN.test evil", &[" ann.test"]),
    ] {
        let mallory = one.sign(common_name, names);
        let (status, body) = ask(&mallory, "/one");
        assert_eq!(status, 401, "{common_name:?} {names:?}: {body}");
        let (status, seen) = ask(&mallory, "/names");
        assert_eq!(status, 200, "{seen}");
        let said = |name: &str| seen.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let names: Vec<_> = said("X-Client-Cert-San: ").split(',').map(str::trim).collect();
        assert!(!names.contains(&"ann.test"), "{seen}");
        assert!(!seen.contains("\nX-Consumer-Username"), "{seen}");
    }
}

#[test]
fn a_host_that_wants_certificates_is_not_asked_on_the_connection_of_another() {
    let (one, two, upstream) = (Authority::new("one"), Authority::new("two"), Upstream::echoing());
    let gateway = gateway(&upstream, &one, &two);
    let ann = one.sign("ann.test", &["ann.test"]);
    for version in ["--http1.1", "--http2"] {
        for (url, host, status) in [
            ("https://a.test/one", "a.test", 200),
            ("https://open.test/one", "a.test", 421),
            ("https://open.test/one", "A.TEST", 421),
            ("https://open.test/one", "a.test:443", 421),
            ("https://a.test/two", "b.test", 401),
        ] {
            let (found, body) = curl(&gateway, &ann, &[version, "-H", &format!("Host: {host}"), url]);
            assert_eq!(found, status, "{version} {url} {host}: {body}");
        }
    }
}

#[test]
fn a_session_of_one_name_opens_nothing_at_another() {
    let (one, two, upstream) = (Authority::new("one"), Authority::new("two"), Upstream::echoing());
    let gateway = gateway(&upstream, &one, &two);
    let bob = two.sign("bob.test", &["bob.test"]);
    let (known, stranger) = (client(Some(&bob)), client(None));
    assert_eq!(ask(&gateway, &known, "b.test", "b.test", "/two"), 200);
    assert_eq!(ask(&gateway, &stranger, "open.test", "open.test", "/open"), 200);
    // Each has a ticket now, which it uses at any name.
    for _ in 0..2 {
        assert_eq!(ask(&gateway, &known, "a.test", "a.test", "/one"), 401);
        assert_eq!(ask(&gateway, &known, "a.test", "b.test", "/two"), 200);
        assert_eq!(ask(&gateway, &stranger, "b.test", "b.test", "/two"), 401);
        assert_eq!(ask(&gateway, &stranger, "open.test", "b.test", "/two"), 421);
    }
}

/// A client that uses its sessions at any name.
fn client(identity: Option<&Identity>) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(AnyServer));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain = vec![CertificateDer::from_pem_file(identity.cert()).unwrap()];
            builder
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(identity.key()).unwrap())
                .unwrap()
        }
    };
    config.resumption = Resumption::store(Arc::new(OneName(ClientSessionMemoryCache::new(32))));
    Arc::new(config)
}

/// The status of a GET over HTTP/1.1, on a connection that begins with a name.
fn ask(gateway: &Gateway, config: &Arc<ClientConfig>, name: &'static str, host: &str, path: &str) -> u16 {
    let session = ClientConnection::new(config.clone(), name.try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(session, TcpStream::connect(gateway.proxy_ssl()).unwrap());
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("no answer: {answer}"))
}

/// Keeps all sessions under one name.
#[derive(Debug)]
struct OneName(ClientSessionMemoryCache);

impl OneName {
    fn name() -> ServerName<'static> {
        "any.test".try_into().unwrap()
    }
}

impl ClientSessionStore for OneName {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(OneName::name(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(&OneName::name())
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(OneName::name(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&OneName::name())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&OneName::name());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(OneName::name(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&OneName::name())
    }
}

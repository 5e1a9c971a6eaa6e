//! ldap-auth with OpenLDAP, and with directories that fail.
use crate::harness::{Gateway, Identity, LdapServer, Message, Upstream, closed_port, eventually};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::{Read, Write};

/// `Doe, Jane +1` has characters with a meaning in names, and the last one's name begins and ends with some.
const ENTRIES: &str = "\
dn: dc=example,dc=test
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: ou=people,dc=example,dc=test
objectClass: organizationalUnit
ou: people

dn: uid=alice,ou=people,dc=example,dc=test
objectClass: inetOrgPerson
uid: alice
cn: Alice
sn: A
userPassword: correct horse: battery

dn: uid=Doe\\, Jane \\+1,ou=people,dc=example,dc=test
objectClass: inetOrgPerson
uid: Doe, Jane +1
cn: Jane
sn: D
userPassword: jane-secret

dn: uid=\\#\u{e9}t\u{e9}\\;x,ou=people,dc=example,dc=test
objectClass: inetOrgPerson
uid: #\u{e9}t\u{e9};x
cn: E
sn: E
userPassword: p\u{e4}ss
";

fn server(more: &str) -> (Identity, LdapServer) {
    let identity = Identity::new("127.0.0.1");
    let server = LdapServer::start(&identity, ENTRIES, more);
    (identity, server)
}

fn gateway_with(config: &str, settings: &[(&str, &str)]) -> (Gateway, Upstream) {
    let upstream = Upstream::echoing();
    let document = format!(
        "_format_version: \"3.0\"\nservices:\n- url: http://{}\n  routes: [{{paths: [/]}}]\nplugins:\n- name: ldap-auth\n  \
         config: {{ldap_host: 127.0.0.1, base_dn: 'ou=people,dc=example,dc=test', attribute: uid, {config}}}\n",
        upstream.address
    );
    let builder = Gateway::builder(&document).set("workers", "2");
    (settings.iter().fold(builder, |builder, (name, value)| builder.set(name, value)).start(), upstream)
}

fn gateway(config: &str) -> (Gateway, Upstream) {
    gateway_with(config, &[])
}

fn log_in(gateway: &Gateway, user: &str, password: &str) -> Message {
    let credentials = STANDARD.encode(format!("{user}:{password}"));
    gateway.get_with("/", &format!("Authorization: ldap {credentials}\r\n"))
}

fn status(gateway: &Gateway, user: &str, password: &str) -> u16 {
    log_in(gateway, user, password).status
}

#[test]
fn users_of_the_directory_log_in_and_nobody_else() {
    let (_identity, directory) = server("");
    let (gateway, _upstream) = gateway(&format!("ldap_port: {}", directory.port));
    let right = [
        ("alice", "correct horse: battery"),
        ("Doe, Jane +1", "jane-secret"),
        ("#\u{e9}t\u{e9};x", "p\u{e4}ss"),
    ];
    for (user, password) in right {
        for _ in 0..2 {
            let response = log_in(&gateway, user, password);
            assert_eq!(response.status, 200, "{user}");
            let identifier = format!("X-Credential-Identifier: {user}");
            assert!(response.text().contains(&identifier), "{identifier}: {}", response.text());
            assert!(!response.text().contains("X-Consumer"), "{}", response.text());
        }
    }
    let wrong = [
        ("alice", "wrong"),
        ("alice", ""),
        ("nobody", "correct horse: battery"),
        ("", "correct horse: battery"),
        // Where names are not escaped, this is Alice.
        ("alice,ou=people,dc=example,dc=test", "correct horse: battery"),
        ("x+uid=alice", "correct horse: battery"),
        ("alice ", "correct horse: battery "),
        ("\u{0}", "x"),
    ];
    for (user, password) in wrong {
        for _ in 0..2 {
            let response = log_in(&gateway, user, password);
            assert_eq!((response.status, response.header("www-authenticate")), (401, Some("LDAP")), "{user}");
        }
    }
    let log = gateway.log();
    assert!(!log.contains("battery") && !log.contains("jane-secret"), "{log}");
}

#[test]
fn two_headers_are_two_logins() {
    let (_identity, directory) = server("");
    let config =
        format!("ldap_port: {}, header_type: basic, hide_credentials: true, cache_ttl: 0", directory.port);
    let (gateway, _upstream) = gateway(&config);
    let (right, wrong) = (STANDARD.encode("alice:correct horse: battery"), STANDARD.encode("alice:wrong"));
    let ask = |proxy: &str, own: &str| {
        gateway
            .get_with("/", &format!("Proxy-Authorization: Basic {proxy}\r\nAuthorization: Basic {own}\r\n"))
    };
    for (proxy, own, status) in [(&right, &wrong, 200), (&wrong, &right, 200), (&wrong, &wrong, 401)] {
        let response = ask(proxy, own);
        assert_eq!(response.status, status);
        assert!(!response.text().contains("uthorization: Basic"), "{}", response.text());
    }
}

#[test]
fn a_login_is_remembered_while_the_directory_is_away_and_connections_are_made_anew() {
    let (_identity, mut directory) = server("");
    let (gateway, _upstream) = gateway(&format!("ldap_port: {}, cache_ttl: 3600", directory.port));
    assert_eq!(status(&gateway, "alice", "correct horse: battery"), 200);
    assert_eq!(status(&gateway, "alice", "wrong"), 401);
    directory.kill();
    assert_eq!(status(&gateway, "alice", "correct horse: battery"), 200);
    assert_eq!(status(&gateway, "alice", "wrong"), 401);
    let failed = log_in(&gateway, "Doe, Jane +1", "jane-secret");
    assert_eq!(failed.status, 500);
    assert_eq!(failed.json()["message"], "An unexpected error occurred");
    let is_logged =
        |line: &str| line.contains("no client can log in at the directory") && line.contains("request_id=");
    eventually("the log says why", || gateway.log().lines().any(is_logged));
    directory.restart();
    assert_eq!(status(&gateway, "Doe, Jane +1", "jane-secret"), 200);
    assert_eq!(status(&gateway, "alice", "other"), 401);
    assert!(!gateway.log().contains("jane-secret"), "{}", gateway.log());
}

#[test]
fn passwords_go_over_tls_to_a_directory_that_is_verified() {
    // The directory accepts no password in clear.
    let (identity, directory) = server("security simple_bind=64");
    let trusted = [("lua_ssl_trusted_certificate", &*identity.cert().display().to_string())];
    let (tls, clear) =
        (format!("ldap_port: {}", directory.tls_port), format!("ldap_port: {}", directory.port));
    for config in [format!("{tls}, ldaps: true"), format!("{clear}, start_tls: true")] {
        for verify in ["false", "true"] {
            let (gateway, _upstream) =
                gateway_with(&format!("{config}, verify_ldap_host: {verify}"), &trusted);
            assert_eq!(status(&gateway, "alice", "correct horse: battery"), 200, "{config} {verify}");
            assert_eq!(status(&gateway, "alice", "wrong"), 401, "{config} {verify}");
        }
        // Of another authority.
        let other = Identity::new("127.0.0.1");
        let others = [("lua_ssl_trusted_certificate", &*other.cert().display().to_string())];
        let (gateway, _upstream) = gateway_with(&format!("{config}, verify_ldap_host: true"), &others);
        assert_eq!(status(&gateway, "alice", "correct horse: battery"), 500, "{config}");
        eventually("the log says how to fix it", || {
            gateway.log().contains("add its authority to lua_ssl_trusted_certificate")
        });
    }
    let (gateway, _upstream) = gateway(&clear);
    assert_eq!(status(&gateway, "alice", "correct horse: battery"), 401);
    eventually("the log says how to fix it", || {
        gateway.log().contains("result 13; set config.start_tls or config.ldaps")
    });
}

#[test]
fn a_directory_that_fails_is_500_and_the_log_says_why_without_the_password() {
    let refusal = b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x02\x04\x00\x04\x00".to_vec();
    let cases: [(&str, Vec<u8>, &str); 5] = [
        ("", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "the response is no message of LDAP"),
        ("", b"\x30\x84\x7f\xff\xff\xff".to_vec(), "the response is too long"),
        (
            "",
            b"\x30\x0c\x02\x01\x07\x61\x07\x0a\x01\x00\x04\x00\x04\x00".to_vec(),
            "a response to another request",
        ),
        ("", b"\x30\x0c\x02\x01".to_vec(), "it closed the connection"),
        ("start_tls: true", refusal, "set config.ldaps instead of config.start_tls"),
    ];
    for (config, answer, why) in cases {
        let directory = Upstream::start(move |mut peer, _| {
            let _ = peer.reader().read(&mut [0; 1024]);
            let _ = peer.try_send(&answer);
        });
        let (gateway, _upstream) = gateway(&format!("ldap_port: {}, {config}", directory.address.port()));
        assert_eq!(status(&gateway, "alice", "hunter2"), 500, "{why}");
        eventually(why, || gateway.log().contains(why));
        assert!(!gateway.log().contains("hunter2"), "{}", gateway.log());
    }
    let (gateway, _upstream) = gateway(&format!("ldap_port: {}", closed_port().port()));
    assert_eq!(status(&gateway, "alice", "hunter2"), 500);
}

#[test]
fn a_directory_that_says_nothing_is_500_after_the_timeout() {
    let directory = Upstream::start(|mut peer, _| drop(peer.reader().read_to_end(&mut Vec::new())));
    let (gateway, _upstream) = gateway(&format!("ldap_port: {}, timeout: 200", directory.address.port()));
    assert_eq!(status(&gateway, "alice", "hunter2"), 500);
    eventually("the log says why", || gateway.log().contains("it took longer than config.timeout"));
    // One that sends a byte at a time has no longer.
    let slow = Upstream::start(|peer, _| {
        let mut socket = peer.into_socket();
        while socket.write_all(b"\x30").is_ok() {
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
    });
    let (gateway, _upstream) = self::gateway(&format!("ldap_port: {}, timeout: 200", slow.address.port()));
    assert_eq!(status(&gateway, "alice", "hunter2"), 500);
}

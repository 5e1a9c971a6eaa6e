//! ldap-auth without a directory: names, headers and messages. What directories make of them, `ldap.rs` of the gateway's
//! tests looks at.

use super::ber::{BIND_RESPONSE, EXTENDED_RESPONSE, Response, bind_request, message_len, start_tls_request};
use super::*;
use crate::PLUGINS;
use proptest::prelude::*;
use serde_json::{Value, json};
use weir_plugin::testing::{Gateway, entity, id};

fn instance(config: &Value) -> Arc<Instance> {
    let mut members = json!({ "ldap_host": "a.test", "base_dn": "dc=a,dc=test", "attribute": "uid" });
    members.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    let gateway = Gateway::new(PLUGINS);
    let plugin = entity(json!({ "name": "ldap-auth", "id": id(1) }));
    let config = Config::from_value(&members).unwrap();
    gateway.build_with(&plugin, |build| LdapAuth::new(config, build).unwrap()).0
}

fn header(scheme: &str, credentials: &[u8]) -> Vec<u8> {
    format!("{scheme} {}", BASE64.encode(credentials)).into_bytes()
}

#[test]
fn user_names_are_escaped_as_rfc_4514_says() {
    for (value, expected) in [
        ("alice", "alice"),
        ("x,ou=admins", "x\\,ou\\=admins"),
        (" a b ", "\\ a b\\ "),
        (" ", "\\ "),
        ("#a#", "\\#a#"),
        ("\"+;<>\\", "\\\"\\+\\;\\<\\>\\\\"),
        ("a\0\r\n\x7f", "a\\00\\0d\\0a\\7f"),
        ("Čau ", "Čau\\ "),
        ("", ""),
    ] {
        assert_eq!(escaped(value), expected, "{value:?}");
    }
    assert_eq!(instance(&json!({})).distinguished_name("a,b"), "uid=a\\,b,dc=a,dc=test");
}

#[test]
fn a_header_carries_a_user_and_a_password_that_is_not_empty() {
    let instance = instance(&json!({ "header_type": "Ldap" }));
    let login = |header: &[u8]| instance.login(header).map(|login| (login.user, login.password));
    let alice = Some(("alice".to_owned(), b"a:b".to_vec()));
    for scheme in ["ldap", "LDAP", " lDaP  "] {
        assert_eq!(login(&header(scheme, b"alice:a:b")), alice, "{scheme}");
    }
    let unpadded = String::from_utf8(header("ldap", b"alice:a:b")).unwrap();
    assert_eq!(login(unpadded.trim_end_matches('=').as_bytes()), alice);
    for wrong in ["alice:", ":secret", "alice", "", ":"] {
        assert_eq!(login(&header("ldap", wrong.as_bytes())), None, "{wrong}");
    }
    assert_eq!(login(&header("ldap", b"al\xffce:secret")), None);
    assert_eq!(login(&header("basic", b"alice:a:b")), None);
    for wrong in ["ldap", "ldap ", "ldap !!", "ldapYTpi", ""] {
        assert_eq!(login(wrong.as_bytes()), None, "{wrong}");
    }
}

#[test]
fn the_challenge_is_kongs() {
    let challenge = |config| instance(&config).challenge.clone();
    assert_eq!(challenge(json!({})), "LDAP");
    assert_eq!(challenge(json!({ "realm": "r" })), "LDAP realm=\"r\"");
    assert_eq!(challenge(json!({ "header_type": "Basic", "realm": "r" })), "Basic realm=\"r\"");
}

#[test]
fn requests_are_those_of_rfc_4511() {
    let bind = bind_request(5, b"cn=a", b"pw");
    assert_eq!(bind, b"\x30\x12\x02\x01\x05\x60\x0d\x02\x01\x03\x04\x04cn=a\x80\x02pw");
    let tls = start_tls_request(1);
    assert_eq!(tls, b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037");
    let long = bind_request(1, &[b'a'; 300], b"pw");
    assert_eq!(&long[..12], b"\x30\x82\x01\x3e\x02\x01\x01\x60\x82\x01\x37\x02");
}

const REFUSED: &[u8] = b"\x30\x0c\x02\x01\x07\x61\x07\x0a\x01\x31\x04\x00\x04\x00";

#[test]
fn responses_are_read_and_what_is_none_is_not() {
    let read = Response { id: 7, operation: BIND_RESPONSE, result: 49 };
    assert_eq!(Response::read(REFUSED), Ok(read));
    let notice = b"\x30\x14\x02\x01\x00\x78\x0f\x0a\x01\x34\x04\x00\x04\x00\x8a\x061.3.6.";
    assert_eq!(Response::read(notice).map(|r| (r.id, r.operation, r.result)), Ok((0, EXTENDED_RESPONSE, 52)));
    for cut in 0..REFUSED.len() {
        assert!(Response::read(&REFUSED[..cut]).is_err(), "{cut}");
    }
    for at in 0..REFUSED.len() {
        let mut changed = REFUSED.to_vec();
        changed[at] ^= 0x80;
        assert_ne!(Response::read(&changed), Ok(read), "{at}");
    }
}

#[test]
fn lengths_are_bounded() {
    assert_eq!(message_len(b""), Ok(None));
    assert_eq!(message_len(b"\x30"), Ok(None));
    assert_eq!(message_len(b"\x30\x0c"), Ok(Some(14)));
    assert_eq!(message_len(b"\x30\x82\x01"), Ok(None));
    assert_eq!(message_len(b"\x30\x82\x01\x00"), Ok(Some(260)));
    assert!(message_len(b"\x30\x83\x01\x00\x00").is_err());
    assert!(message_len(b"\x30\x84\xff\xff\xff\xff").is_err());
    // Without an end that is stated.
    assert!(message_len(b"\x30\x80").is_err());
    assert!(message_len(b"\x30\x85").is_err());
    assert!(message_len(b"HTTP").is_err());
}

#[test]
fn verdicts_are_remembered_for_a_while_and_within_bounds() {
    let verdicts = Verdicts::new(Duration::from_secs(60));
    let (right, wrong) = (verdicts.key(b"a", b"b"), verdicts.key(b"ab", b""));
    verdicts.remember(right, true);
    verdicts.remember(wrong, false);
    assert_eq!((verdicts.get(right), verdicts.get(wrong)), (Some(true), Some(false)));
    assert_eq!(verdicts.get(verdicts.key(b"a", b"c")), None);
    for number in 0..100_000u32 {
        verdicts.remember(verdicts.key(&number.to_le_bytes(), b"x"), true);
    }
    assert_eq!(verdicts.get(right), None);
    let none = Verdicts::new(Duration::ZERO);
    none.remember(right, true);
    assert_eq!(none.get(right), None);
}

proptest! {
    #[test]
    fn no_bytes_break_the_parser(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = Response::read(&bytes);
        let _ = message_len(&bytes);
    }

    #[test]
    fn an_escaped_name_has_no_character_with_a_meaning(value in "\\PC{0,20}") {
        let escaped = escaped(&value);
        let mut rest = escaped.chars();
        while let Some(character) = rest.next() {
            match character {
                '\\' => drop(rest.next()),
                character => prop_assert!(!"\"+,;<>=".contains(character), "{escaped}"),
            }
        }
        prop_assert!(!escaped.starts_with(['#', ' ']));
    }
}

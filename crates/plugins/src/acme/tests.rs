use super::account::AccountKey;
use super::config::Config;
use super::domains::{Domains, is_host};
use super::jws::{Binding, Signer, signed};
use super::order::is_token;
use crate::PLUGINS;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD as BASE64, Engine};
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, PublicKeyData, RsaKeySize,
};
use serde_json::{Value, json};
use weir_plugin::testing::Gateway;
use weir_plugin::{Record, Rows};
use x509_parser::der_parser::parse_der;

fn config(more: &Value) -> Config {
    let mut config = json!({ "account_email": "ops@example.com" });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Config::from_resolved(&config).unwrap()
}

#[test]
fn names_are_allowed_by_a_list() {
    let domains = Domains::new(&config(&json!({ "domains": ["A.test", "*.b.test", "192.0.2.1"] })));
    for host in ["a.test", "x.b.test", "x.y.b.test", "192.0.2.1"] {
        assert!(domains.allow(host), "{host}");
    }
    for host in ["b.test", ".b.test", "xb.test", "x.a.test", "a.test.c", "192.0.2.2", ""] {
        assert!(!domains.allow(host), "{host}");
    }
    let any = Domains::new(&config(&json!({ "allow_any_domain": true, "enable_ipv4_common_name": false })));
    assert!(any.allow("c.test") && !any.allow("192.0.2.1") && !any.allow(""));
    assert!(!Domains::new(&config(&json!({}))).allow("a.test"));
}

#[test]
fn only_host_names_are_allowed() {
    let domains = Domains::new(&config(&json!({ "domains": ["*.b.test"] })));
    let any = Domains::new(&config(&json!({ "allow_any_domain": true })));
    for host in ["x.b.test", "x-1.b.test", "xn--bcher-kva.b.test"] {
        assert!(domains.allow(host) && any.allow(host), "{host}");
    }
    let broken = "127.0.0.1/admin?.b.test evil@c.b.test -.b.test -a.b.test a-.b.test *.b.test a..b.test .b.test \
                  a.b.test. a_b.b.test b\u{fc}cher.b.test a:80.b.test ::1";
    for host in broken.split(' ').chain(["a b.b.test", " .b.test", ""]) {
        assert!(!is_host(host) && !domains.allow(host) && !any.allow(host), "{host}");
    }
}

#[test]
fn host_names_have_a_length() {
    let label = "a".repeat(63);
    assert!(is_host(&label) && !is_host(&format!("{label}a")));
    let longest = ["a"; 127].join(".");
    assert_eq!(longest.len(), 253);
    assert!(is_host(&longest) && !is_host(&format!("{longest}a")));
}

/// The parts of a signed request.
fn parts(request: &str) -> (Value, String, Vec<u8>) {
    let request: Value = serde_json::from_str(request).unwrap();
    let text = |name: &str| request[name].as_str().unwrap().to_owned();
    let (protected, payload) = (text("protected"), text("payload"));
    let header = serde_json::from_slice(&BASE64.decode(&protected).unwrap()).unwrap();
    (header, format!("{protected}.{payload}"), BASE64.decode(text("signature")).unwrap())
}

#[test]
fn requests_are_signed_by_rsa_and_ec_keys() {
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let key = AccountKey::from_pem(&rsa.serialize_pem()).unwrap();
    let request = signed(&key, &Signer::Key, ("https://ca.test/new", "n"), Some(&json!({ "a": 1 }))).unwrap();
    let (header, text, signature) = parts(&request);
    assert_eq!(
        (&header["alg"], &header["nonce"], &header["url"]),
        (&json!("RS256"), &json!("n"), &json!("https://ca.test/new"))
    );
    assert_eq!((&header["jwk"]["kty"], &header["jwk"]["e"]), (&json!("RSA"), &json!("AQAB")));
    assert_eq!(BASE64.decode(header["jwk"]["n"].as_str().unwrap()).unwrap().len(), 256);
    let verifier = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, rsa.der_bytes());
    verifier.verify(text.as_bytes(), &signature).unwrap();

    let ec = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let key = AccountKey::from_pem(&ec.serialize_pem()).unwrap();
    let request =
        signed(&key, &Signer::Account("https://ca.test/1"), ("https://ca.test/2", "n"), None).unwrap();
    let (header, text, signature) = parts(&request);
    assert_eq!((&header["alg"], &header["kid"]), (&json!("ES256"), &json!("https://ca.test/1")));
    assert!(text.ends_with('.') && header.get("jwk").is_none());
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, ec.der_bytes())
        .verify(text.as_bytes(), &signature)
        .unwrap();
}

#[test]
fn the_thumbprint_is_that_of_rfc_7638() {
    // The key of RFC 7515, appendix A.3, with its private half.
    let jwk = r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0","d":"jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI"}"#;
    let key = AccountKey::from_jwk(jwk).unwrap();
    assert_eq!(key.algorithm(), "ES256");
    assert_eq!(key.thumbprint(), "oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U");
}

#[test]
fn an_rsa_key_may_be_a_jwk() {
    let pair = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    // Version, algorithm, and the key of PKCS#1: version, n, e, d, p, q, dp, dq, qi.
    let der = pair.serialize_der();
    let (_, outer) = parse_der(&der).unwrap();
    let inner = outer[2].as_slice().unwrap();
    let (_, numbers) = parse_der(inner).unwrap();
    let names = ["", "n", "e", "d", "p", "q", "dp", "dq", "qi"];
    let numbers = numbers.as_sequence().unwrap().iter().map(|number| {
        // A JWK has no byte for the sign.
        let bytes = number.as_slice().unwrap();
        BASE64.encode(bytes.strip_prefix(&[0]).unwrap_or(bytes))
    });
    let mut jwk: Value =
        names.iter().zip(numbers).map(|(name, number)| ((*name).to_owned(), Value::from(number))).collect();
    jwk["kty"] = "RSA".into();
    let of_jwk = AccountKey::from_jwk(&jwk.to_string()).unwrap();
    assert_eq!(of_jwk.jwk(), AccountKey::from_pem(&pair.serialize_pem()).unwrap().jwk());
}

#[test]
fn keys_that_no_ca_takes_are_refused_without_being_shown() {
    let other = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap().serialize_pem();
    for pem in [&*other, "hunter2", ""] {
        let error = AccountKey::from_pem(pem).err().unwrap().to_string();
        assert!(
            error.starts_with("the account's key cannot be used") && !error.contains("hunter2"),
            "{error}"
        );
    }
    for jwk in [
        "hunter2",
        r#"{"kty":"EC","x":"hunter2","y":"hunter2","d":"hunter2"}"#,
        r#"{"kty":"oct","k":"hunter2"}"#,
    ] {
        let error = AccountKey::from_jwk(jwk).err().unwrap().to_string();
        assert!(error.contains("no private JWK") && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_binding_takes_the_key_as_cas_write_it() {
    let account = AccountKey::from_pem(&KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let signature = |key: &str| {
        let bound = Binding::new("kid-1", key).unwrap().bind(&account, "https://ca.test/new");
        let (header, text, signature) = parts(&bound.to_string());
        assert_eq!((&header["alg"], &header["kid"]), (&json!("HS256"), &json!("kid-1")));
        assert_eq!(BASE64.decode(text.split_once('.').unwrap().1).unwrap(), account.jwk().as_bytes());
        signature
    };
    assert_eq!(signature("-_8A"), signature("+/8A"));
    assert_eq!(signature("-_8"), signature("-_8=\n"));
    assert!(Binding::new("kid-1", "no base64!").is_none() && Binding::new("kid-1", "").is_none());
}

#[test]
fn tokens_are_base64url() {
    assert!(is_token("aZ09-_"));
    for text in ["", "a.b", "a/b", "a%2f", "a#http-01", &"a".repeat(257)] {
        assert!(!is_token(text), "{text}");
    }
}

#[test]
fn the_warning_names_what_a_database_would_keep() {
    for (storage, kept) in [
        ("shm", "certificates of acme are in"),
        ("kong", "account, challenges and certificates of acme are in"),
    ] {
        let gateway = Gateway::new(PLUGINS);
        let config = json!({ "account_email": "ops@example.com", "api_uri": "http://127.0.0.1:1/", "storage": storage });
        gateway.plugin("acme", config).unwrap();
        let warning = gateway.retained.get::<Rows>().warning().unwrap();
        assert!(warning.starts_with(kept), "{storage}: {warning}");
    }
}

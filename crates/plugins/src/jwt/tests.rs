//! jwt over exchanges in memory. The tests against the real binary verify tokens of other implementations.

use super::credential::JwtSecret;
use super::*;
use crate::PLUGINS;
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::hmac;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64};
use serde_json::json;
use weir_plugin::testing::{Gateway, Outcome, check_cases, custom, id, run};

#[test]
fn cases() {
    check_cases(PLUGINS, "jwt", include_str!("cases.json"));
}

const KEY: &str = "https://issuer.test";
const SECRET: &str = "not for everybody";

fn public_key(pair: &EcdsaKeyPair) -> String {
    let der: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
    format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der.as_ref()))
}

fn pair() -> EcdsaKeyPair {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()
}

/// Alice signs with a secret, of two lengths; Bob's key is public.
fn secrets(bobs: &str) -> Vec<JwtSecret> {
    let secret = |number, consumer, key: &str, algorithm: &str, public: Option<&str>| {
        custom(json!({ "id": id(number), "consumer": id(consumer), "key": key, "secret": SECRET,
                       "algorithm": algorithm, "rsa_public_key": public }))
    };
    vec![
        secret(0xd1, 1, KEY, "HS256", None),
        secret(0xd2, 1, "alice-384", "HS384", None),
        secret(0xd3, 2, "bob", "ES256", Some(bobs)),
    ]
}

fn gateway_of(secrets: Vec<JwtSecret>) -> Gateway {
    let mut gateway = Gateway::new(PLUGINS);
    gateway.document.custom.set(secrets);
    gateway
}

/// A gateway in which Bob's key is this one.
fn gateway_with(bobs: &str) -> Gateway {
    gateway_of(secrets(bobs))
}

/// The same, with a change of the secrets.
fn changed(bobs: &str, change: impl FnOnce(&mut Vec<JwtSecret>)) -> Gateway {
    let mut secrets = secrets(bobs);
    change(&mut secrets);
    gateway_of(secrets)
}

fn gateway() -> Gateway {
    gateway_with(&public_key(&pair()))
}

fn encoded(header: &str, claims: &str) -> String {
    format!("{}.{}", BASE64.encode(header), BASE64.encode(claims))
}

fn hashed(algorithm: hmac::Algorithm, header: &str, claims: &str, secret: &[u8]) -> String {
    let signed = encoded(header, claims);
    let tag = hmac::sign(&hmac::Key::new(algorithm, secret), signed.as_bytes());
    format!("{signed}.{}", BASE64.encode(tag.as_ref()))
}

const HS256: &str = r#"{"typ":"JWT","alg":"HS256"}"#;

/// Alice's.
fn token(claims: &Json) -> String {
    hashed(hmac::HMAC_SHA256, HS256, &claims.to_string(), SECRET.as_bytes())
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn bearing(gateway: &Gateway, config: Json, token: &str) -> Outcome {
    let plugin = gateway.plugin("jwt", config).unwrap();
    gateway.send(&[&*plugin], &format!("GET /\nAuthorization: Bearer {token}"))
}

/// The status, and the message or else the whole body.
fn said(outcome: &Outcome) -> String {
    let Some(answer) = &outcome.answer else { return "passed".to_owned() };
    let body: Json = serde_json::from_str(answer).unwrap();
    let message = body.get("message").and_then(Json::as_str);
    format!("{} {}", outcome.status(), message.unwrap_or(answer))
}

#[test]
fn a_token_is_as_good_as_its_signature() {
    let bobs = pair();
    let gateway = gateway_with(&public_key(&bobs));
    let iss = |key: &str| json!({ "iss": key }).to_string();
    let secret = SECRET.as_bytes();
    let by_bob = |header: &str, claims: &str| {
        let signed = encoded(header, claims);
        let signature = bobs.sign(&aws_lc_rs::rand::SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", BASE64.encode(signature.as_ref()))
    };
    let alices = hashed(hmac::HMAC_SHA256, HS256, &iss(KEY), secret);
    let (signed, signature) = alices.rsplit_once('.').unwrap();
    let es256 = r#"{"alg":"ES256"}"#;
    let cut = |token: &str, by: usize| token[..token.len() - by].to_owned();
    for (token, expected) in [
        (alices.clone(), "passed"),
        (format!("{alices}="), "passed"),
        (hashed(hmac::HMAC_SHA384, r#"{"alg":"HS384"}"#, &iss("alice-384"), secret), "passed"),
        (by_bob(es256, &iss("bob")), "passed"),
        (hashed(hmac::HMAC_SHA256, HS256, &iss(KEY), b"guessed"), "401 Invalid signature"),
        (hashed(hmac::HMAC_SHA384, HS256, &iss(KEY), secret), "401 Invalid signature"),
        (
            by_bob(es256, &iss("bob"))
                .replace(&encoded(es256, &iss("bob")), &encoded(es256, r#"{"iss":"bob" }"#)),
            "401 Invalid signature",
        ),
        (cut(&by_bob(es256, &iss("bob")), 6), "401 Invalid signature"),
        (format!("{signed}."), "401 Invalid signature"),
        (cut(&alices, 3), "401 Invalid signature"),
        (format!("{alices}AAAA"), "401 Invalid signature"),
        (format!("{signed}.{}", "A".repeat(signature.len())), "401 Invalid signature"),
        (format!("{alices}.x"), "401 Bad token; invalid signature"),
        (format!("{signed}.%"), "401 Bad token; invalid signature"),
        (signed.to_owned(), "401 Bad token; invalid JSON"),
        (format!("x{alices}"), "401 Bad token; invalid JSON"),
        // Algorithm confusion: whatever the token names, the credential's algorithm and key count.
        (
            hashed(hmac::HMAC_SHA256, HS256, &iss("bob"), public_key(&bobs).as_bytes()),
            "401 Invalid algorithm",
        ),
        (
            hashed(hmac::HMAC_SHA256, es256, &iss("bob"), public_key(&bobs).as_bytes()),
            "401 Invalid signature",
        ),
        (hashed(hmac::HMAC_SHA256, HS256, &iss("bob"), secret), "401 Invalid algorithm"),
        (hashed(hmac::HMAC_SHA384, r#"{"alg":"HS384"}"#, &iss(KEY), secret), "401 Invalid algorithm"),
        (by_bob(es256, &iss(KEY)), "401 Invalid algorithm"),
        (encoded(r#"{"alg":"none"}"#, &iss(KEY)) + ".", "401 Bad token; invalid alg"),
        (encoded(r#"{"alg":"hs256"}"#, &iss(KEY)) + ".", "401 Bad token; invalid alg"),
        (
            hashed(hmac::HMAC_SHA256, r#"{"alg":"HS256","crit":["b64"],"b64":false}"#, &iss(KEY), secret),
            "401 Bad token; invalid crit",
        ),
        (hashed(hmac::HMAC_SHA256, r#"{"alg":"none","alg":"HS256"}"#, &iss(KEY), secret), "passed"),
    ] {
        assert_eq!(said(&bearing(&gateway, json!({}), &token)), expected, "{token}");
    }
}

#[test]
fn a_token_that_cannot_be_read_is_refused() {
    let gateway = gateway();
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    for (header, claims, expected) in [
        (HS256, "{", "invalid JSON"),
        ("", "{}", "invalid JSON"),
        (HS256, "", "invalid JSON"),
        (HS256, "{} {}", "invalid JSON"),
        (HS256, deep.as_str(), "invalid claims"),
        ("\"HS256\"", "{}", "invalid alg"),
        ("7", "{}", "invalid alg"),
        ("null", "{}", "invalid alg"),
        ("{}", "{}", "invalid alg"),
        (r#"{"alg":["HS256"]}"#, "{}", "invalid alg"),
        (r#"{"alg":null}"#, "{}", "invalid alg"),
        (HS256, "null", "invalid claims"),
        (HS256, "7", "invalid claims"),
        (HS256, "\"iss\"", "invalid claims"),
        (HS256, "[1]", "invalid claims"),
    ] {
        let token = hashed(hmac::HMAC_SHA256, header, claims, SECRET.as_bytes());
        assert_eq!(
            said(&bearing(&gateway, json!({}), &token)),
            format!("401 Bad token; {expected}"),
            "{header}"
        );
    }
    for (claims, expected) in [
        (json!({ "sub": KEY }), "No mandatory 'iss' in claims"),
        (json!({ "iss": false }), "No mandatory 'iss' in claims"),
        (json!({ "iss": "" }), "Invalid 'iss' in claims"),
        (json!({ "iss": null }), "Invalid 'iss' in claims"),
        (json!({ "iss": [KEY] }), "Invalid 'iss' in claims"),
        (json!({ "iss": 7 }), "Invalid 'iss' in claims"),
        (json!({ "iss": "unknown" }), "No credentials found for given 'iss'"),
    ] {
        assert_eq!(
            said(&bearing(&gateway, json!({}), &token(&claims))),
            format!("401 {expected}"),
            "{claims}"
        );
    }
}

#[test]
fn the_credential_is_named_by_a_claim_or_by_the_header() {
    let gateway = gateway();
    let config = || json!({ "key_claim_name": "kid" });
    let in_header = |claims: &str| {
        let header = json!({ "alg": "HS256", "kid": KEY }).to_string();
        hashed(hmac::HMAC_SHA256, &header, claims, SECRET.as_bytes())
    };
    assert_eq!(said(&bearing(&gateway, config(), &token(&json!({ "kid": KEY })))), "passed");
    assert_eq!(said(&bearing(&gateway, config(), &in_header("{}"))), "passed");
    assert_eq!(
        said(&bearing(&gateway, config(), &in_header(r#"{"kid":"x"}"#))),
        "401 No credentials found for given 'kid'"
    );
    assert_eq!(
        said(&bearing(&gateway, config(), &token(&json!({ "iss": KEY })))),
        "401 No mandatory 'kid' in claims"
    );
}

/// Also for a token whose signature is cached.
#[test]
fn times_are_checked_every_time() {
    let gateway = gateway();
    let now = now();
    let both = json!(["exp", "nbf"]);
    for (config, times, expected) in [
        (json!({}), json!({ "exp": 1 }), "passed"),
        (json!({ "claims_to_verify": ["exp"] }), json!({ "exp": now + 60 }), "passed"),
        (json!({ "claims_to_verify": ["exp"] }), json!({ "exp": now - 1 }), r#"401 {"exp":"token expired"}"#),
        (json!({ "claims_to_verify": ["exp"] }), json!({ "exp": now }), r#"401 {"exp":"token expired"}"#),
        (json!({ "claims_to_verify": ["exp"] }), json!({}), r#"401 {"exp":"must be a number"}"#),
        (
            json!({ "claims_to_verify": ["exp"] }),
            json!({ "exp": "9999999999" }),
            r#"401 {"exp":"must be a number"}"#,
        ),
        (json!({ "claims_to_verify": ["exp"] }), json!({ "exp": 1e300 }), "passed"),
        (json!({ "claims_to_verify": ["exp"] }), json!({ "exp": -1 }), r#"401 {"exp":"token expired"}"#),
        (json!({ "claims_to_verify": ["nbf"] }), json!({ "nbf": now, "exp": 1 }), "passed"),
        (
            json!({ "claims_to_verify": ["nbf"] }),
            json!({ "nbf": now + 60 }),
            r#"401 {"nbf":"token not valid yet"}"#,
        ),
        (
            json!({ "claims_to_verify": both }),
            json!({ "nbf": now + 60, "exp": 1 }),
            r#"401 {"exp":"token expired","nbf":"token not valid yet"}"#,
        ),
        (json!({ "claims_to_verify": both }), json!({ "nbf": now, "exp": now + 60 }), "passed"),
        (
            json!({ "claims_to_verify": ["exp"], "maximum_expiration": 300 }),
            json!({ "exp": now + 60 }),
            "passed",
        ),
        (
            json!({ "claims_to_verify": ["exp"], "maximum_expiration": 300 }),
            json!({ "exp": now + 600 }),
            r#"401 {"exp":"exceeds maximum allowed expiration"}"#,
        ),
    ] {
        let mut claims = times.clone();
        claims["iss"] = KEY.into();
        let token = token(&claims);
        let plugin = gateway.plugin("jwt", config.clone()).unwrap();
        for _ in 0..2 {
            let outcome = gateway.send(&[&*plugin], &format!("GET /\nAuthorization: Bearer {token}"));
            assert_eq!(said(&outcome), expected, "{config} {times}");
        }
    }
}

#[test]
fn a_token_is_found_where_the_configuration_says() {
    let gateway = gateway();
    let (token, other) = (token(&json!({ "iss": KEY })), token(&json!({ "iss": KEY, "x": 1 })));
    let config = json!({ "uri_param_names": ["jwt", "t"], "cookie_names": ["session"], "header_names": ["authorization", "x-token"] });
    let plugin = gateway.plugin("jwt", config).unwrap();
    let none = "401 Unauthorized";
    let several = "401 Multiple tokens provided";
    for (request, expected) in [
        (format!("GET /?jwt={token}"), "passed"),
        (format!("GET /?t={token}&x=1"), "passed"),
        (format!("GET /\nCookie: a=b; session={token}"), "passed"),
        (format!("GET /\nCookie: a=b\nCookie: SESSION = {token}; c"), "passed"),
        (format!("GET /\nX-Token: bearer   {token}"), "passed"),
        (format!("GET /\nAuthorization: Basic x, Bearer {token}"), "passed"),
        (format!("GET /?jwt={token}&t={token}\nCookie: session={token}\nX-Token: Bearer {token}"), "passed"),
        (format!("GET /?jwt=&jwt={token}\nCookie: session="), "passed"),
        (format!("GET /?jwt={token}&jwt={other}"), several),
        (format!("GET /?jwt={token}\nX-Token: Bearer {other}"), several),
        (format!("GET /?jwt&t={other}"), several),
        ("GET /?jwt".to_owned(), "401 Unrecognizable token"),
        ("GET /?jwt=".to_owned(), none),
        ("GET /".to_owned(), none),
        (format!("GET /\nAuthorization: BEARER {token}"), none),
        (format!("GET /\nAuthorization: Bearer{token}"), none),
        (format!("GET /\nAuthorization: {token}"), none),
        ("GET /\nAuthorization: Bearer".to_owned(), none),
        (format!("GET /?JWT={token}\nX-Other: Bearer {token}\nCookie: s={token}"), none),
        // Of several headers of one name, the first counts.
        (format!("GET /\nX-Token: Bearer {token}\nX-Token: Bearer {other}"), "passed"),
    ] {
        assert_eq!(said(&gateway.send(&[&*plugin], &request)), expected, "{request}");
    }
}

#[test]
fn what_is_refused_is_challenged() {
    let gateway = gateway();
    for (config, token, challenge) in [
        (json!({}), "", "Bearer"),
        (json!({ "realm": "r" }), "", "Bearer realm=\"r\""),
        (json!({}), "x", "Bearer error=\"invalid_token\""),
        (json!({ "realm": "r" }), "x", "Bearer realm=\"r\" error=\"invalid_token\""),
    ] {
        let outcome = bearing(&gateway, config, token);
        assert_eq!((outcome.status(), outcome.header("WWW-Authenticate")), (401, Some(challenge)));
        assert_eq!(outcome.header("Content-Type"), Some("application/json; charset=utf-8"));
    }
}

#[test]
fn the_upstream_gets_the_consumer() {
    let gateway = gateway();
    let outcome = bearing(&gateway, json!({}), &token(&json!({ "iss": KEY })));
    for (name, value) in [
        ("X-Consumer-Username", Some("alice")),
        ("X-Consumer-Custom-ID", Some("alice-custom")),
        ("X-Credential-Identifier", Some(KEY)),
        ("X-Anonymous-Consumer", None),
    ] {
        assert_eq!(outcome.upstream_header(name), value, "{name}");
    }
    assert_eq!(outcome.exchange.credential(), Some(id(0xd1)));
    let anonymous = bearing(&gateway, json!({ "anonymous": "guest" }), "x");
    assert_eq!(anonymous.upstream_header("X-Consumer-Username"), Some("guest"));
    assert_eq!(anonymous.upstream_header("X-Anonymous-Consumer"), Some("true"));
    assert_eq!(anonymous.upstream_header("X-Credential-Identifier"), None);
}

#[test]
fn preflights_pass_if_they_may() {
    let gateway = gateway();
    let status = |config: Json| {
        let plugin = gateway.plugin("jwt", config).unwrap();
        run(&[&*plugin], gateway.exchange("OPTIONS /")).status()
    };
    assert_eq!([status(json!({})), status(json!({ "run_on_preflight": false }))], [401, 200]);
}

#[test]
fn secrets_may_be_in_base64() {
    let mut gateway = gateway();
    let token = token(&json!({ "iss": KEY }));
    let decoded = |gateway: &Gateway| said(&bearing(gateway, json!({ "secret_is_base64": true }), &token));
    assert_eq!(decoded(&gateway), "401 Invalid key/secret");
    for encoded in [STANDARD.encode(SECRET), BASE64.encode(SECRET)] {
        gateway = changed(&public_key(&pair()), |secrets| secrets[0].secret = Some(encoded));
        assert_eq!(decoded(&gateway), "passed");
        assert_eq!(said(&bearing(&gateway, json!({}), &token)), "401 Invalid signature");
    }
}

#[test]
fn a_new_configuration_forgets_old_signatures() {
    let mut gateway = gateway();
    let token = token(&json!({ "iss": KEY }));
    for _ in 0..2 {
        assert_eq!(said(&bearing(&gateway, json!({}), &token)), "passed");
    }
    gateway = changed(&public_key(&pair()), |secrets| secrets[0].secret = Some("another".to_owned()));
    assert_eq!(said(&bearing(&gateway, json!({}), &token)), "401 Invalid signature");
    gateway = changed(&public_key(&pair()), |secrets| drop(secrets.remove(0)));
    assert_eq!(said(&bearing(&gateway, json!({}), &token)), "401 No credentials found for given 'iss'");
}

/// A cached token is not valid under another configuration.
#[test]
fn what_one_instance_found_out_another_does_not_believe() {
    let gateway = gateway();
    let token = token(&json!({ "iss": KEY, "sub": "alice-384" }));
    assert_eq!(said(&bearing(&gateway, json!({}), &token)), "passed");
    assert_eq!(said(&bearing(&gateway, json!({ "key_claim_name": "sub" }), &token)), "401 Invalid algorithm");
    assert_eq!(
        said(&bearing(&gateway, json!({ "secret_is_base64": true }), &token)),
        "401 Invalid key/secret"
    );
}

/// An argument of the query may have any byte, also those of the version of an issuer's keys.
#[test]
fn a_token_behind_a_version_of_keys_is_not_the_one_found_out_with_them() {
    let gateway = gateway();
    let with_keys = json!({ "jwks_uri": "https://issuer.test/keys", "jwks_ssl_verify": false });
    let plugins = [with_keys, json!({})].map(|config| gateway.plugin("jwt", config).unwrap());
    let token = token(&json!({ "iss": KEY }));
    let [with_keys, without] = [&plugins[0], &plugins[1]];
    assert_eq!(said(&gateway.send(&[&**with_keys], &format!("GET /?jwt={token}"))), "passed");
    let version = format!("%08{}", "%00".repeat(15));
    let behind = format!("GET /?jwt={version}{token}");
    assert_eq!(said(&gateway.send(&[&**without], &behind)), "401 Bad token; invalid JSON");
}

#[test]
fn a_key_that_does_not_fit_its_algorithm_opens_nothing() {
    let bobs = pair();
    for algorithm in ["RS256", "PS512", "ES384", "EdDSA"] {
        let gateway = changed(&public_key(&bobs), |secrets| secrets[2].algorithm = algorithm.to_owned());
        let header = json!({ "alg": algorithm }).to_string();
        let token = hashed(hmac::HMAC_SHA256, &header, r#"{"iss":"bob"}"#, public_key(&bobs).as_bytes());
        assert_eq!(said(&bearing(&gateway, json!({}), &token)), "401 Invalid key/secret", "{algorithm}");
    }
}

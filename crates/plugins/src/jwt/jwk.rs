//! Keys as JSON (RFC 7517), and sets of them.

use super::key::{self, Verifier};
use super::roca;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_plugin::Bytes;
use weir_plugin::schema::quoted;

/// One key, as far as the plugin reads it.
#[derive(Deserialize)]
pub(super) struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    d: Option<IgnoredAny>,
}

fn number(text: Option<&String>) -> Option<Vec<u8>> {
    BASE64.decode(text?).ok()
}

impl Jwk {
    /// Modulus and exponent.
    pub(super) fn rsa(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        (self.kty == "RSA").then_some(())?;
        Some((number(self.n.as_ref())?, number(self.e.as_ref())?))
    }

    /// The point on this curve, in the encoding used outside JSON.
    pub(super) fn point(&self, curve: &str) -> Option<Vec<u8>> {
        (self.crv.as_deref() == Some(curve)).then_some(())?;
        let x = number(self.x.as_ref())?;
        match self.kty.as_str() {
            "OKP" if curve == "Ed25519" => Some(x),
            "EC" => {
                let y = number(self.y.as_ref()).filter(|y| y.len() == x.len())?;
                Some([&[4], &*x, &*y].concat())
            }
            _ => None,
        }
    }

    /// Whether the key says that it is for another purpose (RFC 7517, 4.2 and 4.3).
    fn is_for_others(&self) -> bool {
        let verifies = |operations: &Vec<String>| operations.iter().any(|operation| operation == "verify");
        self.purpose.as_deref().is_some_and(|purpose| purpose != "sig")
            || self.key_ops.as_ref().is_some_and(|operations| !verifies(operations))
    }

    /// Why the key must not be trusted, if so.
    fn weakness(&self) -> Option<&'static str> {
        let modulus = self.rsa().map(|(modulus, _)| modulus);
        let bits = |modulus: &[u8]| {
            let digits = modulus.iter().skip_while(|byte| **byte == 0);
            digits.clone().count() * 8
                - digits.take(1).map(|byte| byte.leading_zeros() as usize).sum::<usize>()
        };
        match (self.kty.as_str(), modulus) {
            ("oct", _) => Some("it is a secret, and any client that reads the set could sign with it"),
            (_, Some(modulus)) if bits(&modulus) < 2048 => Some("its modulus has less than 2048 bits"),
            (_, Some(modulus)) if roca::is_weak(&modulus) => {
                Some("its generator made keys that can be factored (ROCA, CVE-2017-15361)")
            }
            _ => self.d.map(|_| "its private part is published with it"),
        }
    }

    /// A verifier for each algorithm that the key may be used with.
    fn verifiers(&self) -> Vec<(&'static str, Verifier)> {
        let for_this = |name: &&str| self.alg.as_deref().is_none_or(|alg| alg == *name);
        if self.is_for_others() {
            return Vec::new();
        }
        key::names().filter(for_this).filter_map(|name| Some((name, Verifier::of_jwk(name, self)?))).collect()
    }
}

/// The keys of a set by id.
#[derive(Default)]
pub(crate) struct Keys {
    /// Differs from that of every other key set in this process; 0 before the first fetch.
    pub(crate) version: u64,
    text: Bytes,
    by_id: HashMap<String, Vec<(&'static str, Verifier)>>,
    /// The ids of keys that must not be trusted, and why.
    pub(super) refused: Vec<(String, &'static str)>,
}

/// More keys than any issuer uses.
const MAX_KEYS: usize = 256;

impl Keys {
    /// Parses a set. Keys without an id or of an unknown kind are left out. Keys with one id are alternatives (RFC
    /// 7517, 4.5): each one that fits the token's algorithm is tried.
    pub(crate) fn read(text: Bytes) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<serde_json::Value>,
        }
        static VERSIONS: AtomicU64 = AtomicU64::new(1);
        let set: Set =
            serde_json::from_slice(&text).map_err(|error| format!("it is not a JWK set: {error}"))?;
        let (mut by_id, mut refused) = (HashMap::<_, Vec<_>>::new(), Vec::new());
        let keys =
            set.keys.into_iter().take(MAX_KEYS).filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        for (id, key) in keys.filter_map(|key| Some((key.kid.clone()?, key))) {
            match key.weakness() {
                Some(why) => refused.push((quoted(&id).into_owned(), why)),
                None => by_id.entry(id).or_default().extend(key.verifiers()),
            }
        }
        by_id.retain(|_, verifiers| !verifiers.is_empty());
        Ok(Self { version: VERSIONS.fetch_add(1, Ordering::Relaxed), text, by_id, refused })
    }

    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.version != 0 && self.text == other.text
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The verifiers of a key, by algorithm; none if there is no such key.
    pub(crate) fn find(&self, id: &str) -> Option<&[(&'static str, Verifier)]> {
        self.by_id.get(id).map(|verifiers| &**verifiers)
    }

    /// The verifiers of all keys, for tokens that name none.
    pub(crate) fn all(&self) -> impl Iterator<Item = &(&'static str, Verifier)> {
        self.by_id.values().flatten()
    }
}

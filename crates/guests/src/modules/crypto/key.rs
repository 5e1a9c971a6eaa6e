//! Keys of RSA, of the NIST curves and of Ed25519, from PEM, DER or the numbers of a JWK.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::{
    OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, OaepPublicEncryptingKey, Pkcs1PrivateDecryptingKey,
    Pkcs1PublicEncryptingKey, PrivateDecryptingKey, PublicEncryptingKey, PublicKeyComponents,
};
use aws_lc_rs::signature::{EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use mlua::{IntoLuaMulti, Lua, LuaString, MultiValue, Table, UserData, UserDataMethods, Value};
use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo, X509Certificate};

use super::pem;
use super::signature::{self, Scheme};
use crate::raise;
use crate::steps::Steps;

/// What a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Rsa,
    P256,
    P384,
    P521,
    Ed25519,
}

/// What an operation with the private half costs: RSA takes about a millisecond.
const PRIVATE_STEPS: usize = 200_000;
/// About how long the public half of a key of 2048 bits is.
const RSA_2048: usize = 270;
/// What one with the public half costs.
const PUBLIC_STEPS: usize = 20_000;

/// The curves, in the order in which a private key is tried.
const CURVES: [Kind; 3] = [Kind::P256, Kind::P384, Kind::P521];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Rsa => "rsa",
            Self::P256 | Self::P384 | Self::P521 => "ec",
            Self::Ed25519 => "ed25519",
        }
    }
}

/// The private half, as it was read.
pub(super) enum Private {
    Rsa(RsaKeyPair),
    /// DER of a curve's key: an ECDSA key is bound to an algorithm when it signs.
    Curve(Vec<u8>),
    Ed25519(Ed25519KeyPair),
}

/// A key. It has no `Debug`, because it may hold a secret.
pub(super) struct Key {
    pub(super) kind: Kind,
    /// The public half: `SubjectPublicKeyInfo`, or the point of a curve.
    pub(super) public: Vec<u8>,
    pub(super) private: Option<Private>,
    /// The label and the bytes of the private half.
    source: Option<(String, Vec<u8>)>,
}

pub(super) fn add(lua: &Lua, table: &Table) -> mlua::Result<()> {
    let load = raise::metered(lua, |lua, text: LuaString| {
        if text.as_bytes().len() > pem::MAX_LENGTH {
            return Ok((Value::Nil, "the key is too long").into_lua_multi(lua)?);
        }
        Steps::of(lua).take_many(PRIVATE_STEPS)?;
        let failed = (Value::Nil, "the key is not PEM or DER of RSA, a NIST curve or Ed25519");
        Ok(match Key::load(&text.as_bytes()) {
            Some(key) => key.into_lua_multi(lua)?,
            None => failed.into_lua_multi(lua)?,
        })
    })?;
    table.raw_set("key", load)?;
    type Numbers = (String, LuaString, LuaString);
    let numbers = raise::metered(lua, |lua, (kind, first, second): Numbers| {
        let failed = || (Value::Nil, format!("a JWK of type {kind} is not supported"));
        Ok(match Key::from_numbers(&kind, &first.as_bytes(), &second.as_bytes()) {
            Some(key) => key.into_lua_multi(lua)?,
            None => failed().into_lua_multi(lua)?,
        })
    })?;
    table.raw_set("key_from_numbers", numbers)
}

impl Key {
    /// A key from PEM or DER.
    fn load(text: &[u8]) -> Option<Self> {
        let (label, der) = pem::read(text).unwrap_or_else(|| (String::new(), text.to_vec()));
        match &*label {
            "PUBLIC KEY" => Self::public(&der),
            "CERTIFICATE" => Self::public(X509Certificate::from_der(&der).ok()?.1.public_key().raw),
            "RSA PUBLIC KEY" => Some(Self { kind: Kind::Rsa, public: der, private: None, source: None }),
            "" => Self::public(&der).or_else(|| Self::private("PRIVATE KEY", &der)),
            _ => Self::private(&label, &der),
        }
    }

    fn public(spki: &[u8]) -> Option<Self> {
        let (_, parsed) = SubjectPublicKeyInfo::from_der(spki).ok()?;
        let parameters = parsed.algorithm.parameters.as_ref().and_then(|any| any.as_oid().ok());
        let kind = match &*parsed.algorithm.algorithm.to_id_string() {
            "1.2.840.113549.1.1.1" | "1.2.840.113549.1.1.10" => Kind::Rsa,
            "1.3.101.112" => Kind::Ed25519,
            "1.2.840.10045.2.1" => match &*parameters?.to_id_string() {
                "1.2.840.10045.3.1.7" => Kind::P256,
                "1.3.132.0.34" => Kind::P384,
                "1.3.132.0.35" => Kind::P521,
                _ => return None,
            },
            _ => return None,
        };
        Some(Self { kind, public: spki.to_vec(), private: None, source: None })
    }

    fn private(label: &str, der: &[u8]) -> Option<Self> {
        let source = Some((label.to_owned(), der.to_vec()));
        if let Ok(pair) = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)) {
            let public = AsDer::as_der(pair.public_key()).ok()?.as_ref().to_vec();
            return Some(Self { kind: Kind::Rsa, public, private: Some(Private::Rsa(pair)), source });
        }
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            let public = AsDer::as_der(pair.public_key()).ok()?.as_ref().to_vec();
            return Some(Self { kind: Kind::Ed25519, public, private: Some(Private::Ed25519(pair)), source });
        }
        CURVES.into_iter().find_map(|kind| {
            let pair = curve_pair(kind, der, Scheme::default())?;
            let public = AsDer::as_der(pair.public_key()).ok()?.as_ref().to_vec();
            let private = Some(Private::Curve(der.to_vec()));
            Some(Self { kind, public, private, source: source.clone() })
        })
    }

    /// A public key from the numbers of a JWK: `n` and `e`, `x` and `y`, or `x` alone.
    fn from_numbers(kind: &str, first: &[u8], second: &[u8]) -> Option<Self> {
        let point = || [&[4], first, second].concat();
        let (kind, public) = match kind {
            "RSA" => {
                let der = PublicKeyComponents { n: first, e: second }.as_der().ok()?;
                (Kind::Rsa, der.as_ref().to_vec())
            }
            "P-256" => (Kind::P256, point()),
            "P-384" => (Kind::P384, point()),
            "P-521" => (Kind::P521, point()),
            "Ed25519" => (Kind::Ed25519, first.to_vec()),
            _ => return None,
        };
        Some(Self { kind, public, private: None, source: None })
    }

    /// What an operation with the private half costs, which is that of RSA: eight times as much for twice the length.
    fn private_steps(&self) -> usize {
        match self.kind {
            Kind::Rsa => PRIVATE_STEPS.max(PRIVATE_STEPS * (self.public.len() / RSA_2048).pow(3)),
            _ => PRIVATE_STEPS,
        }
    }

    /// PEM of the private half, or of the public one.
    fn to_pem(&self, private: bool) -> Option<String> {
        match (private, &self.source) {
            (true, Some((label, der))) => Some(pem::write(label, der)),
            (true, None) => None,
            (false, _) => Some(pem::write("PUBLIC KEY", &self.public)),
        }
    }

    fn encrypt(&self, data: &[u8], oaep: bool) -> Option<Vec<u8>> {
        let key = PublicEncryptingKey::from_der(&self.public).ok()?;
        let mut out = vec![0; key.key_size_bytes()];
        let len = if oaep {
            let key = OaepPublicEncryptingKey::new(key).ok()?;
            key.encrypt(&OAEP_SHA1_MGF1SHA1, data, &mut out, None).ok()?.len()
        } else {
            Pkcs1PublicEncryptingKey::new(key).ok()?.encrypt(data, &mut out).ok()?.len()
        };
        out.truncate(len);
        Some(out)
    }

    fn decrypt(&self, data: &[u8], oaep: bool) -> Option<Vec<u8>> {
        let Some(Private::Rsa(pair)) = &self.private else { return None };
        let key = PrivateDecryptingKey::from_pkcs8(AsDer::as_der(pair).ok()?.as_ref()).ok()?;
        let mut out = vec![0; key.key_size_bytes()];
        let len = if oaep {
            let key = OaepPrivateDecryptingKey::new(key).ok()?;
            key.decrypt(&OAEP_SHA1_MGF1SHA1, data, &mut out, None).ok()?.len()
        } else {
            Pkcs1PrivateDecryptingKey::new(key).ok()?.decrypt(data, &mut out).ok()?.len()
        };
        out.truncate(len);
        Some(out)
    }
}

/// The key pair of a curve, bound to how it signs.
pub(super) fn curve_pair(kind: Kind, der: &[u8], scheme: Scheme) -> Option<EcdsaKeyPair> {
    let algorithm = signature::signing(kind, scheme)?;
    EcdsaKeyPair::from_pkcs8(algorithm, der)
        .or_else(|_| EcdsaKeyPair::from_private_key_der(algorithm, der))
        .ok()
}

impl UserData for Key {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("kind", |_, key, ()| Ok(key.kind.name()));
        methods.add_method("is_private", |_, key, ()| Ok(key.private.is_some()));
        methods.add_method("pem", |_, key, private: bool| Ok(key.to_pem(private)));
        methods.add_method("encrypt", |lua, key, (data, oaep): (LuaString, bool)| {
            Steps::of(lua).take_many(PUBLIC_STEPS + data.as_bytes().len() / 8)?;
            reply(lua, key.encrypt(&data.as_bytes(), oaep), "encryption failed")
        });
        methods.add_method("decrypt", |lua, key, (data, oaep): (LuaString, bool)| {
            Steps::of(lua).take_many(key.private_steps())?;
            reply(lua, key.decrypt(&data.as_bytes(), oaep), "decryption failed")
        });
        type Sign = (LuaString, String, bool, bool);
        methods.add_method("sign", |lua, key, (data, digest, pss, raw): Sign| {
            Steps::of(lua).take_many(key.private_steps() + data.as_bytes().len() / 8)?;
            let signature = signature::sign(key, &data.as_bytes(), &digest, Scheme { pss, raw });
            reply(lua, signature, "the key cannot sign so: check its type, the digest and the padding")
        });
        type Verify = (LuaString, LuaString, String, bool, bool);
        methods.add_method("verify", |lua, key, (data, signature, digest, pss, raw): Verify| {
            Steps::of(lua).take_many(PUBLIC_STEPS + data.as_bytes().len() / 8)?;
            let scheme = Scheme { pss, raw };
            Ok(signature::verify(key, &data.as_bytes(), &signature.as_bytes(), &digest, scheme))
        });
    }
}

fn reply(lua: &Lua, bytes: Option<Vec<u8>>, message: &str) -> mlua::Result<MultiValue> {
    match bytes {
        Some(bytes) => lua.create_string(bytes)?.into_lua_multi(lua),
        None => (Value::Nil, message).into_lua_multi(lua),
    }
}

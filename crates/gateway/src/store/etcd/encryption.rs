//! The encryption of single fields, as APISIX stores them: AES-128-CBC with a key that is the initialization vector too,
//! then base64.
use crate::apisix::object::Kind;
use crate::settings::Keyring;
use aws_lc_rs::cipher::{
    AES_128, DecryptionContext, EncryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey,
    UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use weir_model::schema::Json;

/// The fields of plugins that APISIX encrypts.
const PLUGIN_FIELDS: [(&str, &str); 5] = [
    ("basic-auth", "password"),
    ("hmac-auth", "secret_key"),
    ("jwt-auth", "private_key"),
    ("jwt-auth", "secret"),
    ("key-auth", "key"),
];

/// What a private key in PEM begins with.
const PEM: &str = "---";

/// Decrypts the fields of an object that are encrypted. What no key decrypts stays as it is, because it may never have been
/// encrypted.
pub(super) fn decrypt(kind: Kind, object: &mut Json, keyring: &Keyring) {
    each_secret(kind, object, |is_pem, text| match is_pem && text.starts_with(PEM) {
        true => None,
        false => decrypted(text, keyring),
    });
}

/// Encrypts the fields of an object that APISIX encrypts.
pub(super) fn encrypt(kind: Kind, object: &mut Json, keyring: &Keyring) {
    each_secret(kind, object, |is_pem, text| match is_pem && !text.starts_with(PEM) {
        true => None,
        false => encrypted(text, keyring),
    });
}

/// Replaces each field that is a secret; `change` learns whether it is a private key in PEM.
fn each_secret(kind: Kind, object: &mut Json, change: impl Fn(bool, &str) -> Option<String>) {
    let change = |is_pem: bool, field: Option<&mut Json>| {
        if let Some(field) = field
            && let Some(text) = field.as_str().and_then(|text| change(is_pem, text))
        {
            *field = text.into();
        }
    };
    if kind == Kind::Ssls {
        change(true, object.get_mut("key"));
        for key in object.get_mut("keys").and_then(Json::as_array_mut).into_iter().flatten() {
            change(true, Some(key));
        }
    }
    for path in ["/tls/client_key", "/upstream/tls/client_key"] {
        change(true, object.pointer_mut(path));
    }
    for (plugin, field) in PLUGIN_FIELDS {
        change(false, object.pointer_mut(&format!("/plugins/{plugin}/{field}")));
    }
}

fn decrypted(text: &str, keyring: &Keyring) -> Option<String> {
    let bytes = STANDARD.decode(text).ok().filter(|bytes| !bytes.is_empty())?;
    keyring.0.iter().find_map(|key| {
        let unbound = UnboundCipherKey::new(&AES_128, key).ok()?;
        let mut bytes = bytes.clone();
        let context = DecryptionContext::Iv128(FixedLength::from(key));
        let clear = PaddedBlockDecryptingKey::cbc_pkcs7(unbound).ok()?.decrypt(&mut bytes, context).ok()?;
        String::from_utf8(clear.to_vec()).ok()
    })
}

fn encrypted(text: &str, keyring: &Keyring) -> Option<String> {
    let key = keyring.0.first()?;
    let unbound = UnboundCipherKey::new(&AES_128, key).ok()?;
    let mut bytes = text.as_bytes().to_vec();
    let context = EncryptionContext::Iv128(FixedLength::from(key));
    PaddedBlockEncryptingKey::cbc_pkcs7(unbound).ok()?.less_safe_encrypt(&mut bytes, context).ok()?;
    Some(STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// `printf 'a secret' | openssl enc -aes-128-cbc -K $KEY -iv $KEY -base64`, with the first key in hexadecimal digits.
    const ENCRYPTED: &str = "97o5qGKxzAhVNXUaY4hLuw==";

    fn keyring() -> Keyring {
        Keyring(vec![*b"qeddd145sfvddff3", *b"edd1c9f0985e76a2"])
    }

    #[test]
    fn fields_are_encrypted_as_apisix_does() {
        let clear =
            json!({ "plugins": { "key-auth": { "key": "a secret" }, "cors": { "key": "a secret" } } });
        let mut object = clear.clone();
        encrypt(Kind::Consumers, &mut object, &keyring());
        assert_eq!(object["plugins"]["key-auth"]["key"], ENCRYPTED);
        assert_eq!(object["plugins"]["cors"]["key"], "a secret");
        decrypt(Kind::Consumers, &mut object, &keyring());
        assert_eq!(object, clear);
    }

    #[test]
    fn what_is_not_encrypted_stays() {
        for text in ["plain", "", "YWJj", "0123456789abcdef0123456789abcdef"] {
            let clear = json!({ "plugins": { "basic-auth": { "password": text } } });
            let mut object = clear.clone();
            decrypt(Kind::Consumers, &mut object, &keyring());
            assert_eq!(object, clear);
        }
    }

    #[test]
    fn private_keys_are_encrypted_once() {
        let tls = json!({ "client_key": "-----BEGIN" });
        let clear =
            json!({ "key": "-----BEGIN", "keys": ["-----BEGIN", "-----BEGIN"], "upstream": { "tls": tls } });
        let mut object = clear.clone();
        encrypt(Kind::Ssls, &mut object, &keyring());
        let once = object.clone();
        assert!(!once.to_string().contains(PEM), "{once}");
        encrypt(Kind::Ssls, &mut object, &keyring());
        assert_eq!(object, once);
        decrypt(Kind::Ssls, &mut object, &keyring());
        assert_eq!(object, clear);
    }
}

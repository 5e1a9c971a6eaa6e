//! Signed requests (RFC 7515, flattened).

use super::account::AccountKey;
use super::error::AcmeError;
use aws_lc_rs::hmac;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD as BASE64, Engine};
use serde_json::{Value, json};

/// What an external account binding (RFC 8555, 7.3.4) is made with.
pub(super) struct Binding {
    kid: String,
    key: hmac::Key,
}

impl Binding {
    /// With the key as CAs write it: in base64url, or in plain base64.
    pub(super) fn new(kid: &str, key: &str) -> Option<Self> {
        let key = key.trim();
        let decoded = BASE64
            .decode(key)
            .or_else(|_| BASE64_URL_SAFE.decode(key))
            .or_else(|_| BASE64_STANDARD.decode(key));
        let key = decoded.ok().filter(|key| !key.is_empty())?;
        Some(Self { kid: kid.to_owned(), key: hmac::Key::new(hmac::HMAC_SHA256, &key) })
    }

    /// Binds this account's key, for a request to this URL.
    pub(super) fn bind(&self, account: &AccountKey, url: &str) -> Value {
        let protected = json!({ "alg": "HS256", "kid": self.kid, "url": url });
        let (protected, payload) = (BASE64.encode(protected.to_string()), BASE64.encode(account.jwk()));
        let signature = hmac::sign(&self.key, format!("{protected}.{payload}").as_bytes());
        json!({ "protected": protected, "payload": payload, "signature": BASE64.encode(signature) })
    }
}

/// Who signs: the account, or its key where the CA does not know it yet.
pub(super) enum Signer<'a> {
    Account(&'a str),
    Key,
}

/// A request's body. Without a payload it asks for what is there (POST-as-GET).
pub(super) fn signed(
    key: &AccountKey,
    signer: &Signer<'_>,
    (url, nonce): (&str, &str),
    payload: Option<&Value>,
) -> Result<String, AcmeError> {
    let algorithm = key.algorithm();
    let (url, nonce) = (Value::from(url), Value::from(nonce));
    let named = match signer {
        Signer::Account(id) => format!(r#""kid":{}"#, Value::from(*id)),
        Signer::Key => format!(r#""jwk":{}"#, key.jwk()),
    };
    let protected = format!(r#"{{"alg":"{algorithm}",{named},"nonce":{nonce},"url":{url}}}"#);
    let protected = BASE64.encode(protected);
    let payload = payload.map(|payload| BASE64.encode(payload.to_string())).unwrap_or_default();
    let signature = key.sign(format!("{protected}.{payload}").as_bytes())?;
    Ok(json!({ "protected": protected, "payload": payload, "signature": signature }).to_string())
}

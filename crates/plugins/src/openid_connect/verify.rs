//! Verifies the provider's tokens: signature, issuer, audience, time and nonce.

use super::config::Config;
use super::error::TokenError;
use crate::jwt::claims::{Claim, Members};
use crate::jwt::jwk::Keys;
use crate::jwt::key::{Verifier, is_known};
use crate::jwt::token::Token;
use serde_json::{Map, Value as Json};
use subtle::ConstantTimeEq;

/// The longest token.
const MAX_TOKEN_LEN: usize = 64 * 1024;

/// The claims of a token.
pub(super) type Claims = Map<String, Json>;

/// What a signature is verified with.
pub(super) struct Signatures {
    /// The only algorithm, if one is configured.
    expected: Option<String>,
    /// By the client's secret, if the algorithm is one of secrets.
    secret: Option<Verifier>,
    /// By the key of the configuration.
    public_key: Vec<(&'static str, Verifier)>,
}

/// What an ID token must say.
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    /// That of the login; none where a token was renewed.
    pub(super) nonce: Option<&'a str>,
    /// The user; none at a login.
    pub(super) subject: Option<&'a str>,
    pub(super) now: u64,
    pub(super) slack: u64,
}

impl Signatures {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            expected: config.token_signing_alg_values_expected.clone(),
            secret: config.secret_verifier(),
            public_key: config.key_verifiers(),
        }
    }

    /// The claims of a bearer token: the key of the configuration comes before the provider's.
    pub(super) fn of_bearer(&self, token: &str, keys: Option<&Keys>) -> Result<Claims, TokenError> {
        self.claims(token, &self.public_key, keys)
    }

    /// The claims of an ID token, which the provider's keys sign.
    pub(super) fn of_id_token(&self, token: &str, keys: Option<&Keys>) -> Result<Claims, TokenError> {
        self.claims(token, &[], keys)
    }

    fn claims(
        &self,
        token: &str,
        own: &[(&'static str, Verifier)],
        keys: Option<&Keys>,
    ) -> Result<Claims, TokenError> {
        if token.len() > MAX_TOKEN_LEN {
            return Err(TokenError::Invalid("it is too long"));
        }
        let parts = Token::decode(token.as_bytes()).map_err(|_| TokenError::Invalid("it is no JWT"))?;
        let header =
            Members::read(&parts.header, "").map_err(|_| TokenError::Invalid("its header is no JSON"))?;
        let algorithm = self.algorithm(&header)?;
        let key = match &header.kid {
            Claim::Text(id) => Some(&**id),
            _ => None,
        };
        let signature =
            parts.signature.as_deref().ok_or(TokenError::Invalid("its signature is no base64"))?;
        let is_signed = |verifier: &Verifier| verifier.verifies(parts.signed, signature);
        let is_valid = match (&self.secret, own.is_empty()) {
            (Some(secret), _) => is_signed(secret),
            (None, false) => own.iter().any(|(name, verifier)| *name == algorithm && is_signed(verifier)),
            (None, true) => {
                let keys = keys.ok_or(TokenError::NotReady)?;
                candidates(keys, key, algorithm)?.into_iter().any(is_signed)
            }
        };
        if !is_valid {
            return Err(TokenError::Invalid("its signature is wrong"));
        }
        serde_json::from_slice(&parts.claims).map_err(|_| TokenError::Invalid("its claims are no object"))
    }

    /// The algorithm that the token names, if it may be used: never `none`, and one of secrets only where it is expected,
    /// because otherwise a public key could be taken for a secret.
    fn algorithm<'h>(&self, header: &'h Members<'_>) -> Result<&'h str, TokenError> {
        if header.has_critical {
            return Err(TokenError::Invalid("it has critical extensions"));
        }
        let Claim::Text(name) = &header.alg else { return Err(TokenError::Invalid("it names no algorithm")) };
        let is_allowed = match &self.expected {
            Some(expected) => **name == **expected,
            None => is_known(name) && !name.starts_with("HS"),
        };
        if is_allowed { Ok(name) } else { Err(TokenError::Invalid("its algorithm is not allowed")) }
    }
}

/// The keys that may have signed a token.
fn candidates<'k>(
    keys: &'k Keys,
    id: Option<&str>,
    algorithm: &str,
) -> Result<Vec<&'k Verifier>, TokenError> {
    let fits = |(name, verifier): &'k (&'static str, Verifier)| (*name == algorithm).then_some(verifier);
    let Some(id) = id else {
        let all: Vec<_> = keys.all().filter_map(fits).take(2).collect();
        return match all.len() {
            0 => Err(TokenError::UnknownKey),
            1 => Ok(all),
            _ => Err(TokenError::Invalid("it names no key, and there are several")),
        };
    };
    let of_id = keys.find(id).ok_or(TokenError::UnknownKey)?;
    Ok(of_id.iter().filter_map(fits).collect())
}

/// Checks the times of a token; one without an expiry is not accepted.
pub(super) fn check_times(claims: &Claims, now: u64, slack: u64) -> Result<(), TokenError> {
    let seconds = |name: &str| claims.get(name).map(|value| value.as_f64().unwrap_or(f64::NAN));
    let (now, slack) = (now as f64, slack as f64);
    let expires = seconds("exp").ok_or(TokenError::Invalid("it has no expiry"))?;
    if expires.is_nan() || expires <= now {
        return Err(TokenError::Invalid("it has expired"));
    }
    let has_begun = |name| seconds(name).is_none_or(|begin| begin <= now + slack);
    match has_begun("nbf") && has_begun("iat") {
        true => Ok(()),
        false => Err(TokenError::Invalid("it is not valid yet")),
    }
}

/// Checks the claims of an ID token (OpenID Connect Core 1.0, 3.1.3.7).
pub(super) fn check_id_token(claims: &Claims, expected: &Expected<'_>) -> Result<(), TokenError> {
    let text = |name: &str| claims.get(name).and_then(Json::as_str);
    check_times(claims, expected.now, expected.slack)?;
    if text("iss") != Some(expected.issuer) {
        return Err(TokenError::Invalid("it is another issuer's"));
    }
    let audience = claims.get("aud");
    if !audience.is_some_and(|audience| has_member(audience, expected.client_id)) {
        return Err(TokenError::Invalid("it is for another client"));
    }
    let is_shared = audience.and_then(Json::as_array).is_some_and(|members| members.len() > 1);
    let party = claims.get("azp");
    if party.map_or(is_shared, |party| party.as_str() != Some(expected.client_id)) {
        return Err(TokenError::Invalid("it was issued to another client"));
    }
    let Some(subject) = text("sub").filter(|subject| !subject.is_empty()) else {
        return Err(TokenError::Invalid("it has no subject"));
    };
    if expected.subject.is_some_and(|known| known != subject) {
        return Err(TokenError::Invalid("it is another user's"));
    }
    let Some(nonce) = expected.nonce else { return Ok(()) };
    let is_same: bool = text("nonce").unwrap_or_default().as_bytes().ct_eq(nonce.as_bytes()).into();
    if is_same { Ok(()) } else { Err(TokenError::Invalid("it belongs to another login")) }
}

/// Whether a claim is this text, or a list that has it.
pub(super) fn has_member(claim: &Json, text: &str) -> bool {
    match claim {
        Json::String(only) => only == text,
        Json::Array(members) => members.iter().any(|member| member == text),
        _ => false,
    }
}

/// The scopes that a token has, by its claim `scope` or `scp`.
pub(super) fn scopes(claims: &Claims) -> Vec<&str> {
    match claims.get("scope").or_else(|| claims.get("scp")) {
        Some(Json::String(text)) => text.split_ascii_whitespace().collect(),
        Some(Json::Array(members)) => members.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    }
}

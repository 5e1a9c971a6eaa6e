//! Verifies tokens. The token does not choose how it is verified: its credential determines the algorithm, and an
//! issuer's key is valid for certain algorithms only.

use super::cache::{Signer, Verified};
use super::claims::{Claim, Members};
use super::jwk::Keys;
use super::key::{self, Verifier};
use super::secrets::Secret;
use super::token::Token;
use super::{Instance, Refusal};

/// What a key verifies.
struct Signed<'a> {
    algorithm: &'a str,
    text: &'a [u8],
    signature: &'a [u8],
}

fn bad(what: &'static str) -> Refusal {
    Refusal::Message(format!("Bad token; invalid {what}").into())
}

impl Instance {
    /// Verifies the token, and returns whose key signed it.
    pub(super) fn verify(&self, token: &[u8], keys: Option<&Keys>) -> Result<Verified, Refusal> {
        let token = Token::decode(token).map_err(bad)?;
        let header = Members::read(&token.header, &self.config.key_claim_name).map_err(bad)?;
        let known =
            if let Claim::Text(id) = &header.kid { keys.and_then(|keys| keys.find(id)) } else { None };
        let config = &self.config;
        let name = if known.is_some() { &config.jwks_consumer_claim } else { &config.key_claim_name };
        let claims = Members::read(&token.claims, name).map_err(bad)?;
        let algorithm = match &header.alg {
            Claim::Text(name) if key::is_known(name) => name,
            _ => return Err(bad("alg")),
        };
        if header.has_critical {
            return Err(bad("crit"));
        }
        if !claims.is_object {
            return Err(bad("claims"));
        }
        let signature = token.signature.as_deref().ok_or_else(|| bad("signature"))?;
        let signed = Signed { algorithm, text: token.signed, signature };
        let signer = match known {
            Some(verifiers) => self.by_issuer(verifiers, &signed, &claims)?,
            None => self.by_secret(&header, &signed, &claims)?,
        };
        Ok(Verified { signer, exp: claims.exp.number(), nbf: claims.nbf.number() })
    }

    fn by_secret(
        &self,
        header: &Members<'_>,
        signed: &Signed<'_>,
        claims: &Members<'_>,
    ) -> Result<Signer, Refusal> {
        let (place, secret) = self.named(header, claims)?;
        if secret.algorithm() != signed.algorithm {
            return Err("Invalid algorithm".into());
        }
        let verifier = secret.verifier(self.config.secret_is_base64).ok_or("Invalid key/secret")?;
        if !verifier.verifies(signed.text, signed.signature) {
            return Err("Invalid signature".into());
        }
        Ok(Signer::Secret(place))
    }

    fn by_issuer(
        &self,
        verifiers: &[(&str, Verifier)],
        signed: &Signed<'_>,
        claims: &Members<'_>,
    ) -> Result<Signer, Refusal> {
        let mut of_algorithm = verifiers.iter().filter(|(name, _)| *name == signed.algorithm).peekable();
        if of_algorithm.peek().is_none() {
            return Err("Invalid algorithm".into());
        }
        if !of_algorithm.any(|(_, verifier)| verifier.verifies(signed.text, signed.signature)) {
            return Err("Invalid signature".into());
        }
        let name = if let Claim::Text(name) = &claims.named { &**name } else { "" };
        let consumers = self.issuer.as_ref().map(|(_, consumers)| consumers);
        let found = consumers.and_then(|consumers| consumers.find(&["username", "custom_id"], name));
        let claim = &self.config.jwks_consumer_claim;
        let unknown = || Refusal::Message(format!("No consumer found for given '{claim}'").into());
        found.map(|(consumer, id)| Signer::Issuer(consumer, id)).ok_or_else(unknown)
    }

    /// The credential that a token names, and its index.
    fn named(&self, header: &Members<'_>, claims: &Members<'_>) -> Result<(u32, &Secret), Refusal> {
        let name = &self.config.key_claim_name;
        let unknown = |message: String| match header.kid {
            Claim::Text(_) => Refusal::NoKey(message.into()),
            _ => Refusal::Message(message.into()),
        };
        match if claims.named == Claim::Absent { &header.named } else { &claims.named } {
            Claim::Absent => Err(unknown(format!("No mandatory '{name}' in claims"))),
            Claim::Text(key) if !key.is_empty() => {
                let found = self.secrets.find(key);
                found.ok_or_else(|| unknown(format!("No credentials found for given '{name}'")))
            }
            _ => Err(Refusal::Message(format!("Invalid '{name}' in claims").into())),
        }
    }
}

//! The credentials that tokens name.

use super::Config;
use super::credential::JwtSecret;
use super::key::Verifier;
use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::sync::{Arc, OnceLock};
use weir_plugin::{BuildContext, ConsumerIndex, FingerprintMap, Fingerprinter, Uuid};

/// Every credential of the configuration, and its index by its key's fingerprint.
pub(super) struct Secrets {
    fingerprinter: Fingerprinter,
    places: FingerprintMap<u32>,
    secrets: Vec<Secret>,
}

/// One credential.
pub(super) struct Secret {
    pub(super) consumer: ConsumerIndex,
    entity: Arc<JwtSecret>,
    /// Made when it is first needed; none if the key does not fit the algorithm.
    verifier: OnceLock<Option<Verifier>>,
    /// The same, for a secret in base64.
    of_base64: OnceLock<Option<Verifier>>,
}

impl Secrets {
    pub(super) fn new(build: &BuildContext<'_>) -> Self {
        let fingerprinter = Fingerprinter::with_random_key();
        let known = |entity: Arc<JwtSecret>| {
            let consumer = build.consumer(entity.consumer)?;
            let (verifier, of_base64) = (OnceLock::new(), OnceLock::new());
            Some(Secret { consumer, entity, verifier, of_base64 })
        };
        let secrets: Vec<_> = build.shared_entities().filter_map(known).collect();
        let place = |(secret, place): (&Secret, u32)| (fingerprinter.of(secret.key().as_bytes()), place);
        let places = secrets.iter().zip(0..).map(place).collect();
        Self { fingerprinter, places, secrets }
    }

    /// The credential with this key, and its index.
    pub(super) fn find(&self, key: &str) -> Option<(u32, &Secret)> {
        let place = *self.places.get(&self.fingerprinter.of(key.as_bytes()))?;
        Some((place, self.at(place)))
    }

    pub(super) fn at(&self, place: u32) -> &Secret {
        &self.secrets[place as usize]
    }

    /// Makes fingerprints of tokens that are valid only for these credentials and this configuration.
    pub(super) fn fingerprinter(&self, config: &Config) -> Fingerprinter {
        let names = [&config.key_claim_name, &config.jwks_consumer_claim];
        let own = self.fingerprinter.clone().with(&[config.secret_is_base64.into()]);
        names.iter().fold(own, |own, name| own.with(name.as_bytes()))
    }
}

impl Secret {
    pub(super) fn id(&self) -> Uuid {
        self.entity.id
    }

    pub(super) fn key(&self) -> &str {
        &self.entity.key
    }

    pub(super) fn algorithm(&self) -> &str {
        &self.entity.algorithm
    }

    /// The verifier; none if the credential's key cannot be used.
    pub(super) fn verifier(&self, secret_is_base64: bool) -> Option<&Verifier> {
        let slot = if secret_is_base64 { &self.of_base64 } else { &self.verifier };
        slot.get_or_init(|| self.make_verifier(secret_is_base64)).as_ref()
    }

    fn make_verifier(&self, secret_is_base64: bool) -> Option<Verifier> {
        let (algorithm, entity) = (self.algorithm(), &self.entity);
        if !algorithm.starts_with("HS") {
            return Verifier::of_public_key(algorithm, entity.rsa_public_key.as_ref()?.as_bytes());
        }
        let secret = entity.secret.as_ref()?;
        let decoded = if secret_is_base64 { decode(secret)? } else { secret.clone().into_bytes() };
        Verifier::of_secret(algorithm, &decoded)
    }
}

/// Decodes base64 of either alphabet, with padding or without.
fn decode(text: &str) -> Option<Vec<u8>> {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let of = |alphabet| GeneralPurpose::new(alphabet, config).decode(text.trim());
    of(&STANDARD).or_else(|_| of(&URL_SAFE)).ok()
}

//! Refuses webhooks that are not signed as [Standard Webhooks](https://www.standardwebhooks.com) says.
//!
//! ```yaml
//! plugins:
//!   - name: standard-webhooks
//!     route: github-events
//!     config:
//!       secret_v1: "{vault://env/webhook-secret}"
//! ```
//!
//! A request needs `webhook-id`, `webhook-timestamp`, `webhook-signature` and a body. The signature is `v1,` and the base64 of
//! the HMAC-SHA256 of id, timestamp and body, with a full stop between them. The key is the text of `secret_v1`.
//!
//! What Kong refuses and this plugin accepts, because senders' libraries do it:
//!
//! - A secret `whsec_…`, as senders show it, is the base64 of a key: signatures with that key are right too. `weir check` warns
//!   of one that is not base64.
//! - `webhook-signature` may hold several signatures with spaces between them, as while a sender changes its secret. One of
//!   them must be right.
//!
//! The timestamp must be within `tolerance_second` of the node's clock, before or after it; Kong accepts any in the future, so
//! that a sender's mistake keeps a message valid for years. Within that time a message can be sent again: refuse an
//! id that was seen before.
//!
//! A body of more than 1 MiB, or a larger `client_body_buffer_size`, is refused, because it is not buffered to be verified.
//!
//! ## Responses
//!
//! | status | message | when |
//! |---|---|---|
//! | 400 | `Bad request` | a header or the body is missing, the timestamp is too far off, or no signature is right |
//!
//! The log says which, at the level `debug`.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::time::{SystemTime, UNIX_EPOCH};
use weir_plugin::{
    BuildContext, Exchange, FieldWarning, Flow, Hooks, Json, LocalResponse, Phases, Plugin, Record, Secret,
    WantsBody,
};

/// The secret, and how old a message may be.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The secret that the sender signs with.
    #[field(secret)]
    pub secret_v1: Secret,
    /// How many seconds the timestamp may be off.
    #[field(default = 300, gt = -1)]
    pub tolerance_second: i64,
}

/// One configured instance.
pub(super) struct StandardWebhooks {
    tolerance: u64,
    keys: Vec<hmac::Key>,
}

impl Plugin for StandardWebhooks {
    const NAME: &'static str = "standard-webhooks";
    const PRIORITY: i32 = 760;
    type Config = Config;

    fn warnings(config: &Json) -> Vec<FieldWarning> {
        let encoded = config["secret_v1"].as_str().and_then(|secret| secret.strip_prefix(PREFIX));
        let is_wrong = encoded.is_some_and(|encoded| decoded_key(encoded).is_none());
        let message = "what follows `whsec_` is not the base64 of a key, so that the text itself is the key; copy the whole \
                       secret as the sender shows it";
        is_wrong.then(|| FieldWarning::new("secret_v1", message)).into_iter().collect()
    }

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let tolerance = u64::try_from(config.tolerance_second).unwrap_or_default();
        Ok(Self { tolerance, keys: keys(config.secret_v1.expose())? })
    }
}

/// Base64 with padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What secrets begin with that are the base64 of a key.
const PREFIX: &str = "whsec_";

fn decoded_key(encoded: &str) -> Option<Vec<u8>> {
    BASE64.decode(encoded).ok().filter(|key| !key.is_empty())
}

/// The text of the secret, and the key that it is the base64 of.
fn keys(secret: &str) -> Result<Vec<hmac::Key>, String> {
    // An empty key would let everybody sign; a vault that has no secret yields one.
    if secret.is_empty() {
        return Err("config.secret_v1 is empty; write the secret that the sender signs with".to_owned());
    }
    let decoded = secret.strip_prefix(PREFIX).and_then(decoded_key);
    let key = |bytes: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, bytes);
    Ok([key(secret.as_bytes())].into_iter().chain(decoded.map(|bytes| key(&bytes))).collect())
}

impl Hooks for StandardWebhooks {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn wants_body(&self) -> WantsBody {
        WantsBody::Yes
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        match self.verify(exchange, now) {
            Ok(()) => Flow::Continue,
            Err(why) => {
                tracing::debug!(request_id = exchange.id(), "standard-webhooks: {why}");
                Flow::Respond(LocalResponse::error(400, "Bad request"))
            }
        }
    }
}

impl StandardWebhooks {
    fn verify(&self, exchange: &Exchange, now: u64) -> Result<(), &'static str> {
        let header = |name| {
            let mut values = exchange.request.headers.get_all(name);
            let value = values.next().ok_or("a header is missing")?;
            // The upstream gets all of them, and only one is signed.
            if values.next().is_some() { Err("a header is given twice") } else { Ok(value) }
        };
        let (id, signatures) = (header("webhook-id")?, header("webhook-signature")?);
        let timestamp = header("webhook-timestamp")?;
        if now.abs_diff(seconds(timestamp)) > self.tolerance {
            return Err("the timestamp is too far off");
        }
        let body = exchange.body().filter(|body| !body.is_empty()).ok_or("the body is missing")?;
        let signatures: Vec<_> = signatures.split(|byte| *byte == b' ').filter_map(decode).collect();
        let is_signed = !signatures.is_empty()
            && self.keys.iter().any(|key| is_signed(key, &[id, b".", timestamp, b".", body], &signatures));
        is_signed.then_some(()).ok_or("no signature is right")
    }
}

/// Seconds since 1970; what is no such number is long past.
fn seconds(timestamp: &[u8]) -> u64 {
    let digits = std::str::from_utf8(timestamp).ok();
    let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The bytes of a signature of version 1.
fn decode(signature: &[u8]) -> Option<[u8; 32]> {
    let mut bytes = [0; 33];
    let length = BASE64.decode_slice(signature.strip_prefix(b"v1,")?, &mut bytes).ok()?;
    (length == 32).then(|| bytes[..32].try_into().ok())?
}

/// Whether one of the signatures is that of the message. Each is compared in constant time.
fn is_signed(key: &hmac::Key, message: &[&[u8]], signatures: &[[u8; 32]]) -> bool {
    let mut context = hmac::Context::with_key(key);
    message.iter().for_each(|part| context.update(part));
    let expected = context.sign();
    signatures.iter().any(|signature| {
        aws_lc_rs::constant_time::verify_slices_are_equal(expected.as_ref(), signature).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_614_265_330;

    fn plugin(secret: &str) -> StandardWebhooks {
        StandardWebhooks { tolerance: 300, keys: keys(secret).unwrap() }
    }

    fn verify(plugin: &StandardWebhooks, timestamp: &str, signature: &str) -> Result<(), &'static str> {
        let request = format!(
            "POST /\nwebhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek\nwebhook-timestamp: {timestamp}\nwebhook-signature: {signature}"
        );
        let mut exchange = weir_plugin::testing::Gateway::new(crate::PLUGINS).exchange(&request);
        exchange.set_body(b"{\"event\":\"ping\"}".to_vec());
        plugin.verify(&exchange, NOW)
    }

    /// Of PyPI's standardwebhooks.
    const RIGHT: &str = "v1,k/8NBVgAJA5BTKh/GM6uD7O/D6QxNUan0cjbrIQmGyY=";

    #[test]
    fn the_timestamp_is_near_and_one_signature_is_right() {
        let plugin = plugin("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        assert_eq!(verify(&plugin, "1614265330", RIGHT), Ok(()));
        let unpadded = RIGHT.trim_end_matches('=');
        for several in [format!("v1,AAAA {RIGHT}"), format!("v1a,x {RIGHT}  v2,y"), unpadded.to_owned()] {
            assert_eq!(verify(&plugin, "1614265330", &several), Ok(()), "{several}");
        }
        for wrong in ["", "v1", "v1,", " ", "v2,k/8NBVgAJA5BTKh/GM6uD7O/D6QxNUan0cjbrIQmGyY=", &RIGHT[3..]] {
            assert_eq!(verify(&plugin, "1614265330", wrong), Err("no signature is right"), "{wrong}");
        }
        for near in [NOW - 300, NOW + 300] {
            // The timestamp is signed too.
            assert_eq!(verify(&plugin, &near.to_string(), RIGHT), Err("no signature is right"));
        }
        for far in ["1614265029", "1614265631", "", "now", "1e9", "-1", "99999999999999999999"] {
            assert_eq!(verify(&plugin, far, RIGHT), Err("the timestamp is too far off"), "{far}");
        }
    }

    /// The upstream would get both, and only one is signed.
    #[test]
    fn what_comes_twice_is_refused() {
        let plugin = plugin("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        for more in ["webhook-id: another", "webhook-timestamp: 1614265330", "webhook-signature: v1,AAAA"] {
            let signature = format!("{RIGHT}\n{more}");
            assert_eq!(verify(&plugin, "1614265330", &signature), Err("a header is given twice"), "{more}");
        }
    }

    #[test]
    fn an_empty_secret_is_refused() {
        assert!(keys("").is_err());
        // Nothing is encoded, so the text itself is the key.
        assert_eq!(keys("whsec_").unwrap().len(), 1);
        assert_eq!(keys("whsec_*").unwrap().len(), 1);
    }

    #[test]
    fn a_secret_that_is_no_base64_has_a_warning() {
        let warnings = |secret: &str| StandardWebhooks::warnings(&serde_json::json!({ "secret_v1": secret }));
        for right in ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "a secret", "{vault://env/secret}", "whsec"] {
            assert_eq!(warnings(right), [], "{right}");
        }
        for wrong in ["whsec_%%%%", "whsec_", "whsec_MfKQ9r8GK YqrTwj"] {
            let found = warnings(wrong);
            assert_eq!((found.len(), &*found[0].path), (1, "secret_v1"), "{wrong}");
            assert!(!found[0].message.contains(&wrong[6..]) || wrong == "whsec_", "{found:?}");
        }
    }

    proptest! {
        #[test]
        fn no_signature_but_the_right_one_is_accepted(signature in "(v1,)?[A-Za-z0-9+/= ]{0,60}") {
            prop_assert!(verify(&plugin("a secret"), "1614265330", &signature).is_err());
        }
    }
}

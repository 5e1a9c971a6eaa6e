//! The text that a client signs, and the verification of its signature.

use aws_lc_rs::{digest, hmac};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use weir_plugin::{Exchange, Version};

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The longest text. No request head is as long; only `headers` that repeat long headers reach this.
pub(crate) const MAX_SIGNED_LEN: usize = 256 * 1024;

/// The signed text for these names; none if it is too long, or if a header in it occurs more than once.
pub(super) fn text<'a>(exchange: &Exchange, names: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    for (at, name) in names.enumerate() {
        if text.len() > MAX_SIGNED_LEN {
            return None;
        }
        if at > 0 {
            text.push(b'\n');
        }
        let values = std::str::from_utf8(name).ok().map(|name| exchange.request.headers.get_all(name));
        let mut values = values.into_iter().flatten();
        let header = values.next();
        // The upstream gets all of them, and only one is signed.
        if values.next().is_some() {
            return None;
        }
        match (header, name) {
            (None, b"request-line") => text.extend(request_line(exchange).bytes()),
            (None, b"@request-target") => {
                let method = exchange.request.method_str().to_ascii_lowercase();
                text.extend(format!("@request-target: {method} {}", target(exchange)).bytes());
            }
            (None, name) => text.extend([name, b":"].concat()),
            (Some(value), name) => text.extend([name, b": ", value].concat()),
        }
    }
    Some(text)
}

fn request_line(exchange: &Exchange) -> String {
    let version = match exchange.request.version {
        Version::Http10 => "1.0",
        Version::Http11 => "1.1",
        Version::Http2 => "2.0",
        Version::Http3 => "3.0",
    };
    format!("{} {} HTTP/{version}", exchange.request.method_str(), target(exchange))
}

/// Path and query as the client sent them.
pub(crate) fn target(exchange: &Exchange) -> String {
    let query = exchange.request.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}{query}", exchange.request.path())
}

/// Whether a signature in base64 is valid for this text and secret.
pub(crate) fn is_by(secret: &str, algorithm: &str, text: &[u8], signature: &[u8]) -> bool {
    let algorithm = match algorithm {
        "hmac-sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        "hmac-sha256" => hmac::HMAC_SHA256,
        "hmac-sha384" => hmac::HMAC_SHA384,
        _ => hmac::HMAC_SHA512,
    };
    let key = hmac::Key::new(algorithm, secret.as_bytes());
    BASE64.decode(signature).is_ok_and(|signature| hmac::verify(&key, text, &signature).is_ok())
}

/// Whether the request's digest is that of its body. Without a digest, there must be no body; there are no two.
pub(crate) fn digest_is_of_body(exchange: &Exchange) -> bool {
    let mut digests = exchange.request.headers.get_all("Digest");
    match (digests.next(), exchange.body()) {
        (_, None) => false,
        _ if digests.next().is_some() => false,
        (None, Some(body)) => body.is_empty(),
        (Some(digest), Some(body)) => {
            let made = digest::digest(&digest::SHA256, body);
            digest
                .strip_prefix(b"SHA-256=")
                .is_some_and(|sent| sent == BASE64.encode(made.as_ref()).as_bytes())
        }
    }
}

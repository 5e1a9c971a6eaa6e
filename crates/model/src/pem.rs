//! Rules for PEM text. Whether a key fits its certificate is for those who use them to say.
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::RSAPublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// One or more certificates.
pub fn certificates(text: &str) -> Result<(), String> {
    let blocks = blocks(text)?;
    match blocks.iter().find(|block| block.parse_x509().is_err()) {
        None if !blocks.is_empty() => Ok(()),
        _ => Err("expected a certificate as PEM: -----BEGIN CERTIFICATE----- …".to_owned()),
    }
}

/// A private key.
pub fn private_key(text: &str) -> Result<(), String> {
    match blocks(text)?.as_slice() {
        [block] if block.label.ends_with("PRIVATE KEY") && !block.label.starts_with("ENCRYPTED") => Ok(()),
        blocks if blocks.iter().any(|block| block.label.ends_with("PRIVATE KEY")) => Ok(()),
        _ => Err("expected an unencrypted private key as PEM: -----BEGIN PRIVATE KEY----- …".to_owned()),
    }
}

/// A public key, or a certificate that holds one.
pub fn public_key(text: &str) -> Result<(), String> {
    match blocks(text)?.first() {
        Some(block) if block.label.ends_with("PUBLIC KEY") || block.label == "CERTIFICATE" => Ok(()),
        _ => Err("expected a public key as PEM: -----BEGIN PUBLIC KEY----- …".to_owned()),
    }
}

/// Whether a public key can verify signatures of an algorithm of RFC 7518; the key itself is for its rule to check.
pub fn public_key_fits(text: &str, algorithm: &str) -> Result<(), String> {
    let needed = match algorithm {
        "ES256" => "an EC key of the curve P-256",
        "ES384" => "an EC key of the curve P-384",
        "ES512" => "an EC key of the curve P-521",
        "EdDSA" => "an Ed25519 key",
        _ => "an RSA key of at least 2048 bits",
    };
    let found = match blocks(text).ok().as_deref().and_then(<[Pem]>::first) {
        Some(block) => kind_of_key(block),
        None => return Ok(()),
    };
    match found.as_deref() {
        Some(found) if found == needed => Ok(()),
        Some(found) => Err(format!("algorithm {algorithm} needs {needed}; this is {found}")),
        None => Err(format!("algorithm {algorithm} needs {needed}; this cannot be read as one")),
    }
}

/// RSA, as keys name it.
const RSA: &str = "1.2.840.113549.1.1.1";

/// What the public key in a block is; none if it is none that signatures are verified with.
fn kind_of_key(block: &Pem) -> Option<String> {
    let certificate = if block.label == "CERTIFICATE" { Some(block.parse_x509().ok()?) } else { None };
    let parsed = match &certificate {
        Some(certificate) => certificate.public_key().clone(),
        None if block.label == "RSA PUBLIC KEY" => return rsa_key(&block.contents),
        None => SubjectPublicKeyInfo::from_der(&block.contents).ok()?.1,
    };
    match parsed.algorithm.algorithm.to_id_string().as_str() {
        RSA => rsa_key(&parsed.subject_public_key.data),
        "1.2.840.10045.2.1" => {
            let curve = parsed.algorithm.parameters.as_ref()?.as_oid().ok()?.to_id_string();
            let curve = match curve.as_str() {
                "1.2.840.10045.3.1.7" => "P-256",
                "1.3.132.0.34" => "P-384",
                "1.3.132.0.35" => "P-521",
                other => other,
            };
            Some(format!("an EC key of the curve {curve}"))
        }
        "1.3.101.112" => Some("an Ed25519 key".to_owned()),
        _ => None,
    }
}

fn rsa_key(der: &[u8]) -> Option<String> {
    let modulus = RSAPublicKey::from_der(der).ok()?.1.key_size();
    Some(match modulus {
        2048.. => "an RSA key of at least 2048 bits".to_owned(),
        bits => format!("an RSA key of {bits} bits"),
    })
}

/// The length of the RSA key of a certificate, if that is too short for signatures.
pub fn weak_rsa_bits(certificate: &str) -> Option<usize> {
    let blocks = blocks(certificate).ok()?;
    let certificate = blocks.first()?.parse_x509().ok()?;
    let (_, key) = RSAPublicKey::from_der(&certificate.public_key().subject_public_key.data).ok()?;
    let is_rsa = certificate.public_key().algorithm.algorithm.to_id_string() == RSA;
    Some(key.key_size()).filter(|bits| is_rsa && *bits < 2048)
}

/// When a certificate expires, in seconds since 1970.
pub fn expires(certificate: &str) -> Option<i64> {
    let blocks = blocks(certificate).ok()?;
    Some(blocks.first()?.parse_x509().ok()?.validity().not_after.timestamp())
}

/// One certificate of an authority.
pub fn ca_certificate(text: &str) -> Result<(), String> {
    certificates(text)?;
    let blocks = blocks(text)?;
    let [block] = blocks.as_slice() else {
        return Err("expected one certificate; give each authority an entry of its own".to_owned());
    };
    match block.parse_x509() {
        Ok(certificate) if certificate.is_ca() => Ok(()),
        _ => Err("expected the certificate of an authority (CA:TRUE)".to_owned()),
    }
}

fn blocks(text: &str) -> Result<Vec<Pem>, String> {
    Pem::iter_from_buffer(text.as_bytes()).collect::<Result<_, _>>().map_err(|_| {
        match text.rsplit_once("-----BEGIN ").and_then(|(_, last)| last.split_once("-----")) {
            Some((label, rest)) if !rest.contains("-----END ") => {
                format!("the PEM block has no END {label} line; is it cut off?")
            }
            _ => "expected PEM text; in YAML, write it as a block after `|`".to_owned(),
        }
    })
}

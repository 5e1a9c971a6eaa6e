//! Rules for PEM text. Whether a key fits its certificate is for those who use them to say.
use x509_parser::pem::Pem;

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

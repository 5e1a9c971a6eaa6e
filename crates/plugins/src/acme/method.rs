//! How a CA checks that a name leads here: `http-01` (RFC 8555, section 8.3) or `tls-alpn-01` (RFC 8737).

use super::config::Config;
use super::error::AcmeError;
use rcgen::{CertificateParams, CustomExtension, KeyPair, PKCS_ECDSA_P256_SHA256};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use weir_plugin::{CertificateKey, Handshake};

/// The protocol of handshakes that ask for the answer to a challenge.
pub(super) const PROTOCOL: &[u8] = b"acme-tls/1";

/// How a CA checks names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// It asks for a file by plain HTTP.
    Http,
    /// It asks for a certificate by a TLS handshake.
    TlsAlpn,
}

impl Method {
    pub(super) fn of(config: &Config) -> Self {
        if config.challenge == "tls-alpn-01" { Self::TlsAlpn } else { Self::Http }
    }

    /// As CAs call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Http => "http-01",
            Self::TlsAlpn => "tls-alpn-01",
        }
    }

    /// The port that a CA connects to.
    pub(super) fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::TlsAlpn => 443,
        }
    }

    /// The CA offers no such challenge.
    pub(super) fn missing(self) -> AcmeError {
        let other = match self {
            Self::Http => Self::TlsAlpn,
            Self::TlsAlpn => Self::Http,
        };
        AcmeError::NoChallenge { wanted: self.name(), other: other.name() }
    }

    /// The key of the storage that has the answer to a challenge: of its token, or of the host, because a handshake names no
    /// token.
    pub(super) fn key(self, of: &str) -> String {
        format!("{of}#{}", self.name())
    }
}

/// The host whose challenge a handshake is about; none if it is one of another kind. An address is asked for by its name for
/// reverse look-ups (RFC 8738, section 6).
pub(super) fn challenged(handshake: &Handshake) -> Option<Cow<'_, str>> {
    let name = handshake.sni.as_deref().filter(|_| handshake.alpn == [PROTOCOL])?;
    let name = name.trim_end_matches('.');
    Some(match name.strip_suffix(".in-addr.arpa") {
        Some(reversed) => reversed.rsplit('.').collect::<Vec<_>>().join(".").into(),
        None => name.into(),
    })
}

/// The certificate that proves to a CA who a host belongs to: signed by its own key, with the hash of the answer.
pub(super) fn proof(host: &str, answer: &str) -> Result<CertificateKey, AcmeError> {
    let (chain, key) = issued(host, answer).map_err(|error| {
        AcmeError::Crypto(format!("no certificate can be made for the challenge: {error}"))
    })?;
    CertificateKey::from_pem(&chain, &key).map_err(AcmeError::Crypto)
}

fn issued(host: &str, answer: &str) -> Result<(String, String), rcgen::Error> {
    let mut asked = CertificateParams::new([host.to_owned()])?;
    asked.custom_extensions = vec![CustomExtension::new_acme_identifier(&Sha256::digest(answer))];
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    Ok((asked.self_signed(&key)?.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
    use x509_parser::extensions::GeneralName;
    use x509_parser::prelude::{FromDer, X509Certificate};

    fn asked(sni: Option<&str>, alpn: &[&[u8]]) -> Option<String> {
        let end = "127.0.0.1:443".parse().unwrap();
        let alpn = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        challenged(&Handshake::new(end, end, sni, alpn)).map(Cow::into_owned)
    }

    #[test]
    fn handshakes_of_cas_offer_one_protocol_and_name_a_host() {
        let of_ca = |sni| asked(Some(sni), &[PROTOCOL]);
        assert_eq!(of_ca("A.test").as_deref(), Some("a.test"));
        assert_eq!(of_ca("a.test.").as_deref(), Some("a.test"));
        assert_eq!(of_ca("1.2.0.192.in-addr.arpa").as_deref(), Some("192.0.2.1"));
        assert_eq!(of_ca("1.2.0.192.in-addr.arpa.").as_deref(), Some("192.0.2.1"));
        assert_eq!(asked(None, &[PROTOCOL]), None);
        let others: [&[&[u8]]; 5] =
            [&[], &[b"http/1.1"], &[PROTOCOL, b"h2"], &[b"h2", PROTOCOL], &[b"acme-tls/2"]];
        for alpn in others {
            assert_eq!(asked(Some("a.test"), alpn), None, "{alpn:?}");
        }
    }

    #[test]
    fn a_proof_has_the_hash_of_the_answer_and_the_host_alone() {
        for host in ["a.test", "192.0.2.1"] {
            let certificate = proof(host, "token.thumbprint").unwrap().key();
            let (_, parsed) = X509Certificate::from_der(&certificate.cert[0]).unwrap();
            let extension =
                parsed.extensions().iter().find(|it| it.oid.to_id_string() == "1.3.6.1.5.5.7.1.31");
            let extension = extension.expect("the extension is there");
            let digest = [&[4, 32][..], &Sha256::digest("token.thumbprint")[..]].concat();
            assert!(extension.critical && extension.value == digest, "{extension:?}");
            let names = &parsed.subject_alternative_name().unwrap().unwrap().value.general_names;
            let expected = match host.parse::<std::net::Ipv4Addr>() {
                Ok(_) => GeneralName::IPAddress(&[192, 0, 2, 1]),
                Err(_) => GeneralName::DNSName(host),
            };
            assert_eq!(*names, [expected]);
            assert_eq!(parsed.issuer(), parsed.subject());
            let key =
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &parsed.public_key().subject_public_key.data);
            let signature = &parsed.signature_value.data;
            key.verify(parsed.tbs_certificate.as_ref(), signature).expect("it is signed by its own key");
        }
    }
}

//! Certificates that clients present. The handshake proves that the client holds the key; each route verifies the chain
//! itself.

use super::{Problem, pem, provider};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use std::cell::RefCell;
use std::fmt::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::x509::X509Name;

/// How long a connection relies on what a check said: certificates expire while connections are open.
const RELIED_ON: Duration = Duration::from_secs(60);

/// Who may vouch for clients.
#[derive(Debug)]
pub struct ClientAuthorities(Arc<dyn ClientCertVerifier>);

impl ClientAuthorities {
    /// Those of these certificates.
    pub fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, Problem> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate).map_err(|error| Problem::UnusableCertificate(error.to_string()))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        Ok(Self(verifier.map_err(|error| Problem::Refused(error.to_string()))?))
    }

    /// Whether one of the authorities has issued the first certificate of a chain, and every certificate is valid now.
    pub fn vouch_for(&self, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let [own, intermediates @ ..] = chain else { return Err(rustls::Error::NoCertificatesPresented) };
        self.0.verify_client_cert(own, intermediates, UnixTime::now()).map(drop)
    }
}

/// A certificate whose key the client holds.
pub struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    subject: String,
    common_name: Option<String>,
    names: Vec<String>,
    verdicts: RefCell<Vec<Verdict>>,
}

/// What a check said. A connection meets few sets of authorities.
struct Verdict {
    by: Arc<ClientAuthorities>,
    at: Instant,
    good: bool,
}

impl ClientCertificate {
    /// The chain that was presented, the client's own certificate first; none where that cannot be read.
    pub fn read(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let (_, own) = x509_parser::parse_x509_certificate(chain.first()?).ok()?;
        let common_name = own.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        Some(Self {
            subject: distinguished_name(own.subject()),
            common_name: common_name.filter(|name| is_plain(name)).map(str::to_owned),
            names: alternative_names(&own),
            chain: chain.iter().map(|certificate| certificate.clone().into_owned()).collect(),
            verdicts: RefCell::default(),
        })
    }

    /// Whether one of the authorities vouches for it.
    pub fn is_vouched_for(&self, authorities: &Arc<ClientAuthorities>) -> bool {
        let mut verdicts = self.verdicts.borrow_mut();
        verdicts.retain(|verdict| verdict.at.elapsed() < RELIED_ON);
        if let Some(known) = verdicts.iter().find(|verdict| Arc::ptr_eq(&verdict.by, authorities)) {
            return known.good;
        }
        let vouched = authorities.vouch_for(&self.chain);
        if let Err(error) = &vouched {
            let is_old = self.chain.first().is_some_and(pem::is_old);
            let advice = if is_old { ": issue an X.509 version 3 certificate" } else { "" };
            tracing::warn!(subject = self.subject, "a client's certificate is refused: {error}{advice}");
        }
        let good = vouched.is_ok();
        verdicts.push(Verdict { by: authorities.clone(), at: Instant::now(), good });
        good
    }

    /// The subject's distinguished name, as RFC 2253 writes it.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The subject's common name.
    pub fn common_name(&self) -> Option<&str> {
        self.common_name.as_deref()
    }

    /// The names, mail addresses, URIs and IP addresses that the certificate is for.
    pub fn alternative_names(&self) -> &[String] {
        &self.names
    }

    /// The chain that was presented, in DER, the client's own certificate first.
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.chain.iter().map(|certificate| &**certificate)
    }

    /// The certificate itself, in DER.
    pub fn der(&self) -> &[u8] {
        self.chain.first().map_or(&[], |own| own)
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientCertificate({})", self.subject)
    }
}

/// No control characters, and no space at an edge: such a name is there to deceive.
fn is_plain(name: &str) -> bool {
    let is_visible = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    !name.is_empty() && name.trim_ascii() == name && name.bytes().all(is_visible)
}

fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return Vec::new() };
    let names = extension.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => {
            Some((*name).to_owned())
        }
        GeneralName::IPAddress(bytes) => address(bytes).map(|ip| ip.to_string()),
        _ => None,
    });
    names.filter(|name| is_plain(name)).collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

/// As RFC 2253 writes it: the last part first, and all but plain ASCII escaped, so that it can stand in a header.
fn distinguished_name(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    let parts: Vec<_> = name.iter_rdn().collect();
    for part in parts.into_iter().rev() {
        for (index, attribute) in part.iter().enumerate() {
            text.push_str(if text.is_empty() {
                ""
            } else if index > 0 {
                "+"
            } else {
                ","
            });
            let registry = x509_parser::objects::oid_registry();
            match x509_parser::objects::oid2abbrev(attribute.attr_type(), registry) {
                Ok(short) => text.push_str(short),
                Err(_) => text.push_str(&attribute.attr_type().to_id_string()),
            }
            text.push('=');
            escape(&mut text, attribute.as_str().unwrap_or_default());
        }
    }
    text
}

fn escape(out: &mut String, value: &str) {
    for (at, byte) in value.bytes().enumerate() {
        let edge = at == 0 || at + 1 == value.len();
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => out.extend(['\\', byte.into()]),
            b' ' if edge => out.push_str("\\ "),
            b'#' if at == 0 => out.push_str("\\#"),
            b' '..=b'~' => out.push(byte.into()),
            _ => {
                let _ = write!(out, "\\{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_are_escaped_so_that_they_can_stand_in_a_header() {
        let cases = [
            ("ann", "ann"),
            ("a,b", "a\\,b"),
            (" #a# ", "\\ #a#\\ "),
            ("#a", "\\#a"),
            ("a\r\nX-Consumer-ID: b", "a\\0D\\0AX-Consumer-ID: b"),
            ("é", "\\C3\\A9"),
        ];
        for (value, expected) in cases {
            let mut text = String::new();
            escape(&mut text, value);
            assert_eq!(text, expected);
        }
    }
}

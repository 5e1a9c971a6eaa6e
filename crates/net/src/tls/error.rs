//! The errors of certificates and TLS settings, and how to fix them.

use std::fmt;
use std::path::PathBuf;
use weir_model::Uuid;

/// Which part of the configuration is wrong, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsError {
    /// What it is about.
    pub subject: Subject,
    /// What is wrong.
    pub problem: Problem,
}

/// The entity or setting that an error is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A certificate entity; `alt` says that it is about `cert_alt` and `key_alt`.
    Certificate {
        /// The entity's id.
        id: Uuid,
        /// Whether it is about `cert_alt` and `key_alt`.
        alt: bool,
    },
    /// An SNI entity, by its name.
    Sni(String),
    /// The files named by `ssl_cert` and `ssl_cert_key`.
    DefaultCertificate,
    /// The files named by `client_ssl_cert` and `client_ssl_cert_key`.
    ClientCertificate,
    /// A CA certificate entity, or a bundle of CA certificates.
    CaCertificate(Option<Uuid>),
    /// The listeners' TLS settings.
    Settings,
}

/// What is wrong. The message says how to fix it and contains nothing of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The certificate is not PEM, or holds no certificate.
    CertificatePem,
    /// The key is not PEM, is encrypted, or holds no private key.
    KeyPem,
    /// The certificate is PEM, but its content is not usable.
    UnusableCertificate(String),
    /// The key is of a kind that is not supported.
    UnusableKey,
    /// The key is of RSA, of so many bits, and too short to sign with.
    WeakKey(usize),
    /// The key belongs to another certificate.
    KeyMismatch,
    /// One of `cert_alt` and `key_alt` is missing.
    AltIncomplete,
    /// Both certificates have keys of the same type.
    AltSameType,
    /// The SNI names a certificate that does not exist.
    UnknownCertificate(Uuid),
    /// A file cannot be read.
    File(PathBuf, String),
    /// No protocol version is left.
    NoProtocol,
    /// rustls refused it.
    Refused(String),
}

impl TlsError {
    /// What is wrong, behind the field of the subject that it is about.
    pub fn message(&self) -> String {
        let alt = match self.subject {
            Subject::Certificate { alt, .. } => alt,
            Subject::CaCertificate(_) => false,
            _ => return self.problem.to_string(),
        };
        let field = match &self.problem {
            Problem::CertificatePem | Problem::UnusableCertificate(_) => "cert",
            Problem::KeyPem | Problem::UnusableKey | Problem::WeakKey(_) => "key",
            problem if alt => return format!("cert_alt and key_alt: {problem}"),
            problem => return problem.to_string(),
        };
        format!("{field}{}: {}", if alt { "_alt" } else { "" }, self.problem)
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.problem)
    }
}

impl std::error::Error for TlsError {}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate { id, alt: false } => write!(f, "certificate {id}"),
            Self::Certificate { id, alt: true } => write!(f, "certificate {id}, cert_alt and key_alt"),
            Self::Sni(name) => write!(f, "sni {name}"),
            Self::DefaultCertificate => f.write_str("ssl_cert and ssl_cert_key"),
            Self::ClientCertificate => f.write_str("client_ssl_cert and client_ssl_cert_key"),
            Self::CaCertificate(Some(id)) => write!(f, "ca_certificate {id}"),
            Self::CaCertificate(None) => f.write_str("CA certificates"),
            Self::Settings => f.write_str("TLS settings"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CertificatePem => {
                f.write_str("no certificate found (give PEM that starts with -----BEGIN CERTIFICATE-----)")
            }
            Self::KeyPem => f.write_str(
                "no private key found (give an unencrypted PEM key; `openssl pkey -in FILE` decrypts one)",
            ),
            Self::UnusableCertificate(why) => {
                write!(f, "the certificate cannot be used: {why} (`openssl x509 -text -in FILE` shows what it is)")
            }
            Self::UnusableKey => f.write_str(
                "the private key is of an unsupported kind (use RSA of at least 2048 bits, ECDSA P-256, P-384 or \
                 P-521, or Ed25519)",
            ),
            Self::WeakKey(bits) => write!(
                f,
                "an RSA key of {bits} bits can be factored (issue a certificate with a key of 2048 bits or more)"
            ),
            Self::KeyMismatch => f.write_str(
                "the private key does not belong to the certificate (give the key it was issued for, and put the \
                 server's own certificate first in the chain)",
            ),
            Self::AltIncomplete => f.write_str("only one of the two is given (give both or neither)"),
            Self::AltSameType => f.write_str(
                "the key is of the same type as `key` (give an RSA and an ECDSA certificate, or drop the second)",
            ),
            Self::UnknownCertificate(id) => {
                write!(f, "there is no certificate {id} (add it, or name an existing one)")
            }
            Self::File(path, why) => {
                write!(f, "cannot read {}: {why} (check the path and its permissions)", path.display())
            }
            Self::NoProtocol => f.write_str(
                "no protocol version is left (set ssl_protocols to TLSv1.2 and TLSv1.3; the cipher suite `modern` \
                 needs TLSv1.3)",
            ),
            Self::Refused(why) => write!(f, "not accepted: {why}"),
        }
    }
}

//! Whether a data plane is admitted by the certificate that it presents.
use super::{Digest, Ocsp, digest};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::time::Duration;
use weir_net::tls::{Revocation, revocation};

/// How long an OCSP responder may take, as in Kong.
const OCSP_TIMEOUT: Duration = Duration::from_secs(5);

/// A data plane whose certificate was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// When its certificate ends, in seconds since 1970.
    pub expires: Option<i64>,
}

/// Why a peer is refused; the text says how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerError {
    /// It presented no certificate.
    NoCertificate,
    /// It presented another certificate than the shared one, of this digest.
    OtherCertificate(String),
    /// No authority vouches for its certificate.
    Untrusted(String),
    /// Its certificate was revoked.
    Revoked,
    /// Whether its certificate was revoked is unknown.
    RevocationUnknown(String),
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerError::NoCertificate => f.write_str(
                "it presented no certificate: set cluster_cert and cluster_cert_key of the data plane",
            ),
            PeerError::OtherCertificate(digest) => write!(
                f,
                "its certificate (SHA-256 {digest}) is not that of the control plane: give all nodes the same \
                 cluster_cert, or set cluster_mtls=pki"
            ),
            PeerError::Untrusted(why) => write!(
                f,
                "its certificate is refused: {why}: issue one with the authority of the control plane's \
                 cluster_ca_cert"
            ),
            PeerError::Revoked => f.write_str("its certificate was revoked: issue another"),
            PeerError::RevocationUnknown(why) => write!(
                f,
                "whether its certificate was revoked is unknown: {why}: make the responder answer, or set \
                 cluster_ocsp=optional"
            ),
        }
    }
}

impl std::error::Error for PeerError {}

/// Compares the digest of a certificate with that of the shared one.
pub(super) fn check_digest(own: &CertificateDer<'_>, expected: &Digest) -> Result<(), PeerError> {
    let presented = digest(own);
    let equal = verify_slices_are_equal(&presented, expected);
    equal.map_err(|_| PeerError::OtherCertificate(presented.map(|byte| format!("{byte:02x}")).concat()))
}

/// Asks the OCSP responder about a certificate, as the setting says.
pub(super) async fn check_revocation(
    chain: &[CertificateDer<'static>],
    authorities: &[CertificateDer<'static>],
    ocsp: Ocsp,
) -> Result<(), PeerError> {
    if ocsp == Ocsp::Off {
        return Ok(());
    }
    match revocation(chain, authorities, OCSP_TIMEOUT).await {
        Revocation::Good => Ok(()),
        Revocation::Revoked => Err(PeerError::Revoked),
        Revocation::Unknown(why) if ocsp == Ocsp::On => Err(PeerError::RevocationUnknown(why)),
        Revocation::Unknown(why) => {
            tracing::warn!("whether the certificate of a data plane was revoked is unknown: {why}");
            Ok(())
        }
    }
}

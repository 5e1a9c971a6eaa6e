//! Verifies that a control plane has the same certificate as this data plane.
use super::{Digest, digest};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use weir_net::tls::{AcceptAny, check_validity};

/// Accepts the certificate of this digest alone, for as long as it is valid, whatever it says of itself.
#[derive(Debug)]
pub(super) struct PinnedServer(pub(super) Digest);

impl ServerCertVerifier for PinnedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if verify_slices_are_equal(&digest(end_entity), &self.0).is_err() {
            return Err(Error::General(
                "the control plane has another certificate: give all nodes the same cluster_cert, or set \
                 cluster_mtls=pki"
                    .to_owned(),
            ));
        }
        check_validity(end_entity, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls12_signature(&AcceptAny, message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls13_signature(&AcceptAny, message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ServerCertVerifier::supported_verify_schemes(&AcceptAny)
    }
}

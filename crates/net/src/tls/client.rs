//! TLS towards upstreams: verification, client certificates, session resumption.

use super::sessions::{self, Sessions};
use super::{CertifiedKey, HTTP1, Problem, Subject, TlsError, pem, provider};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionStore, Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::verify_tls13_signature_with_raw_key;
use rustls::pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use std::sync::Arc;
use std::time::Duration;
use webpki::{EndEntityCert, KeyUsage, RawPublicKeyEntity};
use x509_parser::time::ASN1Time;

/// How an upstream's certificate is verified: its chain, its validity and its name.
#[derive(Debug, Clone)]
pub struct Verify {
    /// The certificates to trust.
    pub roots: Vec<CertificateDer<'static>>,
    /// How many intermediate certificates may stand between the upstream's certificate and a root.
    pub depth: Option<u8>,
}

/// The configuration for connections to upstreams, one for all services that verify and identify alike: it remembers
/// the sessions that it can resume. A resumed session is not verified again, but none is resumed after its certificate has
/// expired.
///
/// Without `verify`, any certificate is accepted, as Kong does by default; the handshake's signature is still checked
/// against it. `identity` is presented when the upstream asks for a client certificate.
pub fn client_config(
    verify: Option<Verify>,
    identity: Option<Arc<CertifiedKey>>,
) -> Result<Arc<ClientConfig>, TlsError> {
    config(verify, identity, UnixTime::now)
}

/// The same at another time.
pub(super) fn config(
    verify: Option<Verify>,
    identity: Option<Arc<CertifiedKey>>,
    now: fn() -> UnixTime,
) -> Result<Arc<ClientConfig>, TlsError> {
    let (verifier, sessions): (Arc<dyn ServerCertVerifier>, Arc<dyn ClientSessionStore>) = match verify {
        Some(verify) => {
            let sessions = Arc::new(Sessions::new(now));
            (Arc::new(Verifier::new(verify, sessions.clone())?), sessions)
        }
        None => (Arc::new(AcceptAny), Arc::new(sessions::cache())),
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError {
            subject: Subject::Settings,
            problem: Problem::Refused(error.to_string()),
        })?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        Some(key) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key))),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![HTTP1.to_vec()];
    config.resumption = Resumption::store(sessions);
    Ok(Arc::new(config))
}

/// The methods of a verifier that are about signatures, as those of another.
macro_rules! signatures_verified_by {
    (|$self:ident| $other:expr) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let $self = self;
            ServerCertVerifier::verify_tls12_signature($other, message, cert, signed)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let $self = self;
            ServerCertVerifier::verify_tls13_signature($other, message, cert, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            let $self = self;
            ServerCertVerifier::supported_verify_schemes($other)
        }
    };
}

/// Accepts any certificate, but only from a server that holds its key.
///
/// The certificate is read no further than to its public key, so that old version 1 certificates work too.
#[derive(Debug)]
pub struct AcceptAny;

/// Of clients too: which authorities are asked about them is for the route to say.
impl ClientCertVerifier for AcceptAny {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    signatures_verified_by!(|verifier| verifier);
}

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let spki = pem::public_key(cert).ok_or_else(bad_encoding)?;
        let entity = RawPublicKeyEntity::try_from(&spki).map_err(|_| bad_encoding())?;
        let provider = provider();
        let mapping = provider.signature_verification_algorithms.mapping;
        let algorithms =
            mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme).flat_map(|(_, all)| *all);
        let verifies = |algorithm: &&dyn SignatureVerificationAlgorithm| {
            entity.verify_signature(*algorithm, message, signed.signature()).is_ok()
        };
        if algorithms.into_iter().any(verifies) {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(Error::InvalidCertificate(CertificateError::BadSignature))
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let spki = pem::public_key(cert).ok_or_else(bad_encoding)?;
        verify_tls13_signature_with_raw_key(
            message,
            &spki,
            signed,
            &provider().signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

fn bad_encoding() -> Error {
    Error::InvalidCertificate(CertificateError::BadEncoding)
}

/// Verifies as rustls does, limits the length of the chain, and takes a certificate that is itself trusted: the usual
/// self-signed one, which rustls refuses as it stands at both ends of its chain.
#[derive(Debug)]
struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
    roots: Vec<TrustAnchor<'static>>,
    depth: Option<u8>,
    sessions: Arc<Sessions>,
}

impl Verifier {
    fn new(verify: Verify, sessions: Arc<Sessions>) -> Result<Self, TlsError> {
        let refused = |error: String| TlsError {
            subject: Subject::CaCertificate(None),
            problem: Problem::UnusableCertificate(error),
        };
        let mut store = RootCertStore::empty();
        for root in &verify.roots {
            store.add(root.clone()).map_err(|error| refused(error.to_string()))?;
        }
        let roots = store.roots.clone();
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider())
            .build()
            .map_err(|error| refused(error.to_string()))?;
        Ok(Self { inner, trusted: verify.roots, roots, depth: verify.depth, sessions })
    }

    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.trusted.contains(end_entity) {
            check_validity(end_entity, now)?;
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        let verified = self.inner.verify_server_cert(end_entity, intermediates, name, ocsp, now)?;
        match self.depth.map(usize::from) {
            // A path cannot be longer than the chain that was sent.
            Some(depth) if intermediates.len() > depth => {
                self.check_depth(end_entity, intermediates, now, depth)?;
            }
            _ => {}
        }
        Ok(verified)
    }

    /// Whether there is a path to a root that is short enough.
    fn check_depth(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        depth: usize,
    ) -> Result<(), Error> {
        let cert = EndEntityCert::try_from(end_entity).map_err(|_| bad_encoding())?;
        let short = |path: &webpki::VerifiedPath<'_>| {
            let length = path.intermediate_certificates().count();
            if length <= depth { Ok(()) } else { Err(webpki::Error::MaximumPathDepthExceeded) }
        };
        let algorithms = provider().signature_verification_algorithms.all;
        let usage = KeyUsage::server_auth();
        cert.verify_for_usage(algorithms, &self.roots, intermediates, now, usage, None, Some(&short))
            .map(drop)
            .map_err(|_| Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }
}

/// Why an upstream is refused whose certificate says neither whom it is for nor what.
pub(crate) const OLD_VERSION: &str = "the upstream's certificate is of X.509 version 1 and cannot be verified: issue one of \
                           version 3 with a subjectAltName, or set `tls_verify: false`";

/// The first and the last moment at which a certificate is valid.
pub(super) fn validity(cert: &CertificateDer<'_>) -> Result<(UnixTime, UnixTime), Error> {
    let (_, cert) = x509_parser::parse_x509_certificate(cert).map_err(|_| bad_encoding())?;
    let at = |time: ASN1Time| {
        UnixTime::since_unix_epoch(Duration::from_secs(time.timestamp().try_into().unwrap_or_default()))
    };
    Ok((at(cert.validity().not_before), at(cert.validity().not_after)))
}

/// Whether a certificate is valid at this time.
pub fn check_validity(cert: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (not_before, not_after) = validity(cert)?;
    if now < not_before {
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    if now > not_after {
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    Ok(())
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.verify(end_entity, intermediates, name, ocsp, now);
        let verified = verified.inspect(|_| self.sessions.verified(name, end_entity));
        verified.map_err(|error| match pem::is_old(end_entity) {
            true => Error::General(OLD_VERSION.to_owned()),
            false => error,
        })
    }

    signatures_verified_by!(|verifier| &*verifier.inner);
}

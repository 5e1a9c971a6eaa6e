//! TLS on the listeners that operators connect to, such as the Admin API's.

use super::{CertifiedKey, HTTP1, HTTP2, Problem, Subject, TlsError, TlsOptions, provider};
use rustls::pki_types::CertificateDer;
use rustls::server::{WantsServerCert, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{ConfigBuilder, RootCertStore, ServerConfig};
use std::sync::Arc;

/// The configuration of such a listener: one certificate for every name. With authorities, a client that presents a
/// certificate of another one is refused. A client without a certificate is accepted, so that the listener can answer
/// it with the reason for which it gets no further. `http2` offers HTTP/2 too.
pub fn server_config(
    options: &TlsOptions,
    certificate: Arc<CertifiedKey>,
    authorities: Option<Vec<CertificateDer<'static>>>,
    http2: bool,
) -> Result<Arc<ServerConfig>, TlsError> {
    let builder =
        builder(options, authorities).map_err(|problem| TlsError { subject: Subject::Settings, problem })?;
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certificate)));
    let offered: &[&[u8]] = if http2 { &[HTTP2, HTTP1] } else { &[HTTP1] };
    config.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

fn builder(
    options: &TlsOptions,
    authorities: Option<Vec<CertificateDer<'static>>>,
) -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, Problem> {
    let versions = options.versions();
    if versions.is_empty() {
        return Err(Problem::NoProtocol);
    }
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&versions)
        .map_err(|error| Problem::Refused(error.to_string()))?;
    let Some(authorities) = authorities else { return Ok(builder.with_no_client_auth()) };
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| Problem::UnusableCertificate(error.to_string()))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let verifier = verifier.allow_unauthenticated().build();
    let verifier = verifier.map_err(|error| Problem::Refused(error.to_string()))?;
    Ok(builder.with_client_cert_verifier(verifier))
}

//! TLS between the nodes of a fleet, from the settings.
use crate::settings::{ClusterMtls, ClusterOcsp, Pem, Role, Settings, trusted_certificate_files};
use crate::start_error::StartError;
use std::sync::Arc;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;
use weir_cluster::connect::ForwardProxy;
use weir_cluster::tls::{Identity, Ocsp, TlsError, Trust};
use weir_net::tls::{Verify, ca_certificates, client_config};

/// The node's certificate, and how it verifies others.
pub(super) fn identity_and_trust(settings: &Settings) -> Result<(Identity, Trust), StartError> {
    Ok((identity(settings)?, trust(settings)?))
}

/// The node's certificate.
pub(super) fn identity(settings: &Settings) -> Result<Identity, StartError> {
    let certificate = text("cluster_cert", settings.cluster_cert.as_ref())?;
    let key = text("cluster_cert_key", settings.cluster_cert_key.as_ref())?;
    Identity::read(&certificate, &key).map_err(StartError::Cluster)
}

fn trust(settings: &Settings) -> Result<Trust, StartError> {
    if settings.cluster_mtls == ClusterMtls::Shared {
        return Ok(Trust::Shared);
    }
    let ocsp = match settings.cluster_ocsp {
        ClusterOcsp::Off => Ocsp::Off,
        ClusterOcsp::Optional => Ocsp::Optional,
        ClusterOcsp::On => Ocsp::On,
    };
    let (authorities, server_name) = (cluster_authorities(settings)?, settings.cluster_server_name.clone());
    Ok(Trust::Pki { authorities, server_name, ocsp })
}

/// Those of `cluster_ca_cert`. A data plane trusts what the node trusts elsewhere, too.
fn cluster_authorities(settings: &Settings) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let is_data_plane = settings.role == Role::DataPlane;
    let mut roots = if is_data_plane { authorities(settings)?.roots } else { Vec::new() };
    if !is_data_plane || settings.cluster_ca_cert.is_some() {
        let own = ca_certificates(&text("cluster_ca_cert", settings.cluster_ca_cert.as_ref())?);
        let problem = |error: weir_net::tls::TlsError| TlsError::Authorities(error.problem.to_string());
        roots.extend(own.map_err(problem).map_err(StartError::Cluster)?);
    }
    Ok(roots)
}

/// The text of a setting that the role demands.
fn text(name: &'static str, pem: Option<&Pem>) -> Result<String, StartError> {
    let text = pem.map_or_else(|| Err("it is not set".to_owned()), Pem::text);
    text.map_err(|why| StartError::Cluster(TlsError::Refused(format!("{name}: {why}"))))
}

/// The forward proxy, with what it is reached with over TLS.
pub(super) fn proxy(settings: &Settings) -> Result<Option<(ForwardProxy, Arc<ClientConfig>)>, StartError> {
    let Some(proxy) = settings.proxy_server.clone().filter(|_| settings.cluster_use_proxy) else {
        return Ok(None);
    };
    let verify = (settings.proxy_server_ssl_verify && proxy.is_https).then(|| authorities(settings));
    let config = client_config(verify.transpose()?, None).map_err(StartError::Tls)?;
    Ok(Some((proxy, config)))
}

fn authorities(settings: &Settings) -> Result<Verify, StartError> {
    let mut roots = Vec::new();
    for path in trusted_certificate_files(&settings.lua_ssl_trusted_certificate) {
        let pem = std::fs::read_to_string(&path).map_err(|error| StartError::Setting {
            name: "lua_ssl_trusted_certificate",
            value: path.display().to_string(),
            error,
        })?;
        roots.extend(ca_certificates(&pem).map_err(StartError::Tls)?);
    }
    Ok(Verify { roots, depth: None })
}

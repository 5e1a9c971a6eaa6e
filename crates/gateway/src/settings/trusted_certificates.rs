//! Which files hold the authorities that a node trusts.
use std::path::PathBuf;
use weir_net::tls::{Verify, ca_certificates};

/// The files that certificates of upstreams are checked against: those named, and for `system` the distribution's.
pub(crate) fn trusted_certificate_files(names: &[String]) -> Vec<PathBuf> {
    const SYSTEM: [&str; 4] = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];
    let file = |name: &String| match name.as_str() {
        "system" => SYSTEM.iter().map(PathBuf::from).find(|path| path.exists()),
        path => Some(PathBuf::from(path)),
    };
    names.iter().filter_map(file).collect()
}

/// Verification against the authorities that the system trusts.
pub(crate) fn verify_by_system() -> Verify {
    let files = trusted_certificate_files(&["system".to_owned()]);
    let pems = files.iter().filter_map(|path| std::fs::read_to_string(path).ok());
    Verify { roots: pems.filter_map(|pem| ca_certificates(&pem).ok()).flatten().collect(), depth: None }
}

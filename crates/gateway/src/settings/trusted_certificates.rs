//! Which files hold the authorities that a node trusts.
use std::path::PathBuf;

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

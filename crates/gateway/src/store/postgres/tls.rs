//! Whether connections use TLS, and what is verified.
use super::super::StoreError;
use crate::settings::{Settings, trusted_certificate_files};
use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// The options with TLS as the settings ask for it.
pub(super) fn with_tls(
    options: PgConnectOptions,
    settings: &Settings,
) -> Result<PgConnectOptions, StoreError> {
    Ok(match (settings.pg_ssl, settings.pg_ssl_verify, settings.pg_ssl_required) {
        (false, ..) => options.ssl_mode(PgSslMode::Disable),
        (true, true, _) => {
            let authorities = authorities(&settings.lua_ssl_trusted_certificate)?;
            options.ssl_mode(PgSslMode::VerifyFull).ssl_root_cert_from_pem(authorities)
        }
        (true, false, true) => options.ssl_mode(PgSslMode::Require),
        (true, false, false) => options.ssl_mode(PgSslMode::Prefer),
    })
}

/// The certificates of all authorities that are trusted, in PEM.
fn authorities(names: &[String]) -> Result<Vec<u8>, StoreError> {
    let mut pem = Vec::new();
    for path in trusted_certificate_files(names) {
        let file = std::fs::read(&path).map_err(|error| {
            let path = path.display();
            StoreError::Broken(format!("lua_ssl_trusted_certificate: {path}: {error}: name a readable file"))
        })?;
        pem.extend(file);
        pem.push(b'\n');
    }
    Ok(pem)
}

//! The token that lets clients on other machines debug the timing of requests.
use crate::prefix::PrefixError;
use crate::settings::{Password, Settings};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use weir_model::Uuid;

const FILE: &str = ".request_debug_token";

/// Generates the token if it is needed, and writes it to its file.
pub(crate) fn place_token(settings: &mut Settings, prefix: &Path) -> Result<(), PrefixError> {
    let path = prefix.join(FILE);
    let failed = |error| PrefixError::Io { path: path.clone(), error };
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    if !settings.request_debug {
        return Ok(());
    }
    let token = settings.request_debug_token.get_or_insert_with(|| Password(Uuid::new_v4().to_string()));
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    file.and_then(|mut file| file.write_all(token.0.as_bytes())).map_err(failed)?;
    tracing::info!(file = %path.display(), "[request-debug] the token for request debugging is in this file");
    Ok(())
}

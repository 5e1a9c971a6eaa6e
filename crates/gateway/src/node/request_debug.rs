//! The token that lets clients on other machines debug the timing of requests.
use crate::prefix::PrefixError;
use crate::settings::{Password, Settings};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use weir_model::Uuid;

const FILE: &str = ".request_debug_token";

/// Generates the token if it is needed and not set. A process that replaces another one goes on with the token of that one.
pub(crate) fn choose_token(settings: &mut Settings, prefix: &Path, replaces: bool) {
    if !settings.request_debug || settings.request_debug_token.is_some() {
        return;
    }
    let known = || fs::read_to_string(prefix.join(FILE)).ok().filter(|token| !token.is_empty());
    let token = replaces.then(known).flatten().unwrap_or_else(|| Uuid::new_v4().to_string());
    settings.request_debug_token = Some(Password(token));
}

/// Writes the token to its file, or removes the file of another process's token.
pub(crate) fn write_token(settings: &Settings, prefix: &Path) -> Result<(), PrefixError> {
    let path = prefix.join(FILE);
    let failed = |error| PrefixError::Io { path: path.clone(), error };
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let Some(token) = settings.request_debug_token.as_ref().filter(|_| settings.request_debug) else {
        return Ok(());
    };
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    file.and_then(|mut file| file.write_all(token.0.as_bytes())).map_err(failed)?;
    tracing::info!(file = %path.display(), "[request-debug] the token for request debugging is in this file");
    Ok(())
}

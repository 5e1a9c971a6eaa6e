//! `weir hybrid`: the certificate that the nodes of a fleet share.
use super::print;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;
use std::time::Duration;
use weir_cluster::tls::generate;

/// How long a certificate is valid, in days, unless the command line says otherwise: three years.
const DEFAULT_DAYS: u32 = 1095;

/// The longest time that a certificate may be valid, in days: a century.
const MAX_DAYS: u32 = 36_500;

/// Generates a certificate and its key, and writes them to files that do not exist yet.
pub(super) fn gen_cert(files: &[PathBuf], days: Option<u32>) -> Result<ExitCode, String> {
    let [cert, key] = match files {
        [] => [PathBuf::from("cluster.crt"), PathBuf::from("cluster.key")],
        [cert, key] => [cert.clone(), key.clone()],
        _ => return Err("both cert and key path needs to be provided".to_owned()),
    };
    let [cert, key] = [absolute(&cert), absolute(&key)].map(|path| path.map_err(|error| error.to_string()));
    let (cert, key) = (cert?, key?);
    if let Some(existing) = [&cert, &key].into_iter().find(|path| path.exists()) {
        return Err(exists(existing));
    }
    let days = match days.unwrap_or(DEFAULT_DAYS) {
        days @ 1..=MAX_DAYS => days,
        days => return Err(format!("--days {days}: write a number from 1 to {MAX_DAYS}")),
    };
    let generated = generate(Duration::from_secs(u64::from(days) * 24 * 60 * 60));
    let generated = generated.map_err(|error| format!("the certificate was not generated: {error}"))?;
    write(&cert, 0o644, &generated.certificate)?;
    write(&key, 0o600, &generated.key)?;
    print(&format!(
        "Successfully generated certificate/key pairs, they have been written to: '{}' and '{}'.\n",
        cert.display(),
        key.display()
    ))
}

fn exists(path: &Path) -> String {
    format!("{} already exists.\nWill not overwrite it.", path.display())
}

/// The process's mask may forbid more than the mode does.
fn write(path: &Path, mode: u32, text: &str) -> Result<(), String> {
    let created = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = created.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => format!("{}: {error}: name a file that can be written", path.display()),
    })
}

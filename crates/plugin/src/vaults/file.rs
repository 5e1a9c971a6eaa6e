//! The vault `file`: files below one folder.
use super::Vault;
use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Component, Path, PathBuf};
use weir_model::SecretReference;

/// The largest secret.
const MAX_SECRET_LEN: u64 = 1024 * 1024;

/// Secrets in files: `db/password` is that file below the folder. A line break at its end is left out.
pub struct FileVault(PathBuf);

impl Default for FileVault {
    fn default() -> Self {
        Self(PathBuf::from("/run/secrets"))
    }
}

impl FileVault {
    /// Of the files below this folder.
    pub fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    fn read(&self, path: &Path) -> Result<String, Cow<'static, str>> {
        let shown = || path.display();
        let full = self.0.join(path);
        let failed = |error| unreadable(&full, &error, "put the secret there, or set vault_file_directory");
        let folder = self.0.canonicalize().map_err(failed)?;
        // Links are followed, because Kubernetes provides secrets by them, but not to elsewhere.
        let found = folder.join(path).canonicalize().map_err(failed)?;
        if !found.starts_with(&folder) {
            return Err(format!("{}: is outside of {}", shown(), self.0.display()).into());
        }
        let read = || -> io::Result<Option<String>> {
            if !fs::metadata(&found)?.is_file() {
                return Ok(None);
            }
            let mut text = String::new();
            let length = File::open(&found)?.take(MAX_SECRET_LEN + 1).read_to_string(&mut text)?;
            Ok((length as u64 <= MAX_SECRET_LEN).then_some(text))
        };
        match read() {
            Ok(Some(text)) => Ok(without_line_break(text)),
            Ok(None) => Err(format!("{}: is no file of at most {MAX_SECRET_LEN} bytes", shown()).into()),
            Err(error) => Err(failed(error)),
        }
    }
}

impl Vault for FileVault {
    fn get(&self, reference: &SecretReference) -> Result<String, Cow<'static, str>> {
        let prefix = reference.option("prefix").unwrap_or_default();
        let path = PathBuf::from(format!("{prefix}{}", reference.resource));
        if !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(format!("{}: write a path below {}", path.display(), self.0.display()).into());
        }
        self.read(&path)
    }
}

/// Why a file cannot be read, and for a missing one what to do.
pub(super) fn unreadable(path: &Path, error: &io::Error, hint: &str) -> Cow<'static, str> {
    let path = path.display();
    match error.kind() {
        ErrorKind::NotFound => format!("{path}: no such file; {hint}").into(),
        ErrorKind::InvalidData => format!("{path}: is not a text in UTF-8").into(),
        kind => format!("{path}: {kind}").into(),
    }
}

fn without_line_break(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

//! The key of APISIX's Admin API. There is no default key: without one in the settings, a random key is generated,
//! shown once, and stored as a hash in the prefix.
use super::value::{SECRET, Value};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weir_model::Uuid;

/// The key, as its hash.
#[derive(Clone)]
pub(crate) struct AdminKey([u8; 32]);

impl fmt::Debug for AdminKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminKey(…)")
    }
}

impl Value for AdminKey {
    const KIND: &'static str = "text";
    fn parse(text: &str) -> Result<Self, String> {
        Ok(AdminKey::new(text))
    }
    fn shown(_: &str) -> serde_json::Value {
        SECRET.into()
    }
}

/// The file with the hash of a generated key.
pub(crate) fn file(prefix: &Path) -> PathBuf {
    prefix.join("apisix_admin_key.sha256")
}

impl AdminKey {
    /// The key of this text.
    pub(crate) fn new(text: &str) -> AdminKey {
        AdminKey(Sha256::digest(text).into())
    }

    /// Whether this is the key. Compares hashes, so that the time reveals nothing about the key.
    pub(crate) fn is(&self, given: &str) -> bool {
        AdminKey::new(given).0 == self.0
    }

    /// The key that an earlier start generated, or a new one, which is shown once.
    pub(crate) fn generated(prefix: &Path, show: &mut dyn Write) -> io::Result<AdminKey> {
        let path = file(prefix);
        match read(&path)? {
            Some(key) => Ok(key),
            None => {
                let text = Uuid::new_v4().simple().to_string();
                let key = AdminKey::new(&text);
                write(&path, &key)?;
                writeln!(show, "apisix_admin_key: {text} (generated now, and not shown again)")?;
                Ok(key)
            }
        }
    }
}

fn read(path: &Path) -> io::Result<Option<AdminKey>> {
    let mut file = match OpenOptions::new().read(true).custom_flags(nofollow()).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let bytes = |text: &str| {
        let pairs = text
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        <[u8; 32]>::try_from(pairs.collect::<Option<Vec<u8>>>()?).ok()
    };
    match bytes(text.trim()) {
        Some(hash) => Ok(Some(AdminKey(hash))),
        None => Err(io::Error::other("holds no hash: remove it, and a new key is generated")),
    }
}

fn write(path: &Path, key: &AdminKey) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(nofollow()).open(path)?;
    let hash: String = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(file, "{hash}")?;
    file.sync_all()
}

/// Otherwise another user could choose by a link which file is read or written.
fn nofollow() -> i32 {
    OFlags::NOFOLLOW.bits().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_generated_once_and_stored_as_a_hash() {
        let folder = tempfile::tempdir().unwrap();
        let mut shown = Vec::new();
        let first = AdminKey::generated(folder.path(), &mut shown).unwrap();
        let shown = String::from_utf8(shown).unwrap();
        let text = shown.split(' ').nth(1).unwrap();
        assert_eq!(text.len(), 32);
        assert!(first.is(text) && !first.is("edd1c9f034335f136f87ad84b625c8f1"));
        let kept = std::fs::read_to_string(file(folder.path())).unwrap();
        assert!(!kept.contains(text), "{kept}");
        let mut nothing = Vec::new();
        assert!(AdminKey::generated(folder.path(), &mut nothing).unwrap().is(text));
        assert!(nothing.is_empty());
    }

    #[test]
    fn a_file_that_holds_something_else_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(file(folder.path()), "x").unwrap();
        let error = AdminKey::generated(folder.path(), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("remove it"), "{error}");
    }
}

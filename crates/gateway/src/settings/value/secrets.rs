//! Secret values, which no message repeats.

use super::{SECRET, Value};
use std::fmt;
use std::path::PathBuf;

/// The file of a private key. A value that names no file may be a key itself, so messages do not repeat it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KeyFile(pub(crate) PathBuf);

impl Value for KeyFile {
    const KIND: &'static str = "path";
    fn parse(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        if path.is_file() {
            Ok(KeyFile(path))
        } else if text.starts_with(['/', '.']) {
            Err(format!("{text}: no such file: name one that holds the private key as PEM"))
        } else {
            // A value that is no path may be the key itself.
            Err("no such file: name one that holds the private key as PEM".to_owned())
        }
    }
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFile(…)")
    }
}

/// A password, which no message repeats.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Password(pub(crate) String);

impl Value for Password {
    const KIND: &'static str = "text";
    fn parse(text: &str) -> Result<Self, String> {
        Ok(Password(text.to_owned()))
    }
    fn shown(_: &str) -> serde_json::Value {
        SECRET.into()
    }
    /// Spaces may be part of it.
    fn read(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// A declarative configuration. It may hold secrets, so Debug shows none of it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct DeclarativeText(pub(crate) String);

impl Value for DeclarativeText {
    const KIND: &'static str = "YAML or JSON";
    fn parse(text: &str) -> Result<Self, String> {
        Ok(DeclarativeText(text.to_owned()))
    }
    fn shown(_: &str) -> serde_json::Value {
        SECRET.into()
    }
    /// Not trimmed, because messages count lines and columns from the start.
    fn read(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

impl fmt::Debug for DeclarativeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeclarativeText(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_key_in_place_of_its_file_is_not_repeated() {
        assert!(!KeyFile::parse("hunter2").unwrap_err().contains("hunter2"));
    }
}

//! What is in the header: `hmac username="…", algorithm="…", headers="…", signature="…"`.

use regex::bytes::Regex;
use std::sync::LazyLock;

/// The parts of one header.
pub(super) struct Parameters<'a> {
    pub(super) username: &'a [u8],
    pub(super) algorithm: &'a [u8],
    headers: &'a [u8],
    /// In base64.
    pub(super) signature: &'a [u8],
}

/// As Kong reads it: in this order, wherever it stands.
static FORM: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let form = r#"(?-u)[Hh]mac\s*username="(.+)",\s*algorithm="(.+)",\s*headers="(.+)",\s*signature="(.+)""#;
    Regex::new(form).ok()
});

impl<'a> Parameters<'a> {
    pub(super) fn parse(header: &'a [u8]) -> Option<Self> {
        let captures = FORM.as_ref()?.captures(header)?;
        let part = |index| captures.get(index).map(|part| part.as_bytes());
        Some(Self { username: part(1)?, algorithm: part(2)?, headers: part(3)?, signature: part(4)? })
    }

    /// The names of what is signed, in order.
    pub(super) fn headers(&self) -> impl Iterator<Item = &'a [u8]> {
        self.headers.split(|byte| *byte == b' ')
    }
}

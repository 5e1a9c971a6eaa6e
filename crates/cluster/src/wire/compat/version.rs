//! Versions of Kong.
use super::Incompatible;
use crate::wire::data_plane::SyncStatus;
use crate::wire::payload::ConfigTable;
use serde::Deserialize;
use std::fmt;

/// A version of Kong or of a plugin: up to four numbers. What follows them is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct KongVersion([u32; 4]);

impl KongVersion {
    /// The version that the protocols here are of.
    pub const CURRENT: KongVersion = KongVersion([3, 9, 3, 0]);

    /// Reads a version, which has three numbers at least.
    pub fn parse(text: &str) -> Option<KongVersion> {
        let mut numbers = [0; 4];
        for (place, part) in text.splitn(4, '.').enumerate() {
            let digits = part.len() - part.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
            match part[..digits].parse() {
                Ok(number) => numbers[place] = number,
                Err(_) if place < 3 => return None,
                Err(_) => {}
            }
            if digits < part.len() {
                return (place >= 2).then_some(KongVersion(numbers));
            }
        }
        (text.split('.').count() >= 3).then_some(KongVersion(numbers))
    }

    /// The first number.
    pub fn major(self) -> u32 {
        self.0[0]
    }

    /// The second number.
    pub fn minor(self) -> u32 {
        self.0[1]
    }
}

impl fmt::Display for KongVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch, _] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl TryFrom<String> for KongVersion {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        KongVersion::parse(&text).ok_or_else(|| format!("expected a version such as 3.9.0, got {text:?}"))
    }
}

/// Whether a data plane of this version may connect: it is of the same major version, and its minor version is not newer.
///
/// # Errors
/// If it may not.
pub fn check_version(control_plane: KongVersion, data_plane: &str) -> Result<KongVersion, Incompatible> {
    let refuse = |message| Err(Incompatible { status: SyncStatus::KongVersionIncompatible, message });
    let shown = weir_model::schema::quoted(data_plane);
    match KongVersion::parse(data_plane) {
        None => refuse(format!(
            "the data plane's version `{shown}` is not understood: expected one such as {control_plane}"
        )),
        Some(version) if version.major() != control_plane.major() => refuse(format!(
            "the data plane's version {shown} does not go with {control_plane} of the control plane: run {}.x on both",
            control_plane.major()
        )),
        Some(version) if version.minor() > control_plane.minor() => refuse(format!(
            "the data plane's version {shown} is newer than {control_plane} of the control plane: upgrade the control plane \
             first"
        )),
        Some(version) => Ok(version),
    }
}

/// The first version whose router takes routes with expressions beside others.
const MIXED_ROUTES: KongVersion = KongVersion([3, 7, 0, 0]);

/// Whether the router of a data plane of this version takes the routes together.
///
/// # Errors
/// If it does not.
pub fn check_routes(table: &ConfigTable<'_>, data_plane: KongVersion) -> Result<(), Incompatible> {
    if data_plane >= MIXED_ROUTES || !table.has_mixed_routes() {
        return Ok(());
    }
    let message = format!(
        "routes with expressions stand beside routes without, which data planes older than Kong {MIXED_ROUTES} do not take: \
         write all of one kind, or upgrade the data plane"
    );
    Err(Incompatible { status: SyncStatus::KongVersionIncompatible, message })
}

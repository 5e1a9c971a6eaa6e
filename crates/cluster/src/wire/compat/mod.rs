//! Which data planes of Kong may have a configuration, and what is changed in it for older ones.
mod plugins;
mod rules;
#[cfg(test)]
mod tests;
mod version;

pub use plugins::{LoadedPlugin, check_plugins};
pub use rules::{Alteration, Rules};
pub use version::{KongVersion, check_routes, check_version};

use super::data_plane::SyncStatus;
use std::fmt;

/// Why a data plane gets no configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incompatible {
    /// What Kong calls it.
    pub status: SyncStatus,
    /// The versions, and what to do.
    pub message: String,
}

impl fmt::Display for Incompatible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Incompatible {}

//! Whether a data plane has the plugins that are configured.
use super::{Incompatible, KongVersion};
use crate::wire::data_plane::SyncStatus;
use serde::{Deserialize, Serialize};

/// A plugin that a data plane has loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedPlugin {
    /// Its name.
    pub name: String,
    /// Its version, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Whether a data plane has each configured plugin, in a version that is not newer than the control plane's.
///
/// # Errors
/// Names the first plugin that it lacks, or has in another version.
pub fn check_plugins<'p>(
    configured: impl IntoIterator<Item = &'p str>,
    control_plane: KongVersion,
    data_plane: &[LoadedPlugin],
) -> Result<(), Incompatible> {
    let mut configured: Vec<_> = configured.into_iter().collect();
    configured.sort_unstable();
    for name in configured {
        let Some(loaded) = data_plane.iter().find(|plugin| plugin.name == name) else {
            return Err(Incompatible {
                status: SyncStatus::PluginSetIncompatible,
                message: format!(
                    "the data plane does not have the plugin `{name}`, which is configured: load it there, or delete \
                     its configurations"
                ),
            });
        };
        let Some(version) = loaded.version.as_deref().and_then(KongVersion::parse) else { continue };
        // OpenTelemetry's plugin once had a version of its own.
        let is_early = name == "opentelemetry" && (version.major(), version.minor()) == (0, 1);
        let is_other = version.major() != control_plane.major() || version.minor() > control_plane.minor();
        if is_other && !is_early {
            return Err(Incompatible {
                status: SyncStatus::PluginVersionIncompatible,
                message: format!(
                    "the data plane's version {version} of the plugin `{name}`, which is configured, does not go with \
                     {control_plane} of the control plane: upgrade the control plane first"
                ),
            });
        }
    }
    Ok(())
}

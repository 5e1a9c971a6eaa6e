//! The id of a data plane, which its control plane knows it by, over restarts too.
use crate::prefix::PrefixError;
use crate::settings::{Role, Settings};
use std::fs;
use std::path::Path;
use weir_model::Uuid;

const FILE: &str = "kong.id";

/// Puts the id of the file into the settings of a data plane without one. The first start generates it; a file that
/// holds something else is replaced.
pub(super) fn place(settings: &mut Settings, prefix: &Path) -> Result<(), PrefixError> {
    if settings.role != Role::DataPlane {
        return Ok(());
    }
    let path = prefix.join(FILE);
    let stored = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
    let id = settings.node_id.or(stored).unwrap_or_else(Uuid::new_v4);
    settings.node_id = Some(id);
    if stored == Some(id) {
        return Ok(());
    }
    fs::write(&path, id.to_string()).map_err(|error| PrefixError::Io { path, error })
}

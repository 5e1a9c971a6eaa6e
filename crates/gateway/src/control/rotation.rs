//! The rotation of secrets: vaults are asked again, and the configuration is compiled with what has changed.
use crate::data_plane::DataPlane;
use crate::registry::Registry;
use crate::threads::spawn_low_priority;
use std::sync::Arc;
use std::time::Duration;
use weir_plugin::Vaults;

/// Rotates secrets at this interval for as long as the node runs; never, if it is 0.
pub(super) fn start(plane: Arc<DataPlane>, registry: Arc<Registry>, interval: Duration) {
    if interval.is_zero() {
        return;
    }
    tokio::spawn(async move {
        let vaults = plane.compiler.retained.get::<Vaults>();
        loop {
            tokio::time::sleep(interval).await;
            if vaults.are_unused() {
                continue;
            }
            let rotating = vaults.clone();
            if let Ok(true) = spawn_low_priority("weir-vaults", move || rotating.rotate()).await {
                tracing::info!("secrets of vaults have changed: the configuration is compiled with them");
                registry.refresh().await;
            }
        }
    });
}

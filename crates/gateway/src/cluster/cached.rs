//! What a data plane starts with: the configuration that it received last, if its cache has one.
//!
//! The rule at the start: what the cache holds; else the declarative file, if there is one; else nothing. What a control
//! plane sends replaces either.
use crate::prefix;
use crate::settings::{Role, Settings};
use weir_cluster::cache::{Cache, Opened};
use weir_cluster::data_plane::Stored;
use weir_model::{Document, PluginSchema};
use weir_proxy::{Compiler, Snapshot};

/// The folder of the cache in `prefix`.
const FOLDER: &str = "cluster_cache";

/// A configuration of the cache, ready to be served.
pub(crate) struct Cached {
    pub(crate) document: Document,
    pub(crate) hash: String,
    pub(crate) snapshot: Snapshot,
}

/// Opens the cache of a data plane. What cannot be used is logged, and never keeps the node from starting.
pub(crate) fn open(
    settings: &Settings,
    plugins: &[PluginSchema],
    compiler: &Compiler,
) -> (Option<Cached>, Stored) {
    let folder = prefix::or_default(settings.prefix.clone()).map(|prefix| prefix.join(FOLDER));
    let Some(folder) = folder.ok().filter(|_| settings.role == Role::DataPlane) else {
        return (None, Stored::default());
    };
    let Opened { cache, loaded, warnings } = match Cache::open(&folder, plugins.into()) {
        Ok(opened) => opened,
        Err(error) => {
            tracing::error!("the configuration will not survive a restart: {error}");
            return (None, Stored::default());
        }
    };
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let mut stored = Stored { cache: Some(cache), active: None };
    let Some(loaded) = loaded else { return (None, stored) };
    match compiler.compile(&loaded.document) {
        Ok(snapshot) => {
            tracing::info!(revision = loaded.identity.sequence, "the configuration of the cache is active");
            let hash = loaded.identity.digest.to_string();
            stored.active = Some((loaded.identity, loaded.inventory));
            (Some(Cached { document: loaded.document, hash, snapshot }), stored)
        }
        Err(errors) => {
            errors.iter().for_each(|error| tracing::error!("{error}"));
            tracing::error!("the configuration of the cache is not used: the control plane sends another");
            (None, stored)
        }
    }
}

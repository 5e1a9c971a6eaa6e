//! What the node's settings say of Lua.

use crate::files::PluginFiles;
use serde_json::{Map, Value as Json};
use std::sync::Arc;
use std::time::Duration;

/// Whether code of a configuration runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UntrustedLua {
    /// It does not.
    Off,
    /// In a sandbox.
    #[default]
    Sandbox,
    /// With all that plugins may do.
    On,
}

/// What the node's settings say of Lua. The node provides it before the first plugin is built.
#[derive(Debug, Clone)]
pub struct LuaSettings {
    /// Whether code of a configuration runs.
    pub untrusted: UntrustedLua,
    /// Modules that the sandbox may require.
    pub sandbox_requires: Vec<String>,
    /// Globals that the sandbox sees: names, perhaps with dots.
    pub sandbox_environment: Vec<String>,
    /// How much CPU time the calls for one request may take.
    pub timeout: Duration,
    /// How many bytes one VM may take.
    pub memory: usize,
    /// Plugins and modules on disk.
    pub files: Arc<PluginFiles>,
    /// Whether code of the operator may open files: not that of plugins which are only checked, because they may be anybody's.
    pub opens_files: bool,
    /// How many bytes each dictionary for cached entities may take.
    pub cache_memory: usize,
    /// Further shared dictionaries, with their bytes.
    pub shared_dicts: Vec<(String, usize)>,
    /// How often the node looks for events of others.
    pub update_interval: Duration,
    /// The node's folder, with a slash at its end.
    pub prefix: String,
}

/// The settings of the node as code sees them, by their names: none that holds a secret. The node provides it.
#[derive(Debug, Default)]
pub struct NodeConfiguration(pub Map<String, Json>);

impl Default for LuaSettings {
    fn default() -> Self {
        Self {
            untrusted: UntrustedLua::Sandbox,
            sandbox_requires: Vec::new(),
            sandbox_environment: Vec::new(),
            timeout: Duration::from_millis(50),
            memory: 64 << 20,
            files: Arc::new(PluginFiles::new("", "")),
            opens_files: true,
            cache_memory: 128 << 20,
            shared_dicts: Vec::new(),
            update_interval: Duration::from_secs(5),
            prefix: String::new(),
        }
    }
}

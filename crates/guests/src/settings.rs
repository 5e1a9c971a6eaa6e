//! What the node's settings say of Lua.

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
}

impl Default for LuaSettings {
    fn default() -> Self {
        Self {
            untrusted: UntrustedLua::Sandbox,
            sandbox_requires: Vec::new(),
            sandbox_environment: Vec::new(),
            timeout: Duration::from_millis(50),
            memory: 64 << 20,
        }
    }
}

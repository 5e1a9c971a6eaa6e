//! How often calls of Lua ended early, as `/metrics` shows it.

use weir_plugin::{Metric, Retained};

/// Why a call ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It raised an error.
    Error,
    /// It used its time up.
    Timeout,
    /// It used the memory of its VM up.
    Memory,
    /// Its code could not be loaded.
    Load,
}

/// Counts them, by plugin and reason.
#[derive(Clone)]
pub(crate) struct Failures(Option<Metric>);

impl Failures {
    /// Those of the node whose state this is.
    pub(crate) fn of(retained: &Retained) -> Self {
        let help = "Calls of Lua code that ended early, by plugin and reason";
        let metric = retained.node_counter("weir_lua_ended_total", help, &["plugin", "reason"]);
        Self(
            metric
                .inspect_err(|error| tracing::warn!("calls of Lua that end early are not counted: {error}"))
                .ok(),
        )
    }

    /// Counts one.
    pub(crate) fn count(&self, plugin: &str, reason: Reason) {
        let reason = match reason {
            Reason::Error => "error",
            Reason::Timeout => "timeout",
            Reason::Memory => "memory",
            Reason::Load => "load",
        };
        if let Some(metric) = &self.0 {
            metric.with(&[plugin, reason]).add(1.0);
        }
    }
}

//! The gateway as a program: settings, subcommands, stores, the Admin APIs. How a request is served is `weir-proxy`'s
//! business.
//!
//! [`Gateway`] runs it, with the bundled plugins and those that a program of your own adds. `cli` reads the command line,
//! `commands` does what it asks for. `weir run` starts a `node`, which opens everything and serves until a signal or
//! `weir quit` stops it. A configuration goes `settings` → `configuration` (a declarative file, Kong's or APISIX's) or
//! `store` (SQLite, PostgreSQL) → `registry`, the entities and the one way to change them → `data_plane`, which compiles
//! them and publishes the snapshot to the workers. The Admin APIs (`admin`, `apisix_admin`) and the `status` API are
//! served by `listener`; they see the running node through `control`.
mod admin;
mod apisix;
mod apisix_admin;
mod cli;
mod commands;
mod configuration;
mod control;
mod data_plane;
mod depth;
mod dns_status;
mod listener;
mod logger;
mod low_priority;
mod node;
mod plugins;
mod prefix;
mod registry;
mod settings;
mod start_error;
mod status;
mod store;

use clap::Parser;
use cli::Cli;
use std::io::{self, Write};
use std::process::ExitCode;
use weir_plugin::Definition;
use weir_plugins::PLUGINS;

/// The whole program, as `weir` and every gateway with plugins of its own run it.
pub struct Gateway {
    plugins: Vec<Definition>,
}

impl Gateway {
    /// With the bundled plugins.
    pub fn new() -> Gateway {
        Gateway { plugins: PLUGINS.to_vec() }
    }

    /// Adds a plugin. One of a name that is there already takes its place. Plugins that do not go together, because two have
    /// the same path of the Admin API for example, are reported by [`run`](Self::run).
    #[must_use]
    pub fn with_plugin(mut self, plugin: Definition) -> Gateway {
        self.plugins.retain(|other| other.name != plugin.name);
        self.plugins.push(plugin);
        self
    }

    /// Does what the command line asks for, and returns how the process should end.
    pub fn run(mut self) -> ExitCode {
        self.plugins.sort_by_key(|plugin| std::cmp::Reverse(plugin.priority));
        // Configurations refer to plugins for as long as the process runs.
        let definitions = self.plugins.leak();
        let done = admin::plugin_conflicts::check(definitions)
            .and_then(|()| commands::perform(Cli::parse().command, definitions));
        done.unwrap_or_else(|message| {
            // Nothing is left to do when even this cannot be written.
            let _ = writeln!(io::stderr(), "{message}");
            ExitCode::FAILURE
        })
    }
}

impl Default for Gateway {
    fn default() -> Self {
        Gateway::new()
    }
}

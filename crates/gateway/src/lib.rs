//! The gateway as a program: settings, subcommands, stores, the Admin APIs. How a request is served is `weir-proxy`'s
//! business.
//!
//! [`Gateway`] runs it, with the bundled plugins and those that a program of your own adds. `cli` reads the command line,
//! `commands` does what it asks for. `weir run` starts a `node`, which opens everything and serves until a signal or
//! `weir quit` stops it. A configuration goes `settings` → `configuration` (a declarative file, Kong's or APISIX's) or
//! `store` (SQLite, PostgreSQL) → `registry`, the entities and the one way to change them → `data_plane`, which compiles
//! them and publishes the snapshot to the workers. The Admin APIs (`admin`, `apisix_admin`) and the `status` API are
//! served by `listener`; they see the running node through `control`. `cluster` is the node's part in a fleet: a control
//! plane sends what is in its registry, and the registry of a data plane gets what that sends.
mod admin;
mod analytics;
mod apisix;
mod apisix_admin;
mod cli;
mod cluster;
mod commands;
mod configuration;
mod control;
mod data_plane;
mod depth;
mod dns_status;
mod handover;
mod json_body;
mod listener;
mod logger;
mod memory;
mod node;
mod options;
mod overload;
mod plugins;
mod prefix;
mod process_limit;
mod program;
mod registry;
mod service_manager;
mod settings;
mod start_error;
mod status;
mod store;
mod threads;
mod upgrade;

/// The allocator of a program with this gateway: `#[global_allocator] static ALLOCATOR: Allocator = Allocator;`. Threads of its
/// own return what was freed to the system, for C code as well: `docs/decisions/allocator.md`.
pub use tikv_jemallocator::Jemalloc as Allocator;

use clap::{CommandFactory, FromArgMatches};
use cli::{Cli, Program};
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use weir_plugin::Definition;

/// The whole program, as `weir` and every gateway with plugins of its own run it.
pub struct Gateway {
    plugins: Vec<Definition>,
}

impl Gateway {
    /// With the bundled plugins.
    pub fn new() -> Gateway {
        Gateway { plugins: plugins::of_every_gateway() }
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
        plugins::in_order(&mut self.plugins);
        // Configurations refer to plugins for as long as the process runs.
        let definitions = self.plugins.leak();
        let command_line: Vec<OsString> = std::env::args_os().collect();
        let program = Program::of(&command_line);
        let done = admin::plugin_conflicts::check(definitions).and_then(|()| match program {
            Program::Entrypoint => commands::entrypoint(command_line),
            _ => match parse(program, command_line) {
                Ok(cli) => commands::perform(cli, program, definitions),
                Err(code) => Ok(code),
            },
        });
        done.unwrap_or_else(|message| {
            let is_introduced = program != Program::Kong || message.starts_with("Error: ");
            let introduction = if is_introduced { "" } else { "Error: " };
            // Nothing is left to do when even this cannot be written.
            let _ = writeln!(io::stderr(), "{introduction}{message}");
            ExitCode::FAILURE
        })
    }
}

/// Reads the command line; what is wrong with it, or help, is printed. Kong exits with 1 where others do with 2.
fn parse(program: Program, command_line: Vec<OsString>) -> Result<Cli, ExitCode> {
    let command = Cli::command().name(program.command()).bin_name(program.command());
    let parsed = command.try_get_matches_from(command_line).and_then(|words| Cli::from_arg_matches(&words));
    parsed.map_err(|error| {
        // As above.
        let _ = error.print();
        match error.exit_code() {
            0 => ExitCode::SUCCESS,
            _ if program == Program::Kong => ExitCode::FAILURE,
            code => ExitCode::from(code.try_into().unwrap_or(1)),
        }
    })
}

impl Default for Gateway {
    fn default() -> Self {
        Gateway::new()
    }
}

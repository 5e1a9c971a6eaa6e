//! Plugins written in Lua, hosted behind the contract of [`weir_plugin`].
//!
//! `vm` makes one Lua VM per worker, once that has Lua to run, on a `machine`: Lua itself. A `call` runs Lua functions of a
//! plugin for an exchange, which the `host` lends to the VM meanwhile; `beside` runs what belongs to no exchange. `pdk` is what
//! Lua sees as `kong`, `ngx` what it sees as `ngx`, `modules` what it requires. `disk` are plugins whose code is in files. The
//! plugins `pre-function` and `post-function` (`functions`) run code of a configuration in a `sandbox`; `scripts` runs such
//! code for other plugins.

mod args;
mod beside;
mod budget;
mod cache;
mod call;
mod cluster_events;
mod contexts;
mod depth;
mod dicts;
mod disk;
mod failures;
mod fields;
mod files;
mod filter;
mod functions;
mod group;
mod host;
mod kept;
mod machine;
mod memory;
pub mod modules;
mod namespace;
mod ngx;
mod node;
mod operation;
pub mod patterns;
mod pdk;
mod pending;
mod phase;
mod post_function;
mod pre_function;
mod raise;
mod sandbox;
mod sandbox_check;
mod schema;
mod scripts;
mod search;
mod service_body;
mod settings;
mod socket;
mod source;
mod spent;
pub mod steps;
mod strands;
#[cfg(test)]
mod tests;
mod text;
mod tokens;
mod unavailable;
mod upstreams;
mod usage;
mod vm;
mod worker;
mod worker_events;

pub use disk::{Missing, PluginNeeds, definitions, plugin_needs, plugins_root, warnings};
pub use files::{FormerFiles, PluginFiles};
pub use pdk::log::INFO_TARGET;
pub use scripts::LuaScripts;
pub use settings::{LuaSettings, NodeConfiguration, UntrustedLua};
pub use usage::{DictMemory, LuaMemory};
use weir_plugin::{Definition, KONG_VERSION, define};

/// The plugins that run Lua, in their order.
pub static PLUGINS: &[Definition] =
    &[of_kong::<pre_function::PreFunction>(), of_kong::<post_function::PostFunction>()];

const fn of_kong<P: weir_plugin::Plugin>() -> Definition {
    Definition { version: KONG_VERSION, ..define::<P>() }
}

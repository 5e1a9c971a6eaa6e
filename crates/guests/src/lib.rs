//! Plugins written in Lua, hosted behind the contract of [`weir_plugin`].
//!
//! `vm` makes one Lua VM per worker, once that has Lua to run. A `call` runs Lua functions of a plugin for an exchange, which
//! the `host` lends to the VM meanwhile. `pdk` is what Lua sees as `kong`, `ngx` what it sees as `ngx`. The plugins
//! `pre-function` and `post-function` (`functions`) run code of a configuration in a `sandbox`.

mod args;
mod budget;
mod call;
mod contexts;
mod depth;
mod filter;
mod functions;
mod host;
mod kept;
pub mod modules;
mod ngx;
pub mod patterns;
mod pdk;
mod pending;
mod phase;
mod post_function;
mod pre_function;
mod raise;
mod sandbox;
mod settings;
mod source;
mod spent;
pub mod steps;
#[cfg(test)]
mod tests;
mod vm;

pub use settings::{LuaSettings, UntrustedLua};
use weir_plugin::{Definition, define};

/// The version of Kong whose plugins these are.
const KONG_VERSION: &str = "3.9.1";

/// The plugins that run Lua, in their order.
pub static PLUGINS: &[Definition] =
    &[of_kong::<pre_function::PreFunction>(), of_kong::<post_function::PostFunction>()];

const fn of_kong<P: weir_plugin::Plugin>() -> Definition {
    Definition { version: KONG_VERSION, ..define::<P>() }
}

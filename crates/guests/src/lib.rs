//! Plugins written in Lua, hosted behind the contract of [`weir_plugin`].

mod args;
pub mod modules;
pub mod patterns;
mod raise;
pub mod steps;

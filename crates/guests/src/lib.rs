//! Plugins written in Lua, hosted behind the contract of [`weir_plugin`].

pub mod modules;

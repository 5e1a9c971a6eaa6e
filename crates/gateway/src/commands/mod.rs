//! What the subcommands do that run no node, and `weir demo`.
pub(crate) mod check;
pub(crate) mod database;
pub(crate) mod demo;
pub(crate) mod echo;
pub(crate) mod explain;

//! Schemas in Lua as Weir's own: what the Admin API, files and forms know of a field follows from one table of Lua, and so
//! does what is said of a value.
//!
//! `declaration` makes a [`RecordSchema`] of such a table, for all that asks what fields there are. `reader` has the Lua module
//! `kong.db.schema` fill in defaults and check, in a VM of the thread that reads, because rules may be functions; `checks` runs
//! those that read a whole plugin entity. `meta` says what is wrong with a schema itself. `values` are the values on their way there and back.

pub(crate) mod checks;
pub(crate) mod declaration;
pub(crate) mod meta;
pub(crate) mod reader;
pub(crate) mod values;

#[cfg(test)]
mod meta_tests;
#[cfg(test)]
mod tests;

#[cfg(doc)]
use weir_plugin::schema::RecordSchema;

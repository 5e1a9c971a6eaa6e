//! The configuration as Kong's control planes send it, `config_table`: one list of rows for each kind of entity, foreign keys
//! as bare ids, unset fields as null.
//!
//! Rows are made one after the other while they are hashed or written, so that there is no second copy of a configuration.
mod read;
mod row;
mod table;
#[cfg(test)]
mod tests;

pub use read::read;
pub(crate) use read::read_entity;
pub use row::{ForeignKeys, row};
pub use table::{ConfigTable, Withheld};
pub(crate) use table::{WITHOUT_ROUTE, reason_against_route};

/// The id of the workspace that all entities are in.
pub const WORKSPACE_ID: &str = "0dc6f45b-8f8d-40d2-a504-473544ee190b";

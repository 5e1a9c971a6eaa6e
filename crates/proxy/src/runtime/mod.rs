//! The threads: accepting connections, running workers, putting snapshots in force.

pub mod in_memory;
pub(crate) mod proxy;
mod run;

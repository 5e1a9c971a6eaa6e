//! The threads: accepting connections, running workers, publishing snapshots.

pub mod in_memory;
pub(crate) mod proxy;
mod run;
pub(crate) mod watchdog;

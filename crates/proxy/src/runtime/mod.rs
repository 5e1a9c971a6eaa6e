//! The threads: accepting connections, running workers, publishing snapshots.

pub mod in_memory;
pub(crate) mod proxy;
pub(crate) mod run;
pub(crate) mod versions;
pub(crate) mod watchdog;

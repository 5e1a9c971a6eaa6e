//! The threads: what each worker has, how connections reach it, how snapshots are put in force.

pub mod in_memory;
pub(crate) mod options;
pub(crate) mod own;
pub(crate) mod proxy;
pub(crate) mod worker;
